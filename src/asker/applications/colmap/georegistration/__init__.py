"""Georegistration: transformation of a model into the frame of known positions."""
