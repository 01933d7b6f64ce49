"""Files of COLMAP models, and conversion from and to other formats."""
