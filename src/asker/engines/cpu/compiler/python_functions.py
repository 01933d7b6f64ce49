"""Python functions that are compiled from their source, in the Python subset of `llvm.py`.

    @compiled
    def add_up(x, total):
        for k in range(len(x)):
            total[0] += x[k]

A function may call other compiled functions and use numeric constants of its module.  A parameter that is annotated
with a named tuple of arrays is expanded to its fields.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from asker.engines.cpu.compiler.compile import Compiled
from asker.engines.cpu.compiler.expressions import CONTRACT, REASSOCIATE


def compiled(function: Callable[..., Any]) -> Any:
    """Compile the decorated function.  Sums may be reassociated, so that they are vectorised."""
    return Function(function)


class Function(Compiled):
    """A compiled Python function."""

    fast = CONTRACT + REASSOCIATE

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.python, self.name, self.__doc__ = function, function.__name__, function.__doc__

    def __call__(self, *arguments: Any) -> int:
        return self.run(*_flat(arguments))

    @cached_property
    def source(self) -> str:  # type: ignore[override]
        """The source of all functions and constants it uses, then its own; named tuples are expanded to arrays."""
        parts: dict[str, str] = {}
        self._add_to(parts)
        return "\n".join(parts.values())

    def _add_to(self, parts: dict[str, str]) -> None:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(self.python))).body
        assert isinstance(tree, ast.FunctionDef)
        known, records = self.python.__globals__, {}
        for parameter in tree.args.args:
            fields = getattr(_named(parameter.annotation, known), "_fields", None)
            if fields is not None:
                records[parameter.arg] = fields
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id not in parts and node.id in known:
                value = known[node.id]
                if isinstance(value, Function):
                    value._add_to(parts)
                elif isinstance(value, int | float):
                    parts[node.id] = f"{node.id} = {value!r}"
        tree.decorator_list, tree.returns = [], None
        parts[self.name] = ast.unparse(ast.fix_missing_locations(_ExpandRecords(records).visit(tree)))


def _named(annotation: ast.expr | None, known: dict[str, Any]) -> Any:
    return known.get(annotation.id) if isinstance(annotation, ast.Name) else None


def _flat(arguments: tuple[Any, ...]) -> Iterator[Any]:
    """Expand named tuples to their arrays, and convert NumPy scalars to Python numbers."""
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from _flat(argument)
        else:
            yield argument.item() if hasattr(argument, "item") and not argument.shape else argument


class _ExpandRecords(ast.NodeTransformer):
    """Replace a named tuple by its fields: `F.first` becomes F_first."""

    def __init__(self, records: dict[str, tuple[str, ...]]):
        self.records = records

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        node.args = [ast.arg(name) for argument in node.args for name in self._names(argument.arg)]
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.args = [part for argument in node.args for part in self._arguments(argument)]
        return node

    def _arguments(self, argument: ast.expr) -> list[ast.expr]:
        if not isinstance(argument, ast.Name):
            return [argument]
        return [ast.Name(name, ast.Load()) for name in self._names(argument.id)]

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.records:
            return ast.Name(f"{node.value.id}_{node.attr}", node.ctx)
        return node

    def _names(self, name: str) -> list[str]:
        return [f"{name}_{field}" for field in self.records[name]] if name in self.records else [name]
