"""The solution as a function that PyTorch differentiates."""

import sys

import numpy as np
import pytest
from test_differentiable import START, decay_problem, offset

import asker

WRT = ["decay.data[1]", "decay.tau", "decay.weight", "rates.fixed"]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(asker.ProblemError, match=r"pip install asker-solver\[torch\]"):
        asker.torch_differentiable(decay_problem(), wrt=WRT)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def both(torch):
    solution = asker.torch_differentiable(decay_problem(), wrt=WRT)

    def both(*tensors):
        values = solution(*tensors)
        return torch.cat([values["p"], values["rates"]])

    return both


@pytest.fixture
def start(torch):
    return tuple(torch.tensor(x, dtype=torch.float64) for x in START)


def test_backward_equals_the_gradient_of_the_result(torch, both, start):
    leaves = [x.clone().requires_grad_() for x in start]
    both(*leaves)[0].backward()
    g = asker.solve(decay_problem(), tol=1e-12).vjp({"p": np.array([1.0])})
    expected = (g.data[0][1], g.tau[0], g.weight[0], g.fixed["rates"])
    for leaf, ours in zip(leaves, expected, strict=True):
        np.testing.assert_allclose(leaf.grad.numpy(), ours, rtol=1e-8, atol=1e-12)


def test_gradcheck(torch, both, start):
    y, tau, weight, rates = start
    inputs = (y.clone().requires_grad_(), tau.clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda y, tau: both(y, tau, weight, rates), inputs, eps=1e-5, atol=1e-6)


def test_functional_transformations_agree(torch, both, start):
    backwards = torch.func.jacrev(both, argnums=(0, 1, 2))(*start)
    forwards = torch.func.jacfwd(both, argnums=(0, 1, 2))(*start)
    for a, b in zip(backwards, forwards, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-8, atol=1e-12)
    taus = torch.tensor([0.1, 0.2, 0.4], dtype=torch.float64)

    def by_tau(tau):
        return both(start[0], tau, *start[2:])[0]

    each = [torch.func.grad(by_tau)(tau).item() for tau in taus]
    np.testing.assert_allclose(torch.func.vmap(torch.func.grad(by_tau))(taus).numpy(), each, rtol=1e-8)
    np.testing.assert_allclose(torch.func.vmap(by_tau)(taus)[1].item(), by_tau(taus[1]).item(), rtol=1e-12)


def test_types_shapes_and_second_derivatives(torch, both, start):
    assert both(*(x.float() for x in start)).dtype == torch.float32
    with pytest.raises(asker.ProblemError, match=r"decay.tau has shape \(2,\), expected \(\)"):
        both(start[0], torch.ones(2), *start[2:])
    with pytest.raises(asker.ProblemError, match="3 tensors are given"):
        both(*start[:3])
    tau = start[1].clone().requires_grad_()
    (slope,) = torch.autograd.grad(both(start[0], tau, *start[2:])[0], tau, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        slope.backward()


def test_a_solution_without_derivatives_raises_the_reason(torch):
    x = asker.Variables(np.zeros(1), name="x")
    d = np.array([-1.0, -1.0, 1.0, 1.0])
    f = asker.Factors(offset, x[np.zeros(4, int)], data=d, kernel=asker.GemanMcClure(0.5), name="f")
    solution = asker.torch_differentiable(asker.Problem(f), wrt=["f.data"], strategy=asker.IRLS())
    tensor = torch.tensor(d, requires_grad=True)
    with pytest.raises(asker.ProblemError, match="no strict minimum"):
        solution(tensor)["x"][0].backward()
