"""Sequences of numbers, tensors with unspecified values, and batches of sequences that are padded to one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import T, Tensor
from meta.device import CPU, Device
from meta.functional._checks import as_dtype, axis_of, is_tensor, require
from meta.op import rules

__all__ = ["empty", "empty_like", "logspace", "reverse_sequence", "sequence_mask"]


def logspace(
    start: object, stop: object, num: int, base: float = 10.0, dtype: str = "float32", device: Device | str = CPU
) -> Any:
    """`num` powers of `base`, with exponents at equal distances from `start` to `stop`, both included.

    start, stop: numbers or 0-d tensors. Computed in float64."""
    exponents = spaced("logspace", start, stop, num, device)
    return as_dtype(meta.power(meta.full_like(exponents, base), exponents), dtype)


def spaced(name: str, start: Any, stop: Any, num: int, device: Device | str = CPU) -> Any:
    """`linspace` in float64 between numbers or 0-d tensors, on the device of the tensors if there are any."""
    ends: list[Any] = [start, stop]
    tensors = [end for end in ends if is_tensor(end)]
    for end in tensors:
        require(name, end.ndim == 0, f"an end has shape {rules.show(end.shape)}", "numbers and 0-d tensors")
    require(name, num >= 0, f"num is {num}", "0 or more")
    if not tensors:
        return meta.linspace(start, stop, num, "float64", device)
    first, last = (as_dtype(end, "float64") if is_tensor(end) else end for end in ends)
    step = (last - first) / max(num - 1, 1)
    place = meta.arange(0, num, 1, "float64", tensors[0].device)
    # Counted from the nearer end: both ends are exact.
    return meta.where(meta.less(place, (num + 1) // 2), first + step * place, last - step * (num - 1 - place))


def empty(shape: int | Sequence[int], dtype: str = "float32", device: Device | str = CPU) -> Any:
    """A tensor with unspecified values: zeros here, so that programs repeat."""
    return meta.zeros(shape, dtype, device)


def empty_like(x: T, dtype: str | None = None) -> T:
    """A tensor of the shape of another, with values as from `empty`."""
    return meta.zeros_like(x, dtype)


def sequence_mask(x: Tensor, sequence_length: Tensor, mask_value: float = 0.0, axis: int = 0) -> Tensor:
    """x with `mask_value` at the steps from the length of each sequence on.

    sequence_length: integers, one for each element of the batch.  axis: the axis of the steps, 0 or 1; the other of
    these two is the axis of the batch."""
    require("sequence_mask", axis in (0, 1), f"axis is {axis}", "0 or 1")
    steps, lengths = _steps_and_lengths("sequence_mask", x, sequence_length, axis, 1 - axis)
    return meta.where(meta.less(steps, lengths), x, mask_value)


def reverse_sequence(x: Tensor, sequence_length: Tensor, seq_axis: int = 1, batch_axis: int = 0) -> Tensor:
    """x with the first steps of each sequence, as many as its length, in reverse order.

    sequence_length: integers, one for each element of the batch.  seq_axis: the axis of the steps."""
    steps, lengths = _steps_and_lengths("reverse_sequence", x, sequence_length, seq_axis, batch_axis)
    sources = meta.where(meta.less(steps, lengths), lengths - 1 - steps, steps)
    return meta.gather(x, seq_axis % x.ndim, meta.broadcast_to(sources, x.shape))


def _steps_and_lengths(name: str, x: Tensor, lengths: Tensor, axis: int, batch_axis: int) -> tuple[Tensor, Tensor]:
    """The numbers of the steps and the lengths, int64, which broadcast to x."""
    require(name, x.ndim >= 2, f"x has shape {rules.show(x.shape)}", "at least 2 axes")
    time, batch = axis_of(name, axis, x.ndim), axis_of(name, batch_axis, x.ndim)
    require(name, time != batch, f"steps and batch are both along axis {time}", "two axes")
    fits = rules.same_shape(tuple(lengths.shape), (x.shape[batch],)) and "int" in lengths.dtype
    expected = f"integers of shape {rules.show((x.shape[batch],))}"
    require(name, fits, f"'sequence_length' is {lengths.dtype} of shape {rules.show(lengths.shape)}", expected)
    steps = meta.arange(0, x.shape[time], 1, "int64", x.device)

    def along(axis: int, values: T) -> T:
        return meta.reshape(values, tuple(x.shape[axis] if i == axis else 1 for i in range(x.ndim)))

    return along(time, steps), along(batch, as_dtype(lengths, "int64"))
