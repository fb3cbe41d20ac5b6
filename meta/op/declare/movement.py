"""Declarations of operators that repeat, reorder, pad or mask elements along axes."""

from __future__ import annotations

from meta.dim import Dim
from meta.ir.type import TensorType
from meta.op import rules
from meta.op.registry import declare
from meta.schema import movement


@declare("repeat", schema=movement.repeat, pattern="injective", method=True, complex="analytic")
def repeat(x: TensorType, repeats: int, axis: int | None) -> TensorType:
    """Each element repeated in sequence along an axis, as numpy.repeat does."""
    rules.require(repeats >= 0, f"repeats is {repeats}", "zero or more")
    if axis is None:
        return x.with_shape((x.size * repeats,))
    rules.require(x.ndim > 0, "the tensor is 0-d", "at least one axis", "use axis=None")
    axis = rules.axis_index(axis, x.ndim)
    return x.with_shape(tuple(d * repeats if i == axis else d for i, d in enumerate(x.shape)))


@declare("tile", schema=movement.tile, pattern="injective", method=True, complex="analytic")
def tile(x: TensorType, reps: tuple[Dim, ...]) -> TensorType:
    """The whole tensor repeated along each axis, as numpy.tile does."""
    rules.require(all(r >= 0 for r in reps if isinstance(r, int)), f"reps is {reps}", "zero or more of each")
    rank = max(x.ndim, len(reps))
    sizes = (1,) * (rank - x.ndim) + x.shape
    counts = (1,) * (rank - len(reps)) + reps
    return x.with_shape(tuple(d * r for d, r in zip(sizes, counts, strict=True)))


@declare("flip", schema=movement.flip, pattern="injective", method=True, complex="analytic")
def flip(x: TensorType, axis: tuple[int, ...] | None) -> TensorType:
    """The elements in reverse order along axes."""
    rules.axis_indices(axis, x.ndim)
    return x


@declare("roll", schema=movement.roll, pattern="injective", method=True, complex="analytic")
def roll(x: TensorType, shift: tuple[int, ...], axis: tuple[int, ...]) -> TensorType:
    """The elements shifted along axes; those shifted past one end reappear at the other."""
    rules.require(len(shift) == len(axis), f"shift {shift} and axis {axis}", "one shift for each axis")
    rules.require(x.ndim > 0 or not axis, "the tensor is 0-d", "at least one axis")
    rules.axis_indices(axis, x.ndim)
    return x


@declare("pad", schema=movement.pad, pattern="injective", method=True, complex="analytic")
def pad(x: TensorType, pad_width: tuple[int, ...], pad_value: float, mode: str) -> TensorType:
    """The tensor padded with one value or with copies of its elements, as numpy.pad does. For "reflect" widths are less
    than the size of the axis, for "symmetric" and "wrap" at most the size. Negative widths remove elements; "wrap"
    repeats what is left, the other modes may copy a removed element."""
    if len(pad_width) != 2 * x.ndim:
        pairs = tuple(zip(pad_width[::2], pad_width[1::2], strict=False))  # torch's begin with the last axis
        spread = ((0, 0),) * (x.ndim - len(pairs)) + pairs[::-1]
        remedy = f"write pad_width={spread}" if len(spread) == x.ndim else ""
        rules.require(False, f"pad_width {pad_width} for rank {x.ndim}", f"{x.ndim} pairs (before, after)", remedy)
    rules.require_held(pad_value, x.dtype)
    spare = {"constant": None, "edge": None, "reflect": -1, "symmetric": 0, "wrap": 0}[mode]
    for size, before, after in zip(x.shape, pad_width[::2], pad_width[1::2], strict=True):
        if isinstance(size, int):
            _require_left(size, before, after, mode)
        is_checked = isinstance(size, int) and mode != "constant" and max(before, after) > 0
        removed = min(before, 0) + min(after, 0) if mode == "wrap" else 0
        most = size if spare is None else size + spare + removed
        rules.require(
            not is_checked or (size > 0 and (spare is None or max(before, after) <= most)),
            f"pad_width ({before}, {after}) of an axis of {size} elements, mode {mode!r}",
            "something to repeat" if spare is None else f"up to {most}",
        )
    return x.with_shape(tuple(d + a + b for d, a, b in zip(x.shape, pad_width[::2], pad_width[1::2], strict=True)))


def _require_left(size: int, before: int, after: int, mode: str) -> None:
    """Raise TypeInferenceError for widths that remove more elements than an axis has."""
    added = 0 if mode in ("constant", "wrap") else max(before, 0) + max(after, 0)
    rules.require(
        size + min(before, 0) + min(after, 0) + added >= 0,
        f"pad_width is ({before}, {after}) for an axis of {size} elements",
        f"at most {size} removed",
    )


def _triangle(name: str, doc: str) -> None:
    def typed(x: TensorType, k: int) -> TensorType:
        rules.require(x.ndim >= 2, f"'x' has shape {rules.show(x.shape)}", "at least two axes")
        return x

    declare(name, schema=movement.triangle, doc=doc, pattern="injective", method=True, complex="analytic")(typed)


_triangle("tril", "The lower triangles of matrices: elements above diagonal k become zero.")
_triangle("triu", "The upper triangles of matrices: elements below diagonal k become zero.")
