"""The XLA engine: one device, several, or several hosts.

engine.py              the verbs of `asker.engines.interface.Engine`, as compiled programs over all devices
device_problem.py      a problem on the devices: the linear solver, the arrays, and the programs that use them
device_program.py      the verbs inside a program, for the arrays of one device
programs.py            compilation and execution of programs
placement.py           transfer of arrays between the host and the devices
layout.py              order of variables and observations on the devices
solver_selection.py    selection of the linear solver
schur_pattern.py       sparsity pattern of the reduced matrix
fronts.py              symbolic analysis for the sparse factorisation
residuals.py           residuals and derivatives of one factor group, on one device
scalar_program.py      functions of one observation, vectorised over all observations
formulas.py            per-residual formulas, on one device
assembly.py            assembly of the linear system
system.py              solution of the reduced system
small_matrices.py      small matrices, one for each observation
chunking.py            loops over slabs of observations
blocks.py              operations on arrays of small blocks
pair_sums_pallas.py    sums over pairs of observations, as a kernel for NVIDIA GPUs
sparse.py              multifrontal sparse Cholesky factorisation
gradients.py           gradients, which need derivatives but no linear system
linearized_problem.py  the inverse of the linear system, for covariances
devices.py             selection of devices, and their memory
distributed.py         communication between the processes of several hosts
"""
