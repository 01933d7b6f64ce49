"""The nonlinear regression problems of NIST's Statistical Reference Datasets, with NumPy or with JAX."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

FILE = Path(__file__).resolve().parents[1] / "data" / "nist.json"
PROBLEMS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
NAMESPACES = {"numpy": np, "jax": jnp}


def model(name: str, form: str = "numpy") -> Callable[[Any, Any], Any]:
    """Return the model f(b, x) of a problem."""
    xp = NAMESPACES[form]
    known = {function: getattr(xp, function) for function in ("exp", "cos", "sin", "arctan", "pi")}
    code = compile(PROBLEMS[name]["model"], name, "eval")
    return lambda b, x: eval(code, known, {"b": b, "x": x})


def data(name: str) -> tuple[Any, Any]:
    """Return x and y."""
    return np.array(PROBLEMS[name]["x"]), np.array(PROBLEMS[name]["y"])


def residuals(name: str, form: str = "numpy") -> Callable[[Any], Any]:
    """Return the residuals of a problem as a function of its parameters."""
    f, (x, y) = model(name, form), data(name)
    x, y = (NAMESPACES[form].asarray(values) for values in (x, y))
    return lambda b: f(b, x) - y


def start(name: str, number: int) -> Any:
    """Return one of the two starts."""
    return np.array(PROBLEMS[name][f"start{number}"])
