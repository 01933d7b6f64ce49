"""Derivatives of the solution of a problem with respect to everything that the problem was built from.

observation_cost.py     cost of one observation and its derivatives, by JAX
factor_derivatives.py   the same for all observations, by compiled loops
retraction.py           retractions and their derivatives, by compiled loops
tangents.py             derivatives of the values of variables with respect to steps on their manifolds
newton_system.py        Hessian, its products, and the solution of linear systems with it
implicit.py             implicit function theorem: cotangents and tangents of a solution
gradients.py            gradients that are returned, and tangents that are given, by group
"""
