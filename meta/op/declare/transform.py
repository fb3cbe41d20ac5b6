"""Declarations of operators that change shape, dtype or device, join or split."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from meta.device import Device
from meta.dim import Dim, same_dim
from meta.dtype import is_complex, itemsize
from meta.errors import TypeInferenceError
from meta.ir.type import TensorType, TupleType, Value, tensor_type
from meta.op import rules
from meta.op.registry import declare
from meta.op.rules import moved, swapped
from meta.schema import transform


@declare(
    "cast", schema=transform.cast, amp="keep", pattern="elemwise", method=True, aliases=("astype",), complex="analytic"
)
def cast(x: TensorType, dtype: str) -> TensorType:
    """The same values in another dtype; floats are truncated towards zero when cast to integers."""
    return x.with_dtype(dtype)


@declare("cast_like", schema=transform.x_like, amp="keep", pattern="elemwise", complex="analytic")
def cast_like(x: TensorType, like: TensorType) -> TensorType:
    """The same values in the dtype of another tensor."""
    return x.with_dtype(like.dtype)


@declare("bitcast", schema=transform.bitcast, amp="keep", pattern="elemwise")
def bitcast(x: TensorType, dtype: str) -> TensorType:
    """The same bits as numbers of another dtype of the same width, such as the words of floats."""
    for name in (x.dtype, dtype):
        if name == "bool" or is_complex(name):
            raise TypeInferenceError("", f"the bits of {name}", "integers and floats")
    if itemsize(x.dtype) != itemsize(dtype):
        width = 8 * itemsize(x.dtype)
        raise TypeInferenceError("", f"x is {x.dtype} and dtype {dtype}", f"a dtype of {width} bits")
    return x.with_dtype(dtype)


@declare("device_copy", schema=transform.device_copy, amp="keep", method=True, complex="analytic")
def device_copy(x: TensorType, device: Device) -> TensorType:
    """The tensor on another device."""
    return tensor_type(x.shape, x.dtype, device)


@declare("stop_gradient", schema=transform.x_only, amp="keep", view=True, method=True, complex="analytic")
def stop_gradient(x: TensorType) -> TensorType:
    """The tensor itself, without a gradient."""
    return x


@declare(
    "straight_through",
    schema=transform.straight_through,
    pattern="elemwise",
    amp="infer",
    view=True,
    complex="analytic",
)
def straight_through(x: TensorType, source: TensorType) -> TensorType:
    """The values of x with the gradient of `source`, whatever both were computed from: a straight-through estimator."""
    rules.require(
        x is source, f"x is {x!r} and source is {source!r}", "one type of both", "reshape, cast or move source"
    )
    return x


@declare("shape", schema=transform.x_only, complex="analytic")
def shape(x: TensorType) -> Value:
    """The shape of the tensor, as a tuple of ints, known without a kernel."""
    return Value(x.shape)


# --- other shapes for the same elements ------------------------------------------------------------------------------


@declare(
    "reshape",
    schema=transform.reshape,
    pattern="injective",
    view=True,
    method=True,
    aliases=("view",),
    complex="analytic",
)
def reshape(x: TensorType, shape: tuple[int, ...]) -> TensorType:
    """The same elements, in row-major order, with another shape."""
    return x.with_shape(rules.resolve_reshape(x.shape, shape))


@declare("reshape_like", schema=transform.x_like, amp="keep", pattern="injective", view=True, complex="analytic")
def reshape_like(x: TensorType, like: TensorType) -> TensorType:
    """The same elements, in row-major order, with the shape of another tensor."""
    return x.with_shape(rules.resolve_reshape(x.shape, like.shape))


@declare(
    "expand_dims",
    schema=transform.expand_dims,
    pattern="injective",
    view=True,
    method=True,
    aliases=("unsqueeze",),
    complex="analytic",
)
def expand_dims(x: TensorType, axis: tuple[int, ...]) -> TensorType:
    """The same elements with new axes of size 1."""
    added = rules.axis_indices(axis, x.ndim + len(axis))
    sizes = list(x.shape)
    for position in added:
        sizes.insert(position, 1)
    return x.with_shape(tuple(sizes))


@declare("squeeze", schema=transform.squeeze, pattern="injective", view=True, method=True, complex="analytic")
def squeeze(x: TensorType, axis: tuple[int, ...] | None) -> TensorType:
    """The same elements without axes of size 1."""
    if axis is None:
        return x.with_shape(tuple(d for d in x.shape if d != 1))
    removed = rules.axis_indices(axis, x.ndim)
    for position in removed:
        rules.require(
            x.ndim > 0 and same_dim(x.shape[position], 1),
            f"axis {position} of shape {rules.show(x.shape)} is not 1",
            "axes of size 1",
        )
    return x.with_shape(tuple(d for i, d in enumerate(x.shape) if i not in removed))


@declare("broadcast_to", schema=transform.broadcast_to, pattern="broadcast", method=True, part=True, complex="analytic")
def broadcast_to(x: TensorType, shape: tuple[int, ...]) -> TensorType:
    """x repeated along axes of size 1 and new leading axes, to a larger shape."""
    return _broadcast(x, shape)


@declare("broadcast_to_like", schema=transform.x_like, amp="keep", pattern="broadcast", complex="analytic")
def broadcast_to_like(x: TensorType, like: TensorType) -> TensorType:
    """x repeated along axes of size 1 and new leading axes, to the shape of another tensor."""
    return _broadcast(x, like.shape)


def _broadcast(x: TensorType, shape: Sequence[Dim]) -> TensorType:
    full = rules.broadcast_shapes(x.shape, tuple(shape))
    rules.require(
        rules.same_shape(full, tuple(shape)),
        f"'x' has shape {rules.show(x.shape)}",
        f"shapes that broadcast to {rules.show(tuple(shape))}",
    )
    return x.with_shape(tuple(shape))


# --- another order of the axes ---------------------------------------------------------------------------------------


@declare(
    "transpose",
    schema=transform.transpose,
    pattern="injective",
    method=True,
    part=True,
    aliases=("permute",),
    complex="analytic",
)
def transpose(x: TensorType, axes: tuple[int, ...] | None) -> TensorType:
    """The axes in another order: axis i of the result is axis axes[i] of x."""
    if axes is None:
        return x.with_shape(x.shape[::-1])
    order = tuple(rules.axis_index(axis, x.ndim) for axis in axes)
    remedy = "swap two axes: x.swap_axis({}, {})".format(*axes) if len(axes) == 2 else ""
    fits = sorted(order) == list(range(x.ndim))
    rules.require(fits, f"axes {axes} for rank {x.ndim}", "each axis exactly once", remedy)
    return x.with_shape(tuple(x.shape[axis] for axis in order))


@declare(
    "swap_axis",
    schema=transform.swap_axis,
    pattern="injective",
    method=True,
    part=True,
    aliases=("swapaxes",),
    complex="analytic",
)
def swap_axis(x: TensorType, axis1: int, axis2: int) -> TensorType:
    """Two axes exchanged."""
    return x.with_shape(tuple(x.shape[axis] for axis in swapped(axis1, axis2, x.ndim)))


@declare(
    "moveaxis",
    schema=transform.moveaxis,
    pattern="injective",
    method=True,
    part=True,
    aliases=("movedim",),
    complex="analytic",
)
def moveaxis(x: TensorType, source: tuple[int, ...], destination: tuple[int, ...]) -> TensorType:
    """Axes moved to other positions; the others keep their order."""
    return x.with_shape(tuple(x.shape[axis] for axis in moved(source, destination, x.ndim)))


# --- joining and cutting ---------------------------------------------------------------------------------------------


@declare(
    "concatenate", schema=transform.concatenate, pattern="injective", aliases=("cat", "concat"), complex="analytic"
)
def concatenate(xs: tuple[TensorType, ...], axis: int) -> TensorType:
    """Join tensors along an existing axis."""
    head = _alike(xs)
    rules.require(head.ndim > 0, "the tensors are 0-d", "at least one axis", "use stack")
    axis = rules.axis_index(axis, head.ndim)
    for i, x in enumerate(xs[1:], 1):
        fits = x.ndim == head.ndim and all(
            d == axis or same_dim(a, b) for d, (a, b) in enumerate(zip(x.shape, head.shape, strict=True))
        )
        rules.require(
            fits,
            f"xs[{i}] has shape {rules.show(x.shape)}, xs[0] {rules.show(head.shape)}",
            f"equal sizes except along axis {axis}",
        )
    total = head.shape[axis]
    for x in xs[1:]:
        total = total + x.shape[axis]
    return head.with_size(axis, total)


@declare("stack", schema=transform.stack, pattern="injective", complex="analytic")
def stack(xs: tuple[TensorType, ...], axis: int) -> TensorType:
    """Join tensors of one shape along a new axis."""
    head = _alike(xs)
    axis = rules.axis_index(axis, head.ndim + 1)
    for i, x in enumerate(xs[1:], 1):
        rules.require_same_shape(**{"xs[0]": head, f"xs[{i}]": x})
    return head.with_shape((*head.shape[:axis], len(xs), *head.shape[axis:]))


def _alike(xs: tuple[TensorType, ...]) -> TensorType:
    """The first of a list of tensors of one dtype on one device."""
    rules.require(bool(xs), "the list is empty", "at least one tensor")
    rules.same_device(*xs)
    for i, x in enumerate(xs[1:], 1):
        rules.require_same_dtype(**{"xs[0]": xs[0], f"xs[{i}]": x})
    return xs[0]


@declare(
    "split", schema=transform.split, pattern="injective", method=True, part=True, outputs=("*",), complex="analytic"
)
def split(x: TensorType, indices_or_sections: int | tuple[int, ...], axis: int) -> TupleType:
    """Split a tensor along an axis into equal sections, or at positions 0 <= i <= size in ascending order.

    Returns a tuple with one tensor per section, or one more tensor than positions."""
    rules.require(x.ndim > 0, "the tensor is 0-d", "at least one axis")
    axis = rules.axis_index(axis, x.ndim)
    cuts = section_bounds(x.shape[axis], indices_or_sections)
    sizes = [end - begin for begin, end in pairwise(cuts)]
    return TupleType(tuple(x.with_size(axis, size) for size in sizes))


def section_bounds(size: Dim, indices_or_sections: int | tuple[int, ...]) -> list[Dim]:
    """The first position of each section of an axis, and the size of the axis."""
    if isinstance(indices_or_sections, tuple):
        cuts = [0, *indices_or_sections, size]
        static = [c for c in cuts if isinstance(c, int)]
        rules.require(
            static == sorted(static),
            f"positions {indices_or_sections} on an axis of size {size}",
            f"ascending positions from 0 to {size}",
        )
        return cuts
    count = indices_or_sections
    rules.require(count > 0, f"{count} sections", "at least one")
    section = size // count
    rules.require(
        same_dim(section * count, size),
        f"size {size} does not split into {count} equal sections",
        "a divisor of the size, or a tuple of positions",
        f"write positions for pieces of size {count}: list(range({count}, {size}, {count}))",
    )
    return [section * i for i in range(count + 1)]
