"""Background compilation: enqueued code is compiled and not run, and errors do not block callers."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from asker.engines.cpu import background_compile
from asker.engines.cpu.background_compile import precompiling
from asker.engines.cpu.code_cache import Code
from asker.engines.cpu.compiler import compile, compile_source, jit
from asker.engines.cpu.engine import CpuEngine
from asker.engines.cpu.system import System
from asker.engines.cpu.threads import team_of
from asker.engines.interface import Model
from asker.problem.factors import Factors
from asker.problem.problem import Problem
from asker.problem.variables import Variables

ADD = "def {name}(start, stop, x):\n    for k in range(start, stop):\n        x[k] += {number}\n"


def adding(number):
    return compile_source("add", ADD.format(name="add", number=number))


def test_precompiled_functions_are_not_run():
    x, add = np.zeros(3), adding(1.25)
    with precompiling():
        add(0, 3, x)
    assert (x == 0).all()
    add(0, 3, x)
    assert (x == 1.25).all()


def test_a_compilation_error_is_raised_in_the_caller():
    code = Code("wrong", "not LLVM IR", lambda symbol: "wrong", lambda name: None)
    background_compile.enqueue(code)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="parsing"):
            background_compile.compiled_address(code)


def joined(x, y, d):
    """Residuals that no other test uses, so that their loops are not compiled yet."""
    return jnp.sin(x[:3]) * y + x[-3:] - d


def problem(size):
    """A problem whose loops depend on the size."""
    rng = np.random.default_rng(size)
    x, y = Variables(rng.normal(size=(8, size)), name="x"), Variables(rng.normal(size=(60, 3)), name="y")
    i, j = np.arange(320) % 8, np.arange(320) % 60
    return Problem(Factors(joined, x[i], y[j], data=rng.normal(size=(320, 3))))


@pytest.mark.parametrize(
    ("size", "solver", "radial"),
    [(5, "dense-cholesky", False), (7, "dense-cholesky", True), (13, "sparse-cholesky", False), (10, "cg", True)],
)
def test_all_code_of_a_first_step_is_precompiled(size, solver, radial, monkeypatch):
    enqueued, used = [], []
    enqueue, compiled_address = background_compile.enqueue, background_compile.compiled_address
    monkeypatch.setattr(compile, "enqueue", lambda code: enqueued.append(code) or enqueue(code))
    monkeypatch.setattr(jit, "compiled_address", lambda code: used.append(code) or compiled_address(code))
    with team_of(2):
        engine = CpuEngine(problem(size), solver)
        point = engine.start()
        del used[:]
        step = engine.solve(point, Model(point.u, point.u if radial else None, point.u), 1.0)
        if radial:
            engine.radial(step)
        engine.move(step)
    assert len(set(used) & set(enqueued)) > 2
    assert solver == "cg" or not set(used) - set(enqueued)  # "cg" needs further loops for its products


def test_one_thread_precompiles_nothing_and_computes_the_same_step(monkeypatch):
    steps = []
    for n in (2, 1):
        with team_of(n):
            engine = CpuEngine(problem(11))
            point = engine.start()
            delta = engine.solve(point, Model(point.u, None, point.u), 1.0).delta
            steps.append([delta[v] for v in engine.problem.variables])
        monkeypatch.setattr("asker.engines.cpu.engine.precompiling", None)
    assert all(np.array_equal(a, b) for a, b in zip(*steps, strict=True))


def test_an_interrupted_precompilation_stores_no_derivatives(monkeypatch):
    def interrupted(system, linear, model):
        linear()
        raise KeyboardInterrupt

    with team_of(2):
        engine, other = CpuEngine(problem(12)), CpuEngine(problem(12))
        point = engine.start()
        model = Model(point.u, None, point.u)
        with monkeypatch.context() as now:
            now.setattr(System, "precompile", interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.solve(point, model, 1.0)
        delta, expected = (each.solve(each.start(), model, 1.0).delta for each in (engine, other))
        pairs = zip(engine.problem.variables, other.problem.variables, strict=True)
        assert all(np.array_equal(delta[v], expected[w]) for v, w in pairs)


PROCESS = """
import os
import sys
import numpy as np
from asker.engines.cpu.background_compile import precompiling
from asker.engines.cpu.compiler import compile_source

def adding(number):
    return compile_source("add", {text!r}.format(name="add", number=number))

with precompiling():
    for number in range(20):
        adding(number + 0.5)(0, 3, np.zeros(3))
if {forks}:
    child = os.fork()
    if not child:
        x = np.zeros(3)
        adding(19.5)(0, 3, x)
        adding(99.5)(0, 3, x)
        sys.exit(not (x == 119.0).all())
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("forks", [False, True])
def test_a_process_ends_or_forks_during_a_compilation(forks, tmp_path, monkeypatch):
    monkeypatch.setenv("ASKER_CACHE", str(tmp_path))
    if forks and sys.platform == "win32":
        pytest.skip("no forks")
    script = PROCESS.format(text=ADD, forks=forks)
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", script], timeout=300).returncode == 0
