"""Manifolds, rotations, poses, alignment of points and cameras, and spanning trees of graphs."""
