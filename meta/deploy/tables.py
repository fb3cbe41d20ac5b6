"""The tables of a program as C: tensors in slots, their sizes, and the arguments of kernels.

A slot is memory that a program knows when it runs: the arena, an argument, a result, a tensor of symbolic size. Views
are tensors of a shape and dtype in a slot. meta/deploy/runtime/meta_runtime.h has their form in C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any, Final

from meta.dtype import itemsize
from meta.errors import NotSupportedError
from meta.records import mutable, record

_CODES: Final = {"bool": 6, "uint": 1, "int": 0, "float": 2, "bfloat": 4}
"""DLPack's numbers of kinds of dtypes."""


def dtype_code(dtype: str) -> tuple[int, int]:
    """DLPack's number of the kind of a dtype, and its bits."""
    return _CODES[dtype.rstrip("0123456789")], 8 * itemsize(dtype)


@record
class SlotPlace:
    """Memory of a tensor. frame: the function whose part of the arena the offset counts from, "" for other slots."""

    slot: int
    offset: int = 0
    frame: str = ""


@record
class View:
    """A tensor. shape: the place of its sizes in the table of sizes.  ndim: the number of axes."""

    place: SlotPlace
    shape: int
    ndim: int
    dtype: str


@mutable(eq=False)
class TensorTables:
    """views: view 0 is none.  arguments: a view, or ~n for number n of `sizes`.  opens: whether runs compute sizes."""

    views: list[View] = field(default_factory=lambda: [View(SlotPlace(0), 0, 0, "bool")])
    slots: int = 1
    sizes: list[int] = field(default_factory=lambda: [0])
    arguments: list[int] = field(default_factory=list[int])
    opens: bool = False
    _shapes: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    _views: dict[View, int] = field(default_factory=dict[View, int])

    def slot(self) -> int:
        """A new slot."""
        self.slots += 1
        return self.slots - 1

    def view(self, place: SlotPlace, shape: int, ndim: int, dtype: str) -> int:
        """The number of a view."""
        view = View(place, shape, ndim, dtype)
        if view not in self._views:
            self._views[view] = len(self.views)
            self.views.append(view)
        return self._views[view]

    def static_shape(self, shape: tuple[int, ...]) -> int:
        """The place of sizes that are known; also of a number."""
        if shape not in self._shapes:
            self._shapes[shape] = self.cells(shape)
        return self._shapes[shape]

    def cells(self, values: Sequence[int]) -> int:
        """The place of new sizes."""
        self.sizes += values or (0,)
        return len(self.sizes) - max(len(values), 1)

    def text(self, bases: Mapping[str, int]) -> str:
        """The tables in C. bases: where the frame of each function starts in the arena."""
        following, first = [0] * len(self.views), [0] * self.slots
        for i, view in reversed(list(enumerate(self.views))[1:]):
            following[i], first[view.place.slot] = first[view.place.slot], i
        records: list[str] = []
        for view, following_view in zip(self.views, following, strict=True):
            offset = view.place.offset + bases.get(view.place.frame, 0)
            code, bits = dtype_code(view.dtype)
            row = (offset, view.place.slot, following_view, view.shape, view.ndim, code, bits)
            records.append(f"{{{', '.join(map(str, row))}}}")
        return "\n".join(
            [
                array("uint32_t", "slots", map(str, first)),
                array("meta_view_record", "views", records),
                array("int32_t", "arguments", map(str, self.arguments or [0])),
                array("int64_t", "sizes", map(number, self.sizes)),
            ]
        )


def number(value: int) -> str:
    """A 64-bit integer in C."""
    return f"INT64_C({value})" if abs(value) >= 1 << 31 else str(value)


def array(kind: str, name: str, values: Any, *, qualifier: str = "static const") -> str:
    """An array in C, in lines of at most 120 characters."""
    lines: list[str] = [""]
    for value in values:
        if len(lines[-1]) + len(value) > 116:
            lines.append("")
        lines[-1] += f" {value},"
    return "\n ".join([f"{qualifier} {kind} {name}[] = {{", *lines]) + "\n};"


def tensor_bytes(shape: Sequence[Any], dtype: str) -> int | None:
    """The bytes of a tensor, None if its size is symbolic."""
    return prod(shape) * itemsize(dtype) if all(isinstance(d, int) for d in shape) else None


def unsupported(problem: str, expected: str, remedy: str = "") -> NotSupportedError:
    return NotSupportedError("deploy", problem, expected, remedy)
