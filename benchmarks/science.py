"""Data that statisticians and scientists try first: NIST's sets, classical sets with outliers, families of curves.

    python benchmarks/science.py [nist] [outliers] [classical] [families] [--seeds 10]

nist       Share of the certified minima of NIST's 27 nonlinear regression sets that are reached from both starts, to
           1e-6 in the sum of squares, with default options; calls of the function without those for derivatives.
outliers   The same sets with 20 % planted outliers of 5 to 20 standard deviations: share of the estimates within three
           standard errors of the fit without the outliers, from the second start.
classical  Regression sets of the robust literature with the MM-estimates of statsmodels: largest difference in their
           standard errors, and time.
families   Curves with 0 to 45 % outliers: share solved (all parameters within three standard errors of the fit to the
           inliers, or 1.5 times its error), median error relative to that fit, coverage of the 95 % intervals, time.

The other programs are used if they are installed: lmfit, statsmodels, scikit-learn.  `soft_l1` is told the noise.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
from scipy.special import stdtrit

import asker
from record import add_record_option, recorded

ROOT = Path(__file__).resolve().parents[1]
NIST = json.loads((ROOT / "tests/data/nist.json").read_text())
CLASSICAL = ROOT / "shared/data/classical.json", ROOT.parent / "shared/data/classical.json"
MAX_PARAMETERS = 6
"""Largest number of parameters for which the table of planted outliers draws random subsets."""
FUNCTIONS = ("exp", "cos", "sin", "arctan", "pi")
Fit = Callable[..., np.ndarray]
MM = 'asker `method="mm"`'
SOFT_L1, CAUCHY = "SciPy soft_l1, told the noise", "SciPy cauchy, told the noise"


def residuals_of(name: str, y: np.ndarray, xp: Any = np) -> Callable[[Any], Any]:
    """Return the residuals of a set of NIST for these data."""
    code, x = compile(NIST[name]["model"], name, "eval"), xp.asarray(NIST[name]["x"])
    known, y = {f: getattr(xp, f) for f in FUNCTIONS}, xp.asarray(y)
    return lambda b: eval(code, known, {"b": b, "x": x}) - y


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the value of a call, None if it fails, and its seconds."""
    begin = time.perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            value = call()
        except (ValueError, RuntimeError, TypeError, FloatingPointError, np.linalg.LinAlgError):
            value = None
    return value, time.perf_counter() - begin


def lmfit_of(f: Callable[[Any], Any], start: np.ndarray) -> tuple[np.ndarray, int]:
    import lmfit

    parameters = lmfit.Parameters()
    for k, value in enumerate(start):
        parameters.add(f"p{k}", value=float(value))
    out = lmfit.minimize(lambda p: f(np.array([p[f"p{k}"].value for k in range(len(start))])), parameters)
    return np.array([out.params[f"p{k}"].value for k in range(len(start))]), out.nfev


def nist() -> None:
    """Print the table of the certified minima."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def with_scipy(method: str) -> Callable[[Any, Any], Any]:
        return lambda f, b: (lambda r: (r.x, r.nfev))(scipy.optimize.least_squares(f, b, method=method))

    def with_asker(f: Any, b: Any) -> Any:
        fit = asker.least_squares(f, b)
        return fit.x, fit.nfev

    solvers: dict[str, tuple[Any, Any]] = {"asker, NumPy": (with_asker, np), "asker, JAX": (with_asker, jnp)}
    solvers |= {f"SciPy {m}": (with_scipy(m), np) for m in ("trf", "dogbox", "lm")}
    solvers |= {"lmfit": (lmfit_of, np)} if find_spec("lmfit") else {}
    print("| | minima reached | not reached | median calls | seconds |\n|---|---|---|---|---|")
    for label, (solver, xp) in solvers.items():
        missed, calls, seconds = [], [], 0.0
        for name, data in NIST.items():
            f, exact = residuals_of(name, np.array(data["y"]), xp), residuals_of(name, np.array(data["y"]))
            rounding = (10 * np.finfo(float).eps * np.linalg.norm(data["y"])) ** 2
            for k in (1, 2):
                found, spent = timed(lambda solver=solver, f=f, k=k, data=data: solver(f, np.array(data[f"start{k}"])))
                seconds += spent
                with np.errstate(all="ignore"):
                    ssr = np.inf if found is None else float(np.sum(exact(np.asarray(found[0])) ** 2))
                calls.append(np.inf if found is None else found[1])
                if not ssr <= data["ssr"] * (1 + 1e-6) + rounding:
                    missed.append(f"{name}/{k}")
        reached = f"{54 - len(missed)} of 54"
        print(f"| {label} | {reached} | {', '.join(missed) or '–'} | {np.median(calls):.0f} | {seconds:.1f} |")


def outliers(seeds: int) -> None:
    """Print the table of NIST's sets with planted outliers."""
    counts: dict[str, list[bool]] = {}
    wrong: dict[str, list[str]] = {}
    for name, data in NIST.items():
        n, p = len(data["y"]), len(data["certified"])
        if n < 3 * p or p > MAX_PARAMETERS or data["ssr"] < 1e-12:
            continue
        for seed in range(seeds):
            for label, right in _of_planted(name, seed, float(np.sqrt(data["ssr"] / (n - p)))).items():
                counts.setdefault(label, []).append(right)
                wrong.setdefault(label, []).extend([] if right else [f"{name}/{seed}"])
    print("| | within three standard errors | not |\n|---|---|---|")
    for label, each in counts.items():
        listed = wrong[label]
        shown = ", ".join(listed[:14]) + (f" and {len(listed) - 14} more" if len(listed) > 14 else "")
        print(f"| {label} | {sum(each)} of {len(each)} | {shown or '–'} |")


def _of_planted(name: str, seed: int, s: float) -> dict[str, bool]:
    """Return for each method whether its estimate is within three standard errors of the fit without the outliers."""
    data, rng = NIST[name], np.random.default_rng(seed)
    y, start = np.array(data["y"]), np.array(data["start2"])
    n = len(y)
    bad = rng.choice(n, round(0.2 * n), replace=False)
    y[bad] += s * rng.uniform(5, 20, len(bad)) * rng.choice([-1, 1], len(bad))
    good, f = np.setdiff1d(np.arange(n), bad), residuals_of(name, y)
    oracle, _ = timed(lambda: asker.least_squares(lambda b: f(b)[good], data["certified"]))
    errors = np.sqrt(np.diag(oracle.covariance))

    def with_scipy(loss: str) -> Any:
        return scipy.optimize.least_squares(f, start, loss=loss, f_scale=s, x_scale="jac", max_nfev=2000).x

    def with_mm() -> Any:
        return asker.curve_fit(lambda _, *b: f(np.array(b)), np.arange(n), np.zeros(n), p0=start, method="mm")[0]

    calls = {MM: with_mm, SOFT_L1: lambda: with_scipy("soft_l1"), CAUCHY: lambda: with_scipy("cauchy")}
    found = {label: timed(call)[0] for label, call in calls.items()}
    return {k: x is not None and bool((np.abs(x - oracle.x) < 3 * errors).all()) for k, x in found.items()}


def classical() -> None:
    """Print the table of the classical sets."""
    path = next((path for path in CLASSICAL if path.exists()), None)
    if path is None:
        print("classical.json does not exist")
        return
    sets = json.loads(path.read_text())

    def with_asker(A: np.ndarray, y: np.ndarray) -> np.ndarray:
        return asker.estimators.mm_estimate(lambda b: A @ b - y, np.zeros(A.shape[1]), jac=lambda b: A).x

    methods: dict[str, Fit] = {"asker MM": with_asker}
    if find_spec("statsmodels"):
        methods["RLMDetSMM"] = _statsmodels
    if find_spec("sklearn"):
        from sklearn.linear_model import HuberRegressor, RANSACRegressor, TheilSenRegressor

        def of_sklearn(make: Callable[[], Any]) -> Fit:
            def fit(A: np.ndarray, y: np.ndarray) -> np.ndarray:
                model = make().fit(A[:, 1:], y)
                model = getattr(model, "estimator_", model)
                return np.append(model.intercept_, model.coef_)

            return fit

        methods["RANSACRegressor"] = of_sklearn(lambda: RANSACRegressor(random_state=0))
        methods["TheilSenRegressor"] = of_sklearn(lambda: TheilSenRegressor(random_state=0))
        methods["HuberRegressor"] = of_sklearn(lambda: HuberRegressor(max_iter=10_000))
    methods["least squares"] = lambda A, y: np.linalg.lstsq(A, y)[0]
    print(f"| | {' | '.join(sets)} | within 2 | seconds |\n|{'---|' * (len(sets) + 3)}")
    for label, fit in methods.items():
        cells, within, seconds = [], 0, 0.0
        for data in sets.values():
            y = np.array(data["y"])
            A = np.c_[np.ones(len(y)), np.array(data["x"])]
            found, spent = timed(lambda fit=fit, A=A, y=y: fit(A, y))
            seconds += spent
            z = np.inf if found is None else float(np.max(np.abs(found - data["mm"]) / np.array(data["mm_se"])))
            within += z <= 2
            cells.append("–" if found is None else f"{z:.2g}")
        print(f"| {label} | {' | '.join(cells)} | {within} of {len(sets)} | {seconds:.2g} |")


def _statsmodels(A: np.ndarray, y: np.ndarray) -> np.ndarray:
    from statsmodels.robust.resistant_linear_model import RLMDetSMM

    return np.asarray(RLMDetSMM(y, A).fit().params)


FAMILIES: dict[str, tuple[Callable[..., Any], list[float], tuple[float, float]]] = {
    "exponential": (lambda x, a, b, c: a * np.exp(-b * x) + c, [3.0, 1.0, 0.5], (0.0, 5.0)),
    "Michaelis-Menten": (lambda x, v, k: v * x / (np.abs(k) + x), [10.0, 2.0], (0.2, 20.0)),
    "Gaussian peak": (
        lambda x, h, m, w, c: h * np.exp(-(((x - m) / w) ** 2) / 2) + c,
        [5.0, 3.0, 0.8, 1.0],
        (0.0, 6.0),
    ),
}


def families(seeds: int) -> None:
    """Print the table of the families."""
    print("| n | outliers | method | solved | error / oracle | coverage of 95 % | seconds |")
    print("|---|---|---|---|---|---|---|")
    for n in (20, 60):
        for share in (0.0, 0.15, 0.3, 0.45):
            rows: dict[str, list[tuple[Any, ...]]] = {}
            for f, truth, (low, high) in FAMILIES.values():
                for seed in range(seeds):
                    rng = np.random.default_rng(seed)
                    x = np.linspace(low, high, n)
                    clean = f(x, *truth)
                    sigma = 0.03 * np.ptp(clean)
                    y = clean + sigma * rng.normal(size=n)
                    bad = rng.choice(n, int(share * n), replace=False)
                    y[bad] = rng.uniform(clean.min() - np.ptp(clean), clean.max() + np.ptp(clean), len(bad))
                    good = np.setdiff1d(np.arange(n), bad)
                    start = np.array(truth) * rng.uniform(0.6, 1.5, len(truth))
                    for label, result in _fits(f, x, y, start, sigma, good, np.array(truth)).items():
                        rows.setdefault(label, []).append(result)
            for label, results in rows.items():
                solved, ratio, covered, seconds = (np.array([r[k] for r in results], dtype=float) for k in range(4))
                median = np.nanmedian(np.where(np.isfinite(ratio), ratio, 1e9))
                shown = "–" if np.isnan(covered).all() else f"{np.nanmean(covered):.1%}"
                cells = (
                    n,
                    f"{share:.0%}",
                    label,
                    f"{solved.mean():.0%}",
                    f"{median:.2f}",
                    shown,
                    f"{seconds.mean():.2f}",
                )
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _fits(f: Any, x: Any, y: Any, start: Any, sigma: float, good: Any, truth: Any) -> dict[str, tuple[Any, ...]]:
    """Return for each method: solved, error relative to the oracle, share of intervals with the truth, seconds."""
    oracle = asker.least_squares(lambda p: (f(x, *p) - y)[good], truth)
    errors = np.sqrt(np.diag(oracle.covariance))
    scaled = np.linalg.norm((oracle.x - truth) / errors)
    t = float(stdtrit(len(x) - len(truth), 0.975))

    def with_soft_l1() -> Any:
        fun = lambda p: f(x, *p) - y  # noqa: E731
        return scipy.optimize.least_squares(fun, start, loss="soft_l1", f_scale=sigma).x, None

    calls = {
        MM: lambda: asker.curve_fit(f, x, y, p0=start, method="mm"),
        SOFT_L1: with_soft_l1,
        "SciPy curve_fit": lambda: scipy.optimize.curve_fit(f, x, y, p0=start),
    }
    results: dict[str, tuple[Any, ...]] = {}
    for label, call in calls.items():
        found, seconds = timed(call)
        if found is None:
            results[label] = (False, np.inf, np.nan, seconds)
            continue
        popt, pcov = found
        z = np.abs(popt - oracle.x) / errors
        error = np.linalg.norm((popt - truth) / errors)
        covered = np.nan if pcov is None else np.mean(np.abs(popt - truth) < t * np.sqrt(np.diag(pcov)))
        results[label] = (bool((z < 3).all()) or error < 1.5 * scaled, error / scaled, covered, seconds)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {
        "nist": "NIST's sets",
        "outliers": "NIST's sets with 20 % outliers",
        "classical": "Classical sets",
        "families": "Families",
    }
    parser.add_argument("tables", nargs="*", choices=[*tables, []], help="tables to print; by default all")
    parser.add_argument("--seeds", type=int, default=10, help="number of data sets of each case")
    add_record_option(parser)
    asked = parser.parse_args()
    with recorded(asked.record):
        for k, name in enumerate(asked.tables or tables):
            print(f"{chr(10) if k else ''}## {tables[name]}\n")
            globals()[name](*{"families": [asked.seeds], "outliers": [max(asked.seeds // 2, 1)]}.get(name, []))


if __name__ == "__main__":
    main()
