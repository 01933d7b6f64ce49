"""Readers of poses and of folders of images."""
