"""Calls whose arrays share memory: refused where the program overwrites that memory.

A program computes with tensors that are values of their own, in an order of kernels that keeps few bytes alive. If
memory that it overwrites belonged to another argument too, results would depend on that order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence

from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError
from meta.ir.type import TensorType

Check = Callable[[Sequence[NDArray]], None]
"""Takes the inputs of a call; raises ArgumentError."""
Span = tuple[int, int, int]
"""The first address of an array, the one after its last, and the number of its parameter."""


def overlap_check(names: Sequence[str], state: Sequence[NDArray], written: Collection[int]) -> Check | None:
    """A check that nothing a call overwrites is part of another argument; None if the program overwrites nothing.

    names: of the parameters, first the inputs, then the state.  written: the parameters that the program overwrites.
    Raises ArgumentError, as the check does, for arrays of the state that share memory."""
    most_sizes = 1024  # Types of arrays whose bytes are kept.
    if not written:
        return None
    first = len(names) - len(state)
    spans = [(x._data.data_ptr(), x._data.data_ptr() + x.nbytes, i) for i, x in enumerate(state, first) if x.nbytes]
    _refuse_overlaps(spans, written, names)
    everywhere, changing = _Places(spans), _Places([span for span in spans if span[2] in written])
    places = [everywhere if i in written else changing for i in range(first)]
    compares_inputs = first > 1 and min(written) < first
    sizes: dict[TensorType, int] = {}

    def check(inputs: Sequence[NDArray]) -> None:
        spans: list[Span] = []
        for i, x in enumerate(inputs):
            start, size = x._data.data_ptr(), sizes.get(x._type)
            if size is None:
                if len(sizes) >= most_sizes:
                    sizes.clear()
                size = sizes[x._type] = x.nbytes
            place = places[i]
            slot = bisect_left(place.starts, start + size) - 1
            if slot >= 0 and start < place.ends[slot] and size:
                raise _refusal(names, i, place.parameters[slot])
            if size:
                spans.append((start, start + size, i))
        if compares_inputs:
            _refuse_overlaps(spans, written, names)

    return check


class _Places:
    """Addresses that arrays cover, as sorted ranges without overlaps. parameters: one of those in each range."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.parameters: list[int] = []
        for start, end, parameter in sorted(spans):
            if self.ends and start < self.ends[-1]:
                self.ends[-1] = max(end, self.ends[-1])
            else:
                self.starts.append(start)
                self.ends.append(end)
                self.parameters.append(parameter)


def _refuse_overlaps(spans: list[Span], written: Collection[int], names: Sequence[str]) -> None:
    """Raise ArgumentError if one of the arrays is overwritten and overlaps with another."""
    end = written_end = 0  # of those before
    other = writer = -1
    spans.sort()
    for start, stop, parameter in spans:
        if parameter in written:
            if start < end:
                raise _refusal(names, parameter, other)
            writer, written_end = parameter, stop
        elif start < written_end:
            raise _refusal(names, writer, parameter)
        if stop > end:
            other, end = parameter, stop


def _refusal(names: Sequence[str], one: int, other: int) -> ArgumentError:
    return ArgumentError(
        "vm",
        f"'{names[one]}' and '{names[other]}' share memory, and the program overwrites one of them",
        "arrays in separate memory",
        "make one of them a copy",
    )
