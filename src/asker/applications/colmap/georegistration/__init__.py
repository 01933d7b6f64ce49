"""A model in the frame of known positions."""
