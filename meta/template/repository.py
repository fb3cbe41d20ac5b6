"""Rows of a new operator in the files of this repository, copied from another operator's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path

import meta
from meta.errors import NotSupportedError, RegistryError
from meta.inspect.description import schema_location
from meta.inspect.gradient import TABLE, key_for, line_in_table
from meta.inspect.sources import CHECKOUT, PACKAGE, location
from meta.op.registry import Op, get
from meta.template.statements import Insertion, copies, insert, line_position, names_in


@dataclass(frozen=True, slots=True)
class EditStep:
    """A line to edit, or a file to complete. text: what to do there."""

    location: str
    text: str


def add_operator(name: str, like: str) -> list[EditStep]:
    """Write the rows of operator `name` into the files of the family of operator `like`; each computes the same as in
    `like`. Returns the lines to edit, in the order of the work. The schema is the same as for `like`.

    Raises RegistryError for an invalid or existing name, NotSupportedError where a part of `like` cannot be copied or
    the sources are not a checkout; nothing is written then."""
    check_name(name)
    if name in dir(meta):
        raise RegistryError("op new", f"meta.{name} exists already", "a new name")
    other = get(like)
    if not (CHECKOUT / "tests/python/op/samples").is_dir():
        raise NotSupportedError(name, "the package is installed without its repository", remedy="use --package DIR")
    texts: dict[Path, tuple[str, list[EditStep]]] = {}
    for path, (callees, text) in _files(other).items():
        texts[path] = _extended(path, other, name, callees, text)
    entry = _gradient_entry(other, name)
    source, numbers = insert(TABLE.read_text(encoding="utf-8"), [entry])
    step = EditStep(location(TABLE, numbers[0]), f"the gradient; it is a copy of {like}'s")
    for path, (text, _) in texts.items():
        path.write_text(text, encoding="utf-8")
    TABLE.write_text(source, encoding="utf-8")
    declaration, *rest = (step for _, steps in texts.values() for step in steps)
    schema = schema_location(other.schema)
    shared = (
        [EditStep(schema, f"the schema, which {like} has too: define another for other arguments")] if schema else []
    )
    return [*shared, declaration, step, *rest]


def check_name(name: str) -> None:
    """Raise RegistryError unless an operator can be called `name`."""
    if not name.isidentifier() or iskeyword(name) or name.startswith("_"):
        raise RegistryError("op new", f"an operator cannot be called {name!r}", "a name as Python's, such as 'my_relu'")


def _files(op: Op) -> Mapping[Path, tuple[tuple[str, ...], str]]:
    """File -> functions whose calls are rows, and what to edit in such a row."""
    family = f"{op.family}.py"
    return {
        PACKAGE / "op/declare" / family: (("declare", "standard_"), "the declaration: description, dtypes, facts"),
        PACKAGE / "op/dialect/tvm" / family: ((), "the TE compute"),
        PACKAGE / "op/dialect/reference" / family: ((), "the same in NumPy"),
        CHECKOUT / "tests/python/op/samples" / family: (("Sample",), "the reference and the range of values"),
    }


def _extended(path: Path, other: Op, name: str, callees: tuple[str, ...], text: str) -> tuple[str, list[EditStep]]:
    """A file's text with rows for `name`, and the steps about them."""
    needs_rows = not (other.view and "dialect" in path.parts)
    source = path.read_text(encoding="utf-8")
    insertions = copies(source, other.name, name, callees)
    if not insertions and needs_rows:
        problem = f"the rows of {other.name} in {path.relative_to(CHECKOUT)} are made in a loop or by a helper"
        raise NotSupportedError("op new", problem, "an operator with a row that can be copied", "choose another --like")
    if name in names_in(source) and any(f"def {name}(" in i.text for i in insertions):
        raise RegistryError("op new", f"{path.relative_to(CHECKOUT)} defines '{name}' already", "a new name")
    extended, numbers = insert(source, insertions)
    return extended, [EditStep(location(path, number), text) for number in numbers]


def _gradient_entry(other: Op, name: str) -> Insertion:
    """The entry of `other` in derivatives.yaml under another name, at its place in the section of the family."""
    lines = TABLE.read_text(encoding="utf-8").splitlines(keepends=True)
    where = line_in_table(other.name)
    assert where is not None
    own = int(where.rpartition(":")[2]) - 1
    rest = lines[own].partition(":")[2]
    key = key_for(other.name, lines[own]) or other.name
    rank = next((c for c in "123" if "{rank}" in key and key.replace("{rank}", c) == other.name), "")
    text = f"{name}:{rest}" + "".join(lines[own + 1 : _end(lines, own)])
    after = own
    while not lines[after - 1].startswith("#"):  # the head of the section
        after -= 1
    while after < len(lines) and lines[after][0].isalpha() and lines[after].partition(":")[0] < name:
        after = _end(lines, after)
    return Insertion(line_position(lines, after), text.replace("{rank}", rank))


def _end(lines: list[str], start: int) -> int:
    """The index of the line after the entry that starts at index `start`."""
    end = start + 1
    while end < len(lines) and lines[end].startswith(" "):
        end += 1
    return end
