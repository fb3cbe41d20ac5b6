"""Nests of tuples, lists and dicts: flattening to leaves and rebuilding."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from meta.records import record

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Classes = type | tuple[type, ...]


@record
class Tree:
    """The structure of a nest: the container of each node, and the values that are not leaves.

    kind: "leaf" (the next leaf), "static" (the plain value `value`), "tuple", "list", "namedtuple" (of the class
        `value`) or "dict" (with `keys`). Subclasses of dict and list are rebuilt as dict and list.
    """

    kind: str
    children: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] = ()
    value: Any = None

    def build(self, leaves: Iterator[Any]) -> Any:
        """The nest with the leaves inserted in order."""
        if self.kind == "leaf":
            return next(leaves)
        if self.kind == "static":
            return self.value
        items = [child.build(leaves) for child in self.children]
        if self.kind == "dict":
            return dict(zip(self.keys, items, strict=True))
        if self.kind == "namedtuple":
            return self.value(*items)
        return tuple(items) if self.kind == "tuple" else items

    def count(self) -> int:
        """The number of leaves."""
        return 1 if self.kind == "leaf" else sum(child.count() for child in self.children)

    def statics(self) -> Iterator[Any]:
        """The plain values of the nest, in order."""
        if self.kind == "static":
            yield self.value
        for child in self.children:
            yield from child.statics()

    def exact(self) -> tuple[Tree, str]:
        """A key for the nest. Trees with 1 and True, or with 0.0 and -0.0, are equal, but not the text of the two."""
        return self, repr([*self.statics()])


def is_tuple(value: object) -> TypeIs[tuple[Any, ...]]:
    """Whether it is a tuple, for type checkers: `isinstance` leaves them without the types of the items."""
    return isinstance(value, tuple)


def is_sequence(value: object) -> TypeIs[tuple[Any, ...] | list[Any]]:
    """Whether it is a tuple or a list."""
    return isinstance(value, (tuple, list))


def is_dict(value: object) -> TypeIs[dict[Any, Any]]:
    """Whether it is a dict."""
    return isinstance(value, dict)


def leaves_of(value: object) -> Iterator[Any]:
    """The leaves of a nest of tuples and lists, in order; any other value is one leaf."""
    if is_sequence(value):
        for item in value:
            yield from leaves_of(item)
    else:
        yield value


def with_leaves(value: object, leaves: Sequence[Any]) -> Any:
    """Nested tuples of the structure of `value`, a nest of tuples and lists, with other leaves, given in order."""
    return _filled(value, iter(leaves))


def _filled(value: object, leaves: Iterator[Any]) -> Any:
    if is_sequence(value):
        return tuple([_filled(item, leaves) for item in value])
    return next(leaves)


def named_leaves(
    value: object, classes: Classes | None = None, name: str = "", widest: int = sys.maxsize
) -> Iterator[tuple[str, Any]]:
    """The leaves of a nest of tuples, lists and dicts, in order, each with its path (`x.0.weight`).

    classes: the classes of leaves, by default every class but the containers.
    widest: number of items above which a container is passed over."""
    is_leaf = classes is not None and isinstance(value, classes)
    container = None if is_leaf else _items(value)
    if is_leaf or (classes is None and container is None):
        yield name, value
    if container is not None and len(container[1]) <= widest:
        for key, item in container[1]:
            yield from named_leaves(item, classes, child_path(name, key), widest)


def flatten(value: object, classes: Classes, name: str = "") -> tuple[list[tuple[str, Any]], Tree]:
    """The `named_leaves` of `value`, and the tree that rebuilds the nest.

    The tree stores values that are neither leaves nor containers."""
    if isinstance(value, classes):
        return [(name, value)], Tree("leaf")
    container = _items(value)
    if container is None:
        return [], Tree("static", value=value)
    kind, items = container
    leaves: list[tuple[str, Any]] = []
    children: list[Tree] = []
    for key, item in items:
        inner, child = flatten(item, classes, child_path(name, key))
        leaves += inner
        children.append(child)
    keys = tuple(key for key, _ in items) if kind == "dict" else ()
    return leaves, Tree(kind, tuple(children), keys, type(value) if kind == "namedtuple" else None)


def child_path(name: str, key: object) -> str:
    """The path of an item of the container at path `name`, "" for the nest itself."""
    return f"{name}.{key}" if name else str(key)


def _items(value: object) -> tuple[str, list[tuple[Any, Any]]] | None:
    """The kind of a container and its items by key; None for any other value."""
    if isinstance(value, dict):
        return "dict", list(value.items())  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, tuple):
        fields: Any = getattr(value, "_fields", None)  # pyright: ignore[reportUnknownArgumentType]
        items: list[Any] = list(zip(fields or range(len(value)), value, strict=True))  # pyright: ignore[reportUnknownArgumentType]
        return "namedtuple" if fields is not None else "tuple", items
    if isinstance(value, list):
        return "list", list(enumerate(value))  # pyright: ignore[reportUnknownArgumentType]
    return None


def paired(targets: Iterable[Any], values: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Each target with its value, lists of targets item by item; without pairs that lack one of the two."""
    for target, value in zip(targets, values, strict=True):
        if target is None or value is None:
            continue
        if target.__class__ is list:
            yield from paired(target, value)
        else:
            yield target, value
