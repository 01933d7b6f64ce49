"""The machines that problems are solved on.

point.py      what strategies and engines hand each other, and the contract of an engine
structure.py  who touches whom in a problem: what is eliminated, and what is kept
bounds.py     where a step ends that would cross a bound
solvers.py    the linear solvers by name, and their settings
cpu/          compiled loops and threads
xla/          JAX on accelerators
"""
