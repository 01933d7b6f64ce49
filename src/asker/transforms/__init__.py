"""Solutions as functions of the arrays of their problem, for programs that differentiate them.

parameters.py       the arrays of a problem by name
solutions.py        results of the problem for arrays, cached between a solution and its derivatives
jax_primitive.py    primitive of JAX that applies a derivative of the solution, and its rules
differentiable.py   asker.differentiable, a JAX function
torch_function.py   asker.torch_differentiable, a function for the autograd of PyTorch
"""
