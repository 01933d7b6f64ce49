"""Engines, which evaluate residuals and solve linear systems.

interface.py       the interface between strategies and engines
sparsity.py        sparsity structure of a problem: eliminated and kept variables
bounds.py          truncation of steps at bounds
validity.py        conditions under which observations are possible
solvers.py         names and settings of the linear solvers
inverse_blocks.py  blocks of the inverse of the linear system, for covariances
linearised.py      choice of the device on which a problem is linearised
null_space.py      directions in which a single variable is not determined
cpu/               the engine for CPUs: compiled loops and threads
xla/               the engine for accelerators: JAX
"""
