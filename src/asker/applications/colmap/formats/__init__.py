"""The files of a COLMAP model, and models from elsewhere."""
