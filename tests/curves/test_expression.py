"""Expressions have the values that they have in Python, and no other code is run."""

import numpy as np
import pytest

from asker.curves.expression import FUNCTIONS, category_term, parse, parse_side

VALUES = {"x": np.linspace(0.1, 0.9, 7), "a": 1.7, "b": -0.4, "c_1": 2.5}
PYTHON = {name: function for name, (function, _) in FUNCTIONS.items()} | {"pi": np.pi} | VALUES


def random_expression(rng, depth=0):
    kind = rng.integers(7) if depth < 4 else rng.integers(2)
    if kind == 0:
        return str(rng.choice(["x", "a", "b", "c_1", "pi"]))
    if kind == 1:
        return str(rng.choice(["2", "0.5", "1e-1", "3."]))
    inner = random_expression(rng, depth + 1)
    if kind == 2:
        name = str(rng.choice(sorted(FUNCTIONS)))
        arguments = [inner, *(random_expression(rng, depth + 1) for _ in range(FUNCTIONS[name][1] - 1))]
        return f"{name}({', '.join(arguments)})"
    if kind == 3:
        return f"-{inner}" if rng.random() < 0.5 else f"({inner})"
    operator = str(rng.choice(["+", "-", "*", "/", "**"]))
    return f"{inner} {operator} {random_expression(rng, depth + 1)}"


@pytest.mark.parametrize("seed", range(60))
def test_an_expression_has_the_value_of_python(seed):
    text = random_expression(np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        expected = eval(
            text, {"__builtins__": {}}, {k: np.float64(v) if np.isscalar(v) else v for k, v in PYTHON.items()}
        )
        value = parse_side(text)(VALUES)
    np.testing.assert_allclose(value, np.asarray(expected, dtype=float), rtol=1e-12)


def test_names_are_listed_in_order_without_functions_and_constants():
    (equation,) = parse("log(y) = a*exp(-b*`time of day`) + pi*a + C(group)")
    assert equation.left.names == ("y",)
    assert equation.right.names == ("a", "b", "time of day")
    assert equation.right.categories == ("group",)
    assert [e.left.text for e in parse("y = a*x; z = b*x")] == ["y", "z"]


def test_a_caret_is_a_power():
    assert parse_side("x^2")({"x": 3.0}) == 9


@pytest.mark.parametrize(
    "text",
    [
        "y = __import__('os').system('true')",
        "y = x.__class__",
        "y = (lambda: 1)()",
        "y = [k for k in x]",
        "y = x[0]",
        "y = 'text'",
        "y = x if a else b",
        "y = x < 2",
        "y = open(x)",
        "y = exp(*x)",
        "y = exp(x, out=x)",
        "y = exp",
        "y = exp(x, x)",
        "y = f'{x}'",
        "y = True",
        "y = 1j*x",
        "y = a +",
        "y = x // 2",
        "y == x",
        "a*x",
        "y = ",
        "",
        ";",
        "y = " + "(" * 300 + "x" + ")" * 300,
        "y = " + "-" * 200 + "x",
        "y = " + "+".join(["x"] * 9000),
        "y = C(1)",
        "y = C(g) + C(g)",
        "y = :=",
        "y = x\0",
    ],
)
def test_anything_else_is_rejected_with_a_message(text):
    with pytest.raises(ValueError, match=r"\w+"):
        parse(text)


def test_huge_powers_are_infinite_and_take_no_time():
    with np.errstate(all="ignore"):
        assert parse_side("9**9**9**9**9")({}) == np.inf


def test_categories_are_indicators_of_all_levels_but_the_first():
    term = category_term("g", ["b", "a", "c", "b"], ["a", "b", "c"])
    np.testing.assert_array_equal(term({"C(g)[b]": 2.0, "C(g)[c]": 5.0}), [2.0, 0.0, 5.0, 2.0])
