"""The XLA engine: one device, several, or several hosts.

engine.py        the verbs of `asker.engines.interface.Engine`, as compiled programs over all devices
verbs.py         the same verbs inside a program, as one device of several sees them
ahead.py         programs compiled beside each other, before they run
layout.py        where everything lies on the devices, worked out once
choice.py        which linear solver a problem gets
meetings.py      where kept variables meet: the blocks of the reduced matrix
fronts.py        where everything lies in a sparse factorisation
residuals.py     residuals and derivatives of one factor group, on one device
columns.py       a function of one observation as straight-line arithmetic on all of them
formulas.py      formulas of every residual, on one device
assembly.py      the sums of the one linear system
system.py        the reduced system, solved
small.py         small matrices, one for each observation
slabs.py         observations slab by slab
blocks.py        small blocks by the million, and sums of them
pair_sums.py     sums over pairs of observations, as a kernel for NVIDIA's GPUs
sparse.py        sparse Cholesky, by batches of fronts
gradients.py     what needs derivatives and no system
linear_model.py  the inverse of the system, for covariances
devices.py       which devices there are, and how much they hold
hosts.py         how the processes of several hosts come together, and leave
"""
