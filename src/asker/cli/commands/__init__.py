"""Commands of single applications."""
