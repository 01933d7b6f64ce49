"""Formulas of one residual that everything uses: see `asker.engines.point`."""


def psi(kernel, u):
    return kernel.psi(u)


def omega(kernel, u):
    return kernel.omega(u)
