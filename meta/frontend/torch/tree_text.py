"""The structure of arguments and results in a `.pt2` file: torch's JSON of pytrees, in a string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta.files.strict_json import parse_json
from meta.frontend.torch.fields import bad_file, fields, list_of, text
from meta.limits import MAX_DEPTH
from meta.tree import Tree

_VERSION = 1


def parse_tree(source: Any, where: str) -> Tree:
    """The structure in a string of JSON: tuples, lists and mappings.

    Mappings of other classes are dicts, and everything else with items a tuple: their classes are code, which is not
    imported. where: the place in errors. Raises TorchProgramError for another value."""
    parsed = list_of(_json(text(source, where), where), where)
    if len(parsed) != 2 or parsed[0] != _VERSION:
        raise bad_file(where, f"a structure of version {str(parsed[:1])[:80]}", f"version {_VERSION}")
    return _tree(parsed[1], where, 0)


def _tree(value: object, where: str, depth: int) -> Tree:
    if depth > MAX_DEPTH:
        raise bad_file(where, f"a structure nests deeper than {MAX_DEPTH}")
    each = fields(value, where)
    children = tuple(_tree(child, where, depth + 1) for child in list_of(each.get("children_spec"), where))
    if each.get("type") is None:
        if children:
            raise bad_file(where, "a leaf of a structure has children")
        return Tree("leaf")
    kind = text(each["type"], where)
    if kind in ("builtins.tuple", "builtins.list"):
        return Tree(kind.removeprefix("builtins."), children)
    keys = _keys(each.get("context"), where)
    if keys is not None and len(keys) == len(children) and len(set(keys)) == len(keys):
        return Tree("dict", children, tuple(keys))
    if kind == "builtins.dict":
        raise bad_file(where, f"a dict has {len(children)} values and the keys {keys!r}"[:200], "one key for each")
    return Tree("tuple", children)


def _keys(context: object, where: str) -> Sequence[Any] | None:
    """The keys of a mapping; None for other classes."""
    value = _json(context, where) if isinstance(context, str) else context
    if isinstance(value, dict):
        value = value.get("dict_context")
    if not isinstance(value, list):
        return None
    plain = all(isinstance(key, (str, int)) for key in value)
    return value if plain else None


def _json(source: str, where: str) -> Any:
    try:
        return parse_json(source)
    except ValueError as error:
        raise bad_file(where, f"the structure {source[:40]!r}: {error}"[:200], "JSON") from error
