"""Derivatives of the solution of a problem with respect to everything that the problem was built from.

factor_derivatives.py   derivatives of the cost of each observation, by JAX
tangents.py             derivatives of the values of variables with respect to steps on their manifolds
newton_system.py        Hessian, its products, and the solution of linear systems with it
implicit.py             implicit function theorem: cotangents and tangents of a solution
gradients.py            gradients that are returned, and tangents that are given, by group
"""
