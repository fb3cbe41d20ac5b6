"""Sizes that differ from call to call: which ones the programs of an executor leave open."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import field
from typing import Any, Final

from meta.dim import sym
from meta.errors import user_frame
from meta.ir.type import TensorType
from meta.records import mutable
from meta.tracing.open_sizes import OpenSizes
from meta.tree import Tree

SPECIALISATIONS: Final = 8
"""Programs of one executor for inputs that differ only in sizes, from which on it warns."""
FREQUENT: Final = 64
"""Calls with the same sizes that make them worth a program of their own."""

Key = tuple[Tree, str, tuple[TensorType, ...]]
"""The plain values of a call, their text, and the types of its arrays."""
_Run = Callable[[Sequence[Any]], Any]


class SpecialisationWarning(UserWarning):
    """A program is compiled again and again for inputs of other sizes, which it cannot leave open."""


@mutable
class Specialisations:
    """Which sizes the programs of one executor leave open.

    stated: those that its user names. None lets calls choose: the first call of a kind has a program for its sizes, the
        second one, of other sizes, a program that leaves open what differs. Kernels of exact sizes are often faster, so
        that sizes which come back FREQUENT times get a program of their own.
    shapes: for calls that differ only in sizes, shapes of the inputs that show which ones differ.
    exact: calls with a program for their sizes.  refused: why the sizes of calls cannot be open."""

    name: str
    stated: OpenSizes | None
    shapes: dict[Hashable, list[tuple[Any, ...]]] = field(default_factory=dict[Hashable, list[tuple[Any, ...]]])
    exact: set[Hashable] = field(default_factory=set[Hashable])
    refused: dict[Hashable, str] = field(default_factory=dict[Hashable, str])
    warned: bool = False

    def opened_by(self, key: Key, inputs: Sequence[str], *, opens: bool) -> OpenSizes | None:
        """The sizes that the program of a call leaves open. opens: whether that may be others than in calls before.

        None where an open axis has no elements: functions and operators treat it apart, and so do programs."""
        sizes = self.stated
        if sizes is None and key not in self.exact:
            kind, shapes = _kind(key), tuple(t.shape for t in key[2])
            recorded = self.shapes.setdefault(kind, [])
            axes, grown = _axes(inputs, recorded), _axes(inputs, [*recorded, shapes])
            if kind not in self.refused and (axes == grown or opens) and grown:
                sizes = OpenSizes({x: {axis: sym(name) for axis, name in named.items()} for x, named in grown.items()})
            if not recorded or (kind in self.refused and shapes not in recorded) or (sizes and grown != axes):
                recorded.append(shapes)
        if sizes is not None and sizes.are_empty(key[2], tuple(map(sizes.type_of, inputs, key[2]))):
            sizes = None
        if sizes is None:
            self.exact.add(key)
        return sizes

    def refuse(self, key: Key, reason: object) -> None:
        """Let no call of this kind have open sizes."""
        self.refused[_kind(key)] = str(reason)
        self.exact.add(key)

    def counted(self, run: _Run, key: Key, forget: Callable[[], object]) -> _Run:
        """The call of a program whose sizes calls have opened. forget: for calls after the last that it counts."""
        calls = 0

        def call(inputs: Sequence[Any]) -> Any:
            nonlocal calls
            calls += 1
            if calls == FREQUENT:
                self.exact.add(key)
                forget()
            return run(inputs)

        return call

    def warn(self, key: Key, inputs: Sequence[str]) -> None:
        """Warn once, when there are SPECIALISATIONS programs that differ only in sizes."""
        kind = _kind(key)
        recorded_shapes = self.shapes.get(kind, [])
        if self.warned or len(recorded_shapes) < SPECIALISATIONS or kind not in self.refused:
            return
        self.warned = True
        varying = _varying(inputs, recorded_shapes)
        text = "; ".join(f"axis {axis} of '{name}' was {', '.join(map(str, sizes))}" for name, axis, sizes in varying)
        warnings.warn(
            f"[vm] {self.name} was compiled {len(recorded_shapes)} times, for other sizes each time: {text}; one "
            f"program cannot leave them open: {self.refused[kind]} (called at {user_frame()})",
            SpecialisationWarning,
            stacklevel=2,
        )


def _kind(key: Key) -> Hashable:
    """What calls that differ only in sizes share."""
    return (*key[:2], *((t.ndim, t.dtype, t.device) for t in key[2]))


def _varying(inputs: Sequence[str], recorded_shapes: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, int, Any]]:
    """The inputs and axes whose sizes differ: (name, axis, sizes)."""
    for i, name in enumerate(inputs if recorded_shapes else ()):
        for axis in range(len(recorded_shapes[0][i])):
            sizes = tuple(shapes[i][axis] for shapes in recorded_shapes)
            if len(set(sizes)) > 1:
                yield name, axis, sizes


def _axes(inputs: Sequence[str], recorded_shapes: Sequence[tuple[Any, ...]]) -> dict[str, dict[int, str]]:
    """`dynamic` for the sizes that differ; those that always were equal share a name."""
    letters: dict[tuple[int, ...], str] = {}
    axes: dict[str, dict[int, str]] = {}
    for name, axis, sizes in _varying(inputs, recorded_shapes):
        axes.setdefault(name, {})[axis] = letters.setdefault(sizes, f"n{len(letters) or ''}")
    return axes


# --- checks of open sizes --------------------------------------------------------------------------------------------
