"""Rotation averaging: absolute rotations from relative ones."""

from asker.applications.rotation_averaging.files import RelativeRotations, Rotations, read_rotations, write_rotations
from asker.applications.rotation_averaging.problem import angle_errors, averaging_problem, make_rotations, refine

__all__ = ["RelativeRotations", "Rotations", "angle_errors", "averaging_problem", "make_rotations"]
__all__ += ["read_rotations", "refine", "write_rotations"]
