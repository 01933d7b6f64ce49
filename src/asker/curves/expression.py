"""Expressions of curves, such as "y = a*exp(-b*x) + c", parsed into functions without `eval`.

The grammar is that of Python's arithmetic: numbers, names, + - * / **, parentheses, and calls of the functions in
`FUNCTIONS`.  `C(column)` is a term for categories: a parameter for each value of a text column except the first.  Names
with spaces or signs stand in backticks.  Several equations are separated by semicolons and may share parameters.
"""

import ast
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from asker.problem.variables import ProblemError

MAX_LENGTH = 10_000
"""Largest number of characters of an expression."""
MAX_DEPTH = 60
"""Deepest nesting of an expression."""
FUNCTIONS: dict[str, tuple[Any, int]] = {
    **{
        name: (getattr(np, name), 1)
        for name in ("exp", "log", "log10", "log2", "log1p", "expm1", "sqrt", "cbrt", "abs")
    },
    **{name: (getattr(np, name), 1) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "sign")},
    **{name: (getattr(np, name), 1) for name in ("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh")},
    **{short: (getattr(np, f"arc{short[1:]}"), 1) for short in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "ln": (np.log, 1),
    "erf": (special.erf, 1),
    "erfc": (special.erfc, 1),
    "gammaln": (special.gammaln, 1),
    "minimum": (np.minimum, 2),
    "maximum": (np.maximum, 2),
}
"""Functions with their number of arguments."""
CONSTANTS = {"pi": np.pi}
OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
    ast.USub: np.negative,
    ast.UAdd: np.positive,
}
CATEGORY = "C"
"""Name of the function for categories."""
Values = Mapping[str, Any]
"""Values of names."""
Term = Callable[[Values], Any]
"""Function of the values of all names."""


@dataclass(frozen=True)
class Expression:
    """One side of an equation."""

    text: str
    term: Term
    names: tuple[str, ...]
    """Names in the order of their first occurrence, without functions and constants."""
    categories: tuple[str, ...]
    """Columns in `C(…)`."""

    def __call__(self, values: Values) -> Any:
        """Return the value of the expression."""
        return self.term(values)


@dataclass(frozen=True)
class Equation:
    """Equation of a curve: the left side consists of columns, the right one of columns and parameters."""

    left: Expression
    right: Expression


def category_parameter(column: str, level: str) -> str:
    """Return the name of the parameter of a category."""
    return f"C({column})[{level}]"


def parse(text: str) -> list[Equation]:
    """Return the equations of a text.

    Raises
    ------
    ProblemError
        If the text is not in the grammar; the message shows the place.
    """
    if len(text) > MAX_LENGTH:
        raise ProblemError(f"the expression has {len(text)} characters, expected at most {MAX_LENGTH}")
    equations = []
    for part in filter(str.strip, text.split(";")):
        sides = part.split("=")
        if len(sides) != 2 or not all(map(str.strip, sides)):
            raise ProblemError(f"{part.strip()!r} is no equation: expected something like 'y = a*exp(-b*x) + c'")
        equations.append(Equation(parse_side(sides[0]), parse_side(sides[1])))
    if not equations:
        raise ProblemError("the expression is empty: expected something like 'y = a*exp(-b*x) + c'")
    return equations


def parse_side(text: str) -> Expression:
    """Return one side of an equation."""
    quoted: dict[str, str] = {}

    def placeholder(match: re.Match[str]) -> str:
        name = f"quoted_name_{len(quoted)}_"
        quoted[name] = match[1]
        return name

    source = re.sub(r"`([^`]+)`", placeholder, text.strip()).replace("^", "**")
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"{text.strip()!r} is no expression: {getattr(error, 'msg', error)}") from None
    reader = _Reader(text.strip(), quoted)
    term = reader.read(tree.body, 0)
    return Expression(text.strip(), term, tuple(reader.names), tuple(reader.categories))


class _Reader:
    """Translation of a syntax tree into functions, with the names that occur."""

    def __init__(self, text: str, quoted: Mapping[str, str]):
        self.text, self.quoted = text, quoted
        self.names: list[str] = []
        self.categories: list[str] = []

    def read(self, node: ast.AST, depth: int) -> Term:
        """Return the function of a node."""
        if depth > MAX_DEPTH:
            raise ProblemError(f"the expression {self.text[:60]!r}… is nested more than {MAX_DEPTH} times")
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return self._number(node.value)
        if isinstance(node, ast.Name):
            return self._name(self.quoted.get(node.id, node.id), is_quoted=node.id in self.quoted)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            operator, left, right = (
                OPERATORS[type(node.op)],
                self.read(node.left, depth + 1),
                self.read(node.right, depth + 1),
            )
            return lambda values: operator(left(values), right(values))
        if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
            sign, inner = OPERATORS[type(node.op)], self.read(node.operand, depth + 1)
            return lambda values: sign(inner(values))
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        shown = ast.unparse(node) if isinstance(node, ast.expr) else self.text
        raise ProblemError(
            f"{self.text!r}: {shown!r} is not supported; expected numbers, names, + - * / ** and functions"
        )

    def _number(self, value: float) -> Term:
        try:
            number = np.float64(value)
        except OverflowError:
            raise ProblemError(f"{self.text!r}: a number is too large") from None
        return lambda values: number

    def _name(self, name: str, is_quoted: bool = False) -> Term:
        if name in CONSTANTS and not is_quoted:
            constant = np.float64(CONSTANTS[name])
            return lambda values: constant
        if name in FUNCTIONS and not is_quoted:
            raise ProblemError(f"{self.text!r}: {name} is a function and needs an argument, as in {name}(x)")
        if name not in self.names:
            self.names.append(name)
        return lambda values: values[name]

    def _call(self, node: ast.Call, depth: int) -> Term:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise ProblemError(f"{self.text!r}: {name} takes plain arguments only")
        if name == CATEGORY:
            return self._category(node)
        if name not in FUNCTIONS:
            near = difflib.get_close_matches(name, FUNCTIONS, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ProblemError(
                f"{self.text!r}: there is no function {name}{hint}; known are {', '.join(sorted(FUNCTIONS))}"
            )
        function, n = FUNCTIONS[name]
        if len(node.args) != n:
            raise ProblemError(f"{self.text!r}: {name} takes {n} argument{'s' * (n > 1)}, not {len(node.args)}")
        arguments = [self.read(argument, depth + 1) for argument in node.args]
        return lambda values: function(*(argument(values) for argument in arguments))

    def _category(self, node: ast.Call) -> Term:
        if len(node.args) != 1 or not isinstance(node.args[0], ast.Name):
            raise ProblemError(f"{self.text!r}: C takes the name of a column, as in C(group)")
        name = self.quoted.get(node.args[0].id, node.args[0].id)
        if name in self.categories:
            raise ProblemError(f"{self.text!r}: C({name}) occurs twice")
        self.categories.append(name)
        return lambda values: values[f"C({name})"](values)


def category_term(column: str, labels: Sequence[str], levels: Sequence[str]) -> Term:
    """Return the sum of the parameters of all levels but the first, each for the observations of its level."""
    parts = [
        (category_parameter(column, level), np.array([x == level for x in labels], dtype=float)) for level in levels[1:]
    ]

    def term(values: Values) -> Any:
        total = np.zeros(len(labels))
        for name, mask in parts:
            total = total + values[name] * mask
        return total

    return term
