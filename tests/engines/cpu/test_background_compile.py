"""Machine code that is asked for is made, and not run; nobody waits for what will not come."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from asker.engines.cpu import background_compile
from asker.engines.cpu.background_compile import asking
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


def test_what_is_asked_for_is_made_and_not_run():
    x, add = np.zeros(3), adding(1.25)
    with asking():
        add(0, 3, x)
    assert (x == 0).all()
    add(0, 3, x)
    assert (x == 1.25).all()


def test_an_error_is_told_to_who_needs_the_code():
    code = Code("wrong", "no text of LLVM's", lambda symbol: "wrong", lambda name: None)
    background_compile.ask(code)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="parsing"):
            background_compile.needed(code)


def joined(x, y, d):
    """Residuals of no use elsewhere: nobody has compiled their loops."""
    return jnp.sin(x[:3]) * y + x[-3:] - d


def problem(size):
    """Each size has loops of its own."""
    rng = np.random.default_rng(size)
    x, y = Variables(rng.normal(size=(8, size)), name="x"), Variables(rng.normal(size=(60, 3)), name="y")
    i, j = np.arange(320) % 8, np.arange(320) % 60
    return Problem(Factors(joined, x[i], y[j], data=rng.normal(size=(320, 3))))


@pytest.mark.parametrize(
    ("size", "solver", "radial"),
    [(5, "dense-cholesky", False), (7, "dense-cholesky", True), (13, "sparse-cholesky", False), (10, "cg", True)],
)
def test_a_first_step_compiles_nothing_that_it_has_not_asked_for(size, solver, radial, monkeypatch):
    asked, needed = [], []
    monkeypatch.setattr(compile, "ask", lambda code: asked.append(code) or background_compile.ask(code))
    monkeypatch.setattr(jit, "needed", lambda code: needed.append(code) or background_compile.needed(code))
    with team_of(2):
        engine = CpuEngine(problem(size), solver)
        point = engine.start()
        del needed[:]
        step = engine.solve(point, Model(point.u, point.u if radial else None, point.u), 1.0)
        if radial:
            engine.radial(step)
        engine.move(step)
    assert len(set(needed) & set(asked)) > 2
    assert solver == "cg" or not set(needed) - set(asked)  # its products come after the first


def test_a_step_is_the_same_with_one_thread_which_asks_for_nothing(monkeypatch):
    steps = []
    for n in (2, 1):
        with team_of(n):
            engine = CpuEngine(problem(11))
            point = engine.start()
            delta = engine.solve(point, Model(point.u, None, point.u), 1.0).delta
            steps.append([delta[v] for v in engine.problem.variables])
        monkeypatch.setattr("asker.engines.cpu.engine.asking", None)
    assert all(np.array_equal(a, b) for a, b in zip(*steps, strict=True))


def test_nothing_is_held_of_a_step_whose_asking_was_interrupted(monkeypatch):
    def interrupted(system, linear, model):
        linear()
        raise KeyboardInterrupt

    with team_of(2):
        engine, other = CpuEngine(problem(12)), CpuEngine(problem(12))
        point = engine.start()
        model = Model(point.u, None, point.u)
        with monkeypatch.context() as now:
            now.setattr(System, "ask", interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.solve(point, model, 1.0)
        found, expected = (each.solve(each.start(), model, 1.0).delta for each in (engine, other))
        pairs = zip(engine.problem.variables, other.problem.variables, strict=True)
        assert all(np.array_equal(found[v], expected[w]) for v, w in pairs)


PROCESS = """
import os
import sys
import numpy as np
from asker.engines.cpu.background_compile import asking
from asker.engines.cpu.compiler import compile_source

def adding(number):
    return compile_source("add", {text!r}.format(name="add", number=number))

with asking():
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
def test_a_process_ends_or_forks_while_code_is_made(forks, tmp_path, monkeypatch):
    monkeypatch.setenv("ASKER_CACHE", str(tmp_path))
    if forks and sys.platform == "win32":
        pytest.skip("no forks")
    script = PROCESS.format(text=ADD, forks=forks)
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", script], timeout=60).returncode == 0
