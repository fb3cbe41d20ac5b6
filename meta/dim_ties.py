"""Ties of symbolic sizes: those that a declaration compares, and so takes for equal; and sizes that a trace compares,
and so takes for unequal."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from threading import local
from typing import Any

from meta.dim_expressions import IntegerLike


class _Unifier(local):
    parent: dict[Any, Any] | None = None


_unifier = _Unifier()


@contextmanager
def unify() -> Generator[dict[Any, Any], None, None]:
    """Inside this scope `same_dim` of two different symbolic sizes is True and ties them together.

    A declaration that runs on fresh symbols in it tells which extents a shape-generic kernel must share."""
    before, _unifier.parent = _unifier.parent, {}
    try:
        yield _unifier.parent
    finally:
        _unifier.parent = before


def find(value: Any, parent: dict[Any, Any]) -> Any:
    """The size that `value` is tied to, `value` itself for others."""
    while isinstance(value, IntegerLike) and value in parent:
        value = parent[value]
    return value


def same_dim(a: Any, b: Any) -> bool:
    """Whether two sizes are equal; inside a `unify` scope, symbolic sizes that may be equal are tied."""
    if a == b:
        return True
    parent = _unifier.parent
    if parent is None or (isinstance(a, int) and isinstance(b, int)):
        return False
    a, b = find(a, parent), find(b, parent)
    if a == b:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    if isinstance(a, int):
        a, b = b, a
    parent[a] = b
    return True


class _Comparisons(local):
    unequal: set[tuple[Any, Any]] | None = None


_comparisons = _Comparisons()


@contextmanager
def recording_unequal() -> Generator[set[tuple[Any, Any]], None, None]:
    """Gives a set that receives the pairs of sizes that `==` calls unequal inside this scope. What is decided there
    holds only for values for which they are."""
    before, _comparisons.unequal = _comparisons.unequal, set()
    try:
        yield _comparisons.unequal
    finally:
        _comparisons.unequal = before


def found_unequal(a: Any, b: Any) -> bool:
    """False, the result of `a == b`, which `recording_unequal` receives."""
    pairs = _comparisons.unequal
    if pairs is not None:
        _comparisons.unequal = None  # a set compares its elements
        pairs.add((a, b))
        _comparisons.unequal = pairs
    return False
