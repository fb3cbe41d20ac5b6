"""Where parts of operators are: `file:line` of functions, and of the rows that name an operator in a file."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package `meta`."""
CHECKOUT = PACKAGE.parent
"""The folder above it: the repository in a checkout, which has the samples and the reference page."""


def location(path: Path | str, line: int) -> str:
    """`path:line`, relative to the working directory for files below it."""
    return f"{shown(path)}:{line}"


def shown(path: Path | str) -> Path:
    """A path relative to the folder of installed packages or to the working directory, if it is below one of them."""
    path = Path(path)
    for folder in path.parents:
        if folder.name in ("site-packages", "dist-packages"):
            return path.relative_to(folder)
    working_folder = Path.cwd()
    return path.relative_to(working_folder) if path.is_absolute() and path.is_relative_to(working_folder) else path


def location_of_function(function: object) -> str | None:
    """`file:line` of a Python function, of a method, or of the function that a wrapper or a partial calls; None for
    others."""
    code = getattr(unwrapped(function), "__code__", None)
    return None if code is None else location(code.co_filename, code.co_firstlineno)


def unwrapped(function: object) -> Any:
    """The function that wrappers and partials call."""
    while True:
        inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        if inner is None or not callable(inner):
            return function
        function = inner


def row(path: Path, name: str, *, callees: tuple[str, ...] = ()) -> str | None:
    """The first place in a file of the package that registers `name`: as the first argument of a decorator or a call,
    as a key of a table, or as a name in a list that a loop goes through, in this order, and the name itself before a
    pattern of names (f"conv{rank}d"); None if there is none.

    callees: the functions whose first argument counts, by the beginnings of their names, besides the calls that are
        statements of the module; all if empty."""
    if not path.exists():
        return None
    places = [
        place
        for place in _named_places(path)
        if re.fullmatch(place.pattern, name)
        and (place.rank or not callees or place.is_statement or place.callee.startswith(callees))
    ]
    best = min(places, key=lambda place: (place.rank, -place.letters, place.line), default=None)
    return location(path, best.line) if best else None


@dataclass(frozen=True, slots=True)
class _Place:
    """A string that could name an operator.

    rank: 0 for the first argument of a call, 1 for a key, 2 for an element of a tuple or list.
    pattern: a regular expression of the names.  letters: how many characters it states.
    callee: the name of the function that is called.  is_statement: whether the call is a statement of the module."""

    rank: int
    pattern: str
    letters: int
    line: int
    callee: str = ""
    is_statement: bool = False


@cache
def _named_places(path: Path) -> tuple[_Place, ...]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tuple(place for statement in tree.body for place in _places(statement))


def _places(statement: ast.stmt) -> Iterator[_Place]:
    """The strings that could name an operator in a statement of a module."""
    variables = _variables(statement)
    called = statement.value if isinstance(statement, ast.Expr) else None
    for node in ast.walk(statement):
        names: list[tuple[int, ast.AST | None]] = []
        if isinstance(node, ast.Call) and node.args:
            names = [(0, node.args[0])]
        elif isinstance(node, ast.Dict):
            names = [(1, key) for key in node.keys]
        elif isinstance(node, (ast.Tuple, ast.List)):
            names = [(2, element) for element in node.elts]
        callee = _callee(node.func) if isinstance(node, ast.Call) else ""
        for rank, name in names:
            pattern, letters = _pattern(name, variables)
            if name is not None and letters:
                yield _Place(rank, pattern, letters, getattr(name, "lineno", 0), callee, node is called)


def _variables(statement: ast.stmt) -> dict[str, ast.expr]:
    """The values that are assigned in a function: `name = f"conv{rank}d"`, `a, b = f"{name}", f"{name}_dx"`."""
    out: dict[str, ast.expr] = {}
    for node in ast.walk(statement) if isinstance(statement, ast.FunctionDef) else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value.elts if isinstance(value, ast.Tuple) else [value]
            if len(targets) == len(values):
                out |= {t.id: v for t, v in zip(targets, values, strict=True) if isinstance(t, ast.Name)}
    return out


def _callee(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _pattern(node: ast.AST | None, variables: Mapping[str, ast.expr]) -> tuple[str, int]:
    """A regular expression of what a string can be, and how many characters it states; ("", 0) for other values.
    An f-string has the patterns of its variables, and any letters in place of other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value), len(node.value)
    if isinstance(node, ast.FormattedValue):
        pattern, letters = _pattern(node.value, variables)
        return (pattern, letters) if letters else (r"\w*", 0)
    if isinstance(node, ast.JoinedStr):
        parts = [_pattern(part, variables) for part in node.values]
        return "".join(pattern for pattern, _ in parts), sum(letters for _, letters in parts)
    if isinstance(node, ast.Name) and node.id in variables:
        return _pattern(variables[node.id], {k: v for k, v in variables.items() if k != node.id})
    return "", 0


def line_of_assignment(path: Path, name: str) -> str | None:
    """`file:line` of the assignment of a module's variable; None if there is none."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return location(path, node.lineno)
    return None


def returned_texts(function: object) -> tuple[str, ...]:
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
