"""Nests of tuples, lists and dicts: taken apart into leaves, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tree:
    """The shape of a nest: what kind of container each node is, and whether a leaf is a tensor or a plain value.

    kind: "leaf" (the next leaf), "static" (`value` itself), "tuple", "list" or "dict" (with `keys`).
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
        return tuple(built) if self.kind == "tuple" else built


def flatten(value: Any, is_leaf: Callable[[Any], bool], name: str = "") -> tuple[list[tuple[str, Any]], Tree]:
    """The leaves of `value`, each with its path (`x.0.weight`), and the tree to put them back.

    Values that are neither leaves nor containers are kept in the tree as they are."""
    if is_leaf(value):
        return [(name, value)], Tree("leaf")
    if isinstance(value, dict):
        items = {str(k): v for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return _flatten_items("dict", tuple(value), items, is_leaf, name)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, (tuple, list)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return _flatten_items(kind, (), {str(i): v for i, v in enumerate(value)}, is_leaf, name)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return [], Tree("static", value=value)


def _flatten_items(
    kind: str, keys: tuple[Any, ...], items: dict[str, Any], is_leaf: Callable[[Any], bool], name: str
) -> tuple[list[tuple[str, Any]], Tree]:
    leaves: list[tuple[str, Any]] = []
    children: list[Tree] = []
    for key, item in items.items():
        found, child = flatten(item, is_leaf, f"{name}.{key}" if name else key)
        leaves += found
        children.append(child)
    return leaves, Tree(kind, tuple(children), keys)
