"""Where parts of operators are: `file:line` of functions, and of the rows that name an operator in a file."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package `meta`."""
CHECKOUT = PACKAGE.parent
"""The folder above it: the repository in a checkout, which has the samples and the reference page."""


def location(path: Path | str, line: int) -> str:
    """`path:line`, relative to the working directory for files below it."""
    path = Path(path)
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path
    return f"{shown}:{line}"


def location_of_function(function: Any) -> str | None:
    """`file:line` of a Python function, of a method, or of the function that a wrapper or a partial calls; None for
    others."""
    code = getattr(unwrapped(function), "__code__", None)
    return None if code is None else location(code.co_filename, code.co_firstlineno)


def unwrapped(function: Any) -> Any:
    """The function that wrappers and partials call."""
    while True:
        inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        if inner is None or not callable(inner):
            return function
        function = inner


def row(path: Path, name: str, *, callees: tuple[str, ...] = ()) -> str | None:
    """The first place in a file of the package that registers `name`: as the first argument of a decorator or a call,
    as a key of a table, or as a name in a list that a loop goes through, in this order; None if there is none.

    callees: the functions whose first argument counts, by the beginnings of their names; all if empty."""
    if not path.exists():
        return None
    found: dict[int, int] = {}
    for rank, pattern, callee, line in _named_places(path):
        is_callee = rank or not callees or callee.startswith(callees)
        if is_callee and re.fullmatch(pattern, name):
            found.setdefault(rank, line)
    return location(path, found[min(found)]) if found else None


@cache
def _named_places(path: Path) -> tuple[tuple[int, str, str, int], ...]:
    """(rank, regular expression of the name, name of the called function, line) of every string that could name an
    operator. Rank 0: first argument of a call, 1: key, 2: element of a tuple or list."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tuple(sorted(_places(tree), key=lambda place: place[3]))


def _places(tree: ast.AST) -> Iterator[tuple[int, str, str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            yield from _place(0, node.args[0], _callee(node.func))
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                yield from _place(1, key)
        elif isinstance(node, (ast.Tuple, ast.List)):
            for element in node.elts:
                yield from _place(2, element)


def _callee(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _place(rank: int, node: ast.AST | None, callee: str = "") -> Iterator[tuple[int, str, str, int]]:
    """The place of a string, or of an f-string with a pattern in place of each expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield rank, re.escape(node.value), callee, node.lineno
    elif isinstance(node, ast.JoinedStr):
        parts = [re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"\w*" for p in node.values]
        if any(part != r"\w*" for part in parts):
            yield rank, "".join(parts), callee, node.lineno


def line_of_assignment(path: Path, name: str) -> str | None:
    """`file:line` of the assignment of a module's variable; None if there is none."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return location(path, node.lineno)
    return None


def returned_texts(function: Any) -> tuple[str, ...]:
    """The texts that a function returns, with `{...}` for what a call fills in; none if it has no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(unwrapped(function))))
    except (OSError, TypeError, SyntaxError):
        return ()
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
    texts = [_text(part) for value in values for part in _alternatives(value)]
    return tuple(dict.fromkeys(filter(None, texts)))


def _alternatives(node: ast.expr) -> Iterator[ast.expr]:
    """The operands of `a if condition else b` and of `a or b`."""
    parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else []
    parts = node.values if isinstance(node, ast.BoolOp) else parts
    if not parts:
        yield node
    for part in parts:
        yield from _alternatives(part)


def _text(node: ast.expr) -> str:
    """A string, or an f-string with its expressions in braces; "" for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return ""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
        for part in node.values
        if isinstance(part, (ast.Constant, ast.FormattedValue))
    )
