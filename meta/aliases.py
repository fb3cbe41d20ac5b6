"""Aliases: tensors of a trace, or of a transformation, that are views of one memory.

Such tensors are values, without memory, so a write to one replaces its value. The group says which others follow: all
get the new values, and members of the same history, which are differentiable views of each other, the gradient as well.
An array has its memory itself; in a trace it joins a group with its views.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any


class AliasGroup:
    """The tensors over one memory, each with its history."""

    __slots__ = ("__weakref__", "_members")

    def __init__(self, first: object) -> None:
        self._members: list[tuple[weakref.ref[Any], object]] = [(weakref.ref(first), object())]

    def add(self, view: object, base: object, same_history: bool) -> None:
        """Add a view of the member `base`."""
        history = self._history(base) if same_history else object()
        self._members = [entry for entry in self._members if entry[0]() is not None]
        self._members.append((weakref.ref(view), history))

    def others(self, x: object) -> Iterator[tuple[Any, bool]]:
        """The other members that live, each with whether it has the history of `x`."""
        history = self._history(x)
        for reference, other in self._members:
            member = reference()
            if member is not None and member is not x:
                yield member, other is history

    def _history(self, x: object) -> object:
        return next(history for reference, history in self._members if reference() is x)


def link(view: Any, base: Any, same_history: bool) -> None:
    """Let `view` share the memory of `base`, both tensors with a group of their own."""
    if base.aliases is None:
        base.aliases = AliasGroup(base)
    base.aliases.add(view, base, same_history)
    view.aliases, view.origin = base.aliases, base.origin
