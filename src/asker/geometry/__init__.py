"""Frames: poses, how two sets of points or of cameras are aligned, trees that put poses in a frame."""
