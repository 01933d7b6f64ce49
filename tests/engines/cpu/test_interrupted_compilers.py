"""Ctrl-C interrupts the wait for a compiler immediately, although LLVM and XLA do not react to signals."""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to a process")

MAX_ARRIVAL, MAX_END = 1.0, 5.0
"""Seconds of processor time of the process, which compiles meanwhile: other load of the machine does not count."""

BEGIN = """
import os, signal, threading, time
import jax, jax.numpy as jnp
import numpy as np
import asker
from asker.engines.cpu import code_cache
from asker.engines.cpu.compiler import Argument, BatchedLoop, compile_source

sent = []

def interrupt():
    sent.append(time.process_time())
    os.kill(os.getpid(), signal.SIGINT)

def interrupted_in(function, after):
    def called(*arguments):
        if not sent:
            threading.Timer(after, interrupt).start()
        return function(*arguments)
    return called
"""
END = """
except KeyboardInterrupt:
    print(sent[0], time.process_time(), flush=True)
    {end}
"""
LLVM = """
lines = ["def long(start, stop, x, y):", "    for k in range(start, stop):", "        t = 0.1"]
lines += [f"        t = math.exp(t) * x[k, {i}] - math.sin(t)" for i in range(4000)]
source = "\\n".join([*lines, "        y[k] = t", ""])
code_cache._compile_to_object = interrupted_in(code_cache._compile_to_object, 0.3)
try:
    compile_source("long", source)(0, 1, np.zeros((1, 4000)), np.zeros(1))
"""
XLA = """
def long(x):
    for i in range(1500):
        x = jnp.sin(x) * jnp.cos(x + i) @ jnp.ones((3, 3))
    return (x,), ()

jax.stages.Lowered.compile = interrupted_in(jax.stages.Lowered.compile, 0.3)
try:
    BatchedLoop([Argument("each", (3,))], long)(10, [np.zeros((10, 3))], [np.zeros((10, 3))])
"""
SOLVE = """
rng = np.random.default_rng(0)
t, p = np.linspace(0.0, 3.0, 1500), rng.uniform(0.5, 1.5, (40, 2))
y = p[:, :1] * np.exp(-p[:, 1:] * t)

def solve(k):
    curves = asker.Variables(p + 0.1, name="curves")
    factors = asker.Factors(lambda p, y: (1 + 0.01 * k) * p[0] * jnp.exp(-p[1] * t) - y, curves[np.arange(40)], data=y)
    return asker.solve(asker.Problem(factors)).status

made = code_cache._compile_to_object
of_many = interrupted_in(made, 0.5)
code_cache._compile_to_object = lambda text, slp: (of_many if len(text) > 100_000 else made)(text, slp)
jax.stages.Lowered.compile = interrupted_in(jax.stages.Lowered.compile, 0.1)
try:
    for k in range(1000):
        if solve(k) is asker.Status.INTERRUPTED:
            raise KeyboardInterrupt
"""


def seconds(script: str, cache: str, end: str) -> tuple[float, float]:
    """Return the processor times from the signal to its arrival and to the end of the process."""
    environment = os.environ | {"ASKER_CACHE": cache}
    command = [sys.executable, "-W", "ignore", "-c", BEGIN + script + END.format(end=end)]
    before = os.times()
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    after = os.times()
    assert not run.returncode or run.returncode == -signal.SIGINT, run.stderr
    sent, arrived = map(float, run.stdout.split())
    total = after.children_user - before.children_user + after.children_system - before.children_system
    return arrived - sent, total - sent


@pytest.mark.parametrize("script", [LLVM, XLA], ids=["LLVM", "XLA"])
def test_ctrl_c_interrupts_a_compilation(script, tmp_path):
    assert seconds(script, str(tmp_path), "os._exit(0)")[0] < MAX_ARRIVAL


def test_ctrl_c_interrupts_a_solve_with_long_residuals(tmp_path):
    """The process also ends soon; it waits for the current compilation only."""
    arrival, end = seconds(SOLVE, str(tmp_path), "raise SystemExit")
    assert arrival < MAX_ARRIVAL
    assert end < MAX_END
