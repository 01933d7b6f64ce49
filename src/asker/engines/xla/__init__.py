"""The XLA engine: one device, several, or several hosts.

engine.py     the verbs of `asker.engines.point.Engine`, each one compiled function over all devices
layout.py     where everything lies on the devices, worked out once
residuals.py  residuals and derivatives of one factor group, on one device
formulas.py   formulas of every residual, on one device
system.py     the one linear system, as one device of several sees it
blocks.py     small blocks by the million, and sums of them
devices.py    which devices there are, and how much they hold
hosts.py      how the processes of several hosts come together, and leave
"""
