"""Parts and aliases of arrays. Parts are arrays that hold a copy of elements of another array, as `x[0]` and `x.T` do.

Memory is compact, so a part is no view: a write to it would not reach the array that it comes from, unlike in NumPy and
torch. While that array lives, such writes raise an error instead (see docs/semantics.md).

Aliases: tensors of a trace, or of a transformation, that are views of one memory. Such tensors are values, without
memory, so a write to one replaces its value. Their group says which others follow: all get the new values, and members
of the same history, which are differentiable views of each other, the gradient as well. An array has its memory itself;
in a trace it joins a group with its views.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from sys import getrefcount
from typing import Any, Protocol

from meta.errors import NotSupportedError
from meta.locks import new_lock


class Writes(list[int]):
    """How often a memory was written in place, as its only item; the arrays over one memory share it."""

    __slots__ = ("__weakref__",)


class PartWrites(Writes):
    """The count of a part's memory. origin: the count of the memory that the elements come from."""

    __slots__ = ("origin",)

    origin: weakref.ref[Any]


class Counted(Protocol):
    """An array that may have a count of its memory's writes."""

    _version: list[int] | None


_lock = new_lock("parts")


def shared_writes(x: Counted) -> list[int]:
    """The count of in-place writes of the memory of `x`, for another array over the same memory."""
    writes = x._version
    if writes is None:
        with _lock:  # two threads that alias one array must agree on its count
            writes = x._version
            if writes is None:
                writes = x._version = Writes((0,))
    return writes


def mark_part(part: Any, base: Any) -> Any:
    """Remember that `part`, an array or a traced symbol, holds a copy of elements of `base`; returns `part`."""
    if not hasattr(part, "_version"):
        group = base.aliases if hasattr(base.__class__, "aliases") else None
        part.origin = part_origin(base) or weakref.ref(group or base)
        return part
    marked = PartWrites((0,))
    marked.origin = part_origin(base) or weakref.ref(shared_writes(base))
    part._version = marked
    return part


def part_origin(x: Any) -> weakref.ref[Any] | None:
    """A reference to the array that the part `x` was copied from; None if that was freed, or `x` is not a part."""
    origin = x.origin if hasattr(x.__class__, "aliases") else getattr(x._version, "origin", None)
    return origin if origin is not None and origin() is not None else None


def is_part(x: object) -> bool:
    """Whether `x` holds a copy of elements of an array that lives."""
    return part_origin(x) is not None


def check_whole(op: str, x: Any) -> None:
    """Raise NotSupportedError for a write to a part."""
    if is_part(x):
        raise NotSupportedError(
            op,
            f"the array of shape {x.shape} is a copy of elements of another array, which the write would not reach",
            "writes to that array, or to a copy with a name",
            "write x[0, 1] = value for x[0][1] = value; or part = x[0].copy(), and write to part",
        )


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


class _Probe:
    """Counts the references to the operand of an in-place operator, as arrays see them, for a result of indexing."""

    count = 0

    def __getitem__(self, index: int) -> _Probe:
        return _Probe()

    def __setitem__(self, index: int, value: object) -> None: ...

    def __iadd__(self, other: int) -> _Probe:
        return self._in_place(None, other)

    def _in_place(self, function: object, other: object) -> _Probe:
        _Probe.count = getrefcount(self)
        return self


_probe = _Probe()
_probe[0] += 1
TEMPORARY = _Probe.count
"""References to the `x[0]` of `x[0] += 1`, as `getrefcount(self)` in `_in_place` counts them; Python assigns the result
to `x[0]`. A part with a name has more."""
