"""Nests of tuples, lists and dicts: their leaves, and nests rebuilt from leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tree:
    """The shape of a nest: what kind of container each node is, and whether a leaf is a tensor or a plain value.

    kind: "leaf" (the next leaf), "static" (`value` itself), "tuple", "list", "namedtuple" (of the class `value`) or
        "dict" (with `keys`). Subclasses of dict and list come back as dict and list.
    """

    kind: str
    children: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] = ()
    value: Any = None

    def build(self, leaves: Iterator[Any]) -> Any:
        """The nest with `leaves` filled in, in order."""
        if self.kind == "leaf":
            return next(leaves)
        if self.kind == "static":
            return self.value
        built = [child.build(leaves) for child in self.children]
        if self.kind == "dict":
            return dict(zip(self.keys, built, strict=True))
        if self.kind == "namedtuple":
            return self.value(*built)
        return tuple(built) if self.kind == "tuple" else built

    def statics(self) -> Iterator[Any]:
        """The plain values in the nest, in order."""
        if self.kind == "static":
            yield self.value
        for child in self.children:
            yield from child.statics()


def leaves_of(value: Any) -> Iterator[Any]:
    """What a nest of tuples and lists holds, in order; the value itself when it is neither."""
    if isinstance(value, (tuple, list)):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from leaves_of(item)
    else:
        yield value


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """A nest of tuples and lists with `function` of every leaf, as nested tuples."""
    if isinstance(value, (tuple, list)):
        return tuple([map_leaves(function, item) for item in value])  # pyright: ignore[reportUnknownVariableType]
    return function(value)


def flatten(value: Any, is_leaf: Callable[[Any], bool], name: str = "") -> tuple[list[tuple[str, Any]], Tree]:
    """The leaves of `value`, each with its path (`x.0.weight`), and the tree to put them back.

    Values that are neither leaves nor containers are kept in the tree as they are."""
    if is_leaf(value):
        return [(name, value)], Tree("leaf")
    container = _items(value)
    if container is None:
        return [], Tree("static", value=value)
    kind, items = container
    leaves: list[tuple[str, Any]] = []
    children: list[Tree] = []
    for key, item in items:
        inner, child = flatten(item, is_leaf, f"{name}.{key}" if name else str(key))
        leaves += inner
        children.append(child)
    keys = tuple(key for key, _ in items) if kind == "dict" else ()
    return leaves, Tree(kind, tuple(children), keys, type(value) if kind == "namedtuple" else None)


def _items(value: Any) -> tuple[str, list[tuple[Any, Any]]] | None:
    """The kind of a container and its items by key; None for any other value."""
    if isinstance(value, dict):
        return "dict", list(value.items())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, tuple):
        fields: Any = getattr(value, "_fields", None)  # pyright: ignore[reportUnknownArgumentType]
        items: list[Any] = list(zip(fields or range(len(value)), value, strict=True))  # pyright: ignore[reportUnknownArgumentType]
        return "namedtuple" if fields is not None else "tuple", items
    if isinstance(value, list):
        return "list", list(enumerate(value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return None
