"""Copies of the rows that describe an operator in a file, under another name.

A row is a statement `standard_unary("tanh", ...)` or `compute("tanh")(function)`, a function below a decorator
`@compute("tanh")`, an entry `"tanh": ...` of a table, or an element `Sample("tanh", ...)` of a list.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Insertion:
    """Text to insert into a file at a character position."""

    position: int
    text: str


@dataclass(frozen=True, slots=True)
class _Row:
    """A row. name: of its operator.  first, last: its lines.  node: the syntax of the row, in a table of the value.
    is_entry: whether it is an entry of a table."""

    name: str
    first: int
    last: int
    node: ast.AST
    is_entry: bool = False


def copies(source: str, other: str, name: str, callees: Sequence[str] = ()) -> list[Insertion]:
    """The rows of operator `other` in a file's `source`, as rows of `name` at their places.

    callees: the beginnings of the names of the functions whose calls are rows; any function if empty."""
    lines = source.splitlines(keepends=True)
    out: list[Insertion] = []
    for rows in _groups(ast.parse(source), tuple(callees)):
        for row in rows:
            if row.name == other:
                out.append(_copy(lines, rows, row, name))
    return out


def names_in(source: str) -> set[str]:
    """The names that a module defines or imports at its top level."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        else:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names


def insert(source: str, insertions: Sequence[Insertion]) -> tuple[str, list[int]]:
    """The source with the texts inserted, and for each the number of its first line that is not blank."""
    order = sorted(range(len(insertions)), key=lambda i: insertions[i].position)
    out, end = "", 0
    numbers = [0] * len(insertions)
    for i in order:
        text = insertions[i].text
        out += source[end : insertions[i].position]
        end = insertions[i].position
        numbers[i] = (out + text[: len(text) - len(text.lstrip())]).count("\n") + 1
        out += text
    return out + source[end:], numbers


def line_position(lines: Sequence[str], after: int) -> int:
    """The character position at the end of a file's line number `after`; lines with their line ends."""
    return sum(map(len, lines[:after]))


def _groups(tree: ast.Module, callees: tuple[str, ...]) -> Iterator[list[_Row]]:
    """The rows of a module in groups: adjacent statements, one table, one list, one function."""
    run: list[_Row] = []
    for node in tree.body:
        row = _statement(node, callees)
        if row is not None and (not run or run[-1].last + 1 == row.first):
            run.append(row)
            continue
        if run:
            yield run
        run = [row] if row is not None else []
        if isinstance(node, ast.FunctionDef):
            yield from ([_Row(d, _first(node), node.end_lineno or 0, node)] for d in _decorated(node, callees))
        yield from _tables(node, callees)
    if run:
        yield run


def _statement(node: ast.stmt, callees: tuple[str, ...]) -> _Row | None:
    """The row of a statement that is a call with an operator's name."""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Call):
        call = call.func
    name = _first_argument(call, callees)
    return None if name is None else _Row(name, node.lineno, node.end_lineno or 0, node)


def _first_argument(call: ast.AST | None, callees: tuple[str, ...]) -> str | None:
    """The string that a call has as its first argument."""
    if not isinstance(call, ast.Call) or not call.args:
        return None
    first, function = call.args[0], call.func
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return None
    callee = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    return first.value if not callees or callee.startswith(callees) else None


def _first(node: ast.FunctionDef) -> int:
    return min(d.lineno for d in node.decorator_list)


def _decorated(node: ast.FunctionDef, callees: tuple[str, ...]) -> list[str]:
    """The operators that the decorators of a function name."""
    return [name for d in node.decorator_list if (name := _first_argument(d, callees)) is not None]


def _tables(node: ast.stmt, callees: tuple[str, ...]) -> Iterator[list[_Row]]:
    """The rows of the tables and lists of a statement at module level."""
    value = getattr(node, "value", None)
    tables = [value, *value.args] if isinstance(value, ast.Call) else [value]
    for table in tables:
        if isinstance(table, ast.Dict):
            yield [
                _Row(key.value, key.lineno, item.end_lineno or 0, item, is_entry=True)
                for key, item in zip(table.keys, table.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
        elif isinstance(table, ast.List):
            elements = [(_first_argument(_repeated(item), callees), item) for item in table.elts]
            yield [_Row(n, item.lineno, item.end_lineno or 0, item) for n, item in elements if n is not None]


def _repeated(node: ast.expr) -> ast.expr:
    """The call in an element `*(call for ...)` of a list; any other element itself."""
    generator = node.value if isinstance(node, ast.Starred) else None
    return generator.elt if isinstance(generator, (ast.GeneratorExp, ast.ListComp)) else node


def _place(rows: Sequence[_Row], row: _Row, name: str) -> int:
    """The line that a row for `name` follows: where it keeps rows in order that are in order, else after `row`."""
    names = [r.name for r in rows]
    if names != sorted(names) or len(set(names)) < len(names):
        return row.last
    before = [r for r in rows if r.name < name]
    return before[-1].last if before else rows[0].first - 1


def _copy(lines: Sequence[str], rows: Sequence[_Row], row: _Row, name: str) -> Insertion:
    """A row with its operator's name replaced, at its place."""
    node = row.node
    if isinstance(node, ast.FunctionDef):
        return Insertion(line_position(lines, row.last), "\n\n" + _function(lines, node, row.name, name))
    if isinstance(node, ast.stmt):
        text = _renamed("".join(lines[row.first - 1 : row.last]), row.name, name)
        return Insertion(line_position(lines, _place(rows, row, name)), text)
    segment = ast.get_source_segment("".join(lines), node) or ""  # type: ignore[arg-type]
    text = f'"{name}": {segment}' if row.is_entry else _renamed(segment, row.name, name)
    first = lines[row.first - 1]
    own_line = first.lstrip().startswith(('"', "'") if row.is_entry else segment.split("(")[0])
    if own_line and lines[row.last - 1].rstrip().endswith(","):
        indent = first[: len(first) - len(first.lstrip())]
        return Insertion(line_position(lines, _place(rows, row, name)), f"{indent}{text},\n")
    last = lines[row.last - 1].encode()[: node.end_col_offset].decode()  # type: ignore[attr-defined]
    return Insertion(line_position(lines, row.last - 1) + len(last), f", {text}")


_UNIQUE = re.compile(r',\s*(?:operator="\w+"|aliases=\([^)]*\))(?=\s*[,)])')
"""Keywords of a declaration that two operators cannot share: Python's operator and the other names."""


def _renamed(text: str, other: str, name: str) -> str:
    """The source with the first string that is an operator's name replaced, and without what only one can have."""
    return _UNIQUE.sub("", text.replace(f'"{other}"', f'"{name}"', 1))


def _function(lines: Sequence[str], node: ast.FunctionDef, other: str, name: str) -> str:
    """A decorated function under another name, with the decorator that names `other`."""
    decorator = next(d for d in node.decorator_list if _first_argument(d, ()) == other)
    head = _renamed("".join(lines[decorator.lineno - 1 : decorator.end_lineno]), other, name)
    return head + "".join(lines[node.lineno - 1 : node.end_lineno]).replace(f"def {node.name}(", f"def {name}(", 1)
