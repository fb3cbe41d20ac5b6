"""Signatures and nests of arguments and results as JSON."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Sequence
from typing import Any, Final, cast

from meta.errors import FileError, NotSupportedError
from meta.limits import MAX_DEPTH
from meta.tree import Tree, flatten

_PLAIN: Final = (bool, int, float, str, type(None))
_CONTAINERS: Final = ("tuple", "list", "dict")
_ABSENT: Final = inspect.Parameter.empty


def encode_tree(tree: Tree, what: str, depth: int = 0) -> Any:
    """JSON of a tree. Raises NotSupportedError, naming `what`, for values and containers that JSON cannot hold."""
    if depth > MAX_DEPTH:
        raise _unsaved(f"{what} nests deeper than {MAX_DEPTH}", "small nests")
    if tree.kind == "leaf":
        return "leaf"
    if tree.kind == "static":
        return {"static": encode_plain(tree.value, what)}
    if tree.kind not in _CONTAINERS:
        raise _unsaved(f"{what} has a {tree.value.__name__}", "tuples, lists and dicts")
    children = [encode_tree(child, what, depth + 1) for child in tree.children]
    keys = [encode_plain(key, what) for key in tree.keys]
    return {tree.kind: [keys, children] if tree.kind == "dict" else children}


def decode_tree(value: Any, depth: int = 0) -> Tree:
    """The tree of its JSON. Raises FileError for other JSON."""
    if value == "leaf":
        return Tree("leaf")
    items = cast("dict[str, Any]", value)
    if depth > MAX_DEPTH or not isinstance(value, dict) or len(items) != 1:
        raise malformed(value)
    ((kind, content),) = items.items()
    if kind == "static":
        return Tree("static", value=decode_plain(content))
    keys: Sequence[Any] = ()
    if kind == "dict" and isinstance(content, list) and len(cast("list[Any]", content)) == 2:
        keys, content = cast("list[Any]", content)
    if kind not in _CONTAINERS or not isinstance(content, list) or not isinstance(keys, (list, tuple)):
        raise malformed(value)
    children = cast("list[Any]", content)
    if kind == "dict" and len(keys) != len(children):
        raise malformed(value)
    return Tree(kind, tuple(decode_tree(c, depth + 1) for c in children), tuple(map(decode_plain, keys)))


def encode_plain(value: Any, what: str) -> Any:
    """JSON of a plain value. Raises NotSupportedError, naming `what`, for others."""
    if not isinstance(value, _PLAIN):
        raise _unsaved(f"{what} has a {type(value).__name__}", "arrays, numbers, strings and None")
    return {"float": str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def decode_plain(value: Any) -> Any:
    if isinstance(value, dict) and list(value.values())[0:1] in (["nan"], ["inf"], ["-inf"]) and "float" in value:  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        return float(value["float"])  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(value, _PLAIN):
        raise malformed(value)
    return value


def encode_signature(signature: inspect.Signature) -> list[Any]:
    """JSON of the parameters. A default that JSON cannot hold is left out: calls have to pass the argument."""
    out: list[Any] = []
    for p in signature.parameters.values():
        default: list[Any] = []
        if p.default is not _ABSENT:
            with contextlib.suppress(NotSupportedError):
                default = [encode_tree(flatten(p.default, ())[1], p.name)]
        out.append([p.name, int(p.kind), default])
    return out


def decode_signature(value: Any) -> inspect.Signature:
    """The signature of its JSON. Raises FileError for other JSON."""
    try:
        parameters = [
            inspect.Parameter(
                name, inspect._ParameterKind(kind), default=decode_tree(d[0]).build(iter(())) if d else _ABSENT
            )
            for name, kind, d in value
        ]
        return inspect.Signature(parameters)
    except (TypeError, ValueError, IndexError, KeyError, StopIteration) as error:
        raise malformed(value) from error


def malformed(value: Any) -> FileError:
    """The error for a description that `Executor.save` does not write."""
    return FileError("load", f"the program is described by {value!r:.80}", "a file that Executor.save wrote")


def _unsaved(problem: str, expected: str) -> NotSupportedError:
    return NotSupportedError("save", problem, expected, "trace a function that takes and returns these")
