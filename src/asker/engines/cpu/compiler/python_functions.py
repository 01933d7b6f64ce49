"""Python functions that are compiled from their own text: those in the small language of `llvm.py`.

    @compiled
    def add_up(x, total):
        for k in range(len(x)):
            total[0] += x[k]

A function may call others that are compiled, and use numbers of its module.  A parameter whose annotation is a named
tuple of arrays stands for all of them.
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
    """A decorator.  Sums may be taken in another order, so that they are vectorised."""
    return Function(function)


class Function(Compiled):
    """A function in the small language."""

    fast = CONTRACT + REASSOCIATE

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.python, self.name, self.__doc__ = function, function.__name__, function.__doc__

    def __call__(self, *arguments: Any) -> int:
        return self.run(*_flat(arguments))

    @cached_property
    def source(self) -> str:  # type: ignore[override]
        """Its text behind those of all that it needs; records are told apart into arrays."""
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
        parts[self.name] = ast.unparse(ast.fix_missing_locations(_Parted(records).visit(tree)))


def _named(annotation: ast.expr | None, known: dict[str, Any]) -> Any:
    return known.get(annotation.id) if isinstance(annotation, ast.Name) else None


def _flat(arguments: tuple[Any, ...]) -> Iterator[Any]:
    """The arrays of named tuples one after the other, and whole numbers as Python's."""
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from _flat(argument)
        else:
            yield argument.item() if hasattr(argument, "item") and not argument.shape else argument


class _Parted(ast.NodeTransformer):
    """In place of a record, its fields: `F.first` is called F_first."""

    def __init__(self, records: dict[str, tuple[str, ...]]):
        self.records = records

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        node.args = [ast.arg(name) for given in node.args for name in self._names(given.arg)]
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.args = [part for given in node.args for part in self._arguments(given)]
        return node

    def _arguments(self, given: ast.expr) -> list[ast.expr]:
        return (
            [ast.Name(name, ast.Load()) for name in self._names(given.id)] if isinstance(given, ast.Name) else [given]
        )

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.records:
            return ast.Name(f"{node.value.id}_{node.attr}", node.ctx)
        return node

    def _names(self, name: str) -> list[str]:
        return [f"{name}_{field}" for field in self.records[name]] if name in self.records else [name]
