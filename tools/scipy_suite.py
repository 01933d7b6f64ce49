"""Run SciPy's tests of `least_squares` and `curve_fit` on asker's implementations.

    python tools/scipy_suite.py

The script prints the number of tests that pass, and for each failure the known reason.  The exit code is 1 if a test
fails without a reason in `REASONS`.
"""

import io
import os
import sys
from collections import Counter
from contextlib import redirect_stdout

import pytest

import asker

MODULES = {
    "scipy.optimize.tests.test_least_squares": "",
    "scipy.optimize.tests.test_minpack": "TestCurveFit",
}
"""Test modules of SciPy, and the class to which the tests are restricted, if any."""
REASONS = {
    "requires exactly 0, or fewer calls, which SciPy reaches by chance in its first step": (
        "test_options", "test_nfev_options", "test_x_scale_options", "test_full_result", "test_basic",
        "test_bounds_shape",
    ),
    "requires an error for input that asker supports but SciPy's methods and solvers do not": (
        "test_exact_tr_solver", "test_wrong_parameters", "test_linear_operator", "test_x_scale_jac_scale",
        "test_rosenbrock_cropped", "test_bounds_not_supported", "test_m_less_n_not_supported",
        "test_sparse_not_supported", "test_jac_sparsity_not_supported", "test_LinearOperator_not_supported",
        "test_loss", "test_small_tolerances_for_lm", "test_bounds",
    ),
    "requires the absolute gradient of trf as the criterion; that of asker is the cosine of lm": (
        "test_gh_18793_and_19351",
    ),
    "requires MINPACK's arrays": ("test_full_output",),
    "requires a covariance that differs by 5e-7 from that at the minimum; SciPy's trf fails it, too": ("test_gh4555b",),
}  # fmt: skip
"""Reasons why tests cannot pass."""


class InPlace:
    """A plugin of pytest: the names in SciPy's modules are ours, and what comes out is counted."""

    def __init__(self):
        self.outcome = {}

    def pytest_collection_modifyitems(self, session, config, items):
        items[:] = [item for item in items if MODULES[item.module.__name__] in item.nodeid]
        for module in {item.module for item in items}:
            module.least_squares = asker.least_squares
            module.curve_fit = asker.curve_fit
            if hasattr(module, "optimize"):
                module.optimize.curve_fit = asker.curve_fit

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("::", 1)[1]
        if report.when == "call" or report.outcome != "passed":
            self.outcome[name] = report.outcome, str(report.longrepr or "")


def run(chosen=""):
    """Return the outcome of each test, with the message of a failure."""
    plugin = InPlace()
    options = ["-q", "-c", os.devnull, "-p", "no:cacheprovider", "-W", "ignore", *(["-k", chosen] if chosen else [])]
    with redirect_stdout(io.StringIO()):
        pytest.main([*options, "--pyargs", *MODULES], plugins=[plugin])
    return plugin.outcome


def reason_of(name):
    return next((why for why, names in REASONS.items() if name.split("[")[0].split("::")[-1] in names), None)


def main(chosen=""):
    outcome = run(chosen)
    failed = {name: message for name, (how, message) in outcome.items() if how == "failed"}
    counts = Counter(how for how, _ in outcome.values())
    print(f"{counts['passed']} of {len(outcome)} of SciPy's tests pass; failures:")
    for name, message in failed.items():
        last = [line for line in message.splitlines() if line.startswith("E ")]
        print(f"  {name}: {reason_of(name) or 'UNEXPECTED: ' + ' '.join(last)[:300]}")
    return int(not all(map(reason_of, failed)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
