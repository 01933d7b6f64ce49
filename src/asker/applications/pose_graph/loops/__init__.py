"""Detection of false loop closures."""
