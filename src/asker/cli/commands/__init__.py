"""Commands that belong to one application."""
