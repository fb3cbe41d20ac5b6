"""Declarations of operators that change shape, type or place."""

from __future__ import annotations

from meta.device import Device
from meta.ir.dim import same_dim
from meta.ir.type import TensorType, tensor_type
from meta.op import rules
from meta.op.registry import declare
from meta.schema import transform


@declare("cast", schema=transform.cast, pattern="elemwise", method=True, aten="_to_copy", relay="cast", onnx="Cast")
def cast(x: TensorType, dtype: str) -> TensorType:
    """The same values in another dtype; floats are truncated towards zero when cast to integers."""
    return x.with_dtype(dtype)


@declare("broadcast_to", schema=transform.broadcast_to, pattern="broadcast", method=True, aten="expand",
         relay="broadcast_to", onnx="Expand")  # fmt: skip
def broadcast_to(x: TensorType, shape: tuple[int, ...]) -> TensorType:
    """x repeated along axes of size 1 and new leading axes, to a larger shape."""
    full = rules.broadcast_shapes("broadcast_to", x.shape, shape)
    rules.require("broadcast_to", rules.same_shape(full, shape), f"x has shape {rules.show(x.shape)}",
                  f"shapes that broadcast to {rules.show(shape)}")  # fmt: skip
    return x.with_shape(shape)


@declare("concatenate", schema=transform.concatenate, pattern="injective", aten="cat", relay="concatenate",
         onnx="Concat")  # fmt: skip
def concatenate(xs: tuple[TensorType, ...], axis: int) -> TensorType:
    """Join tensors along an existing axis."""
    rules.require("concatenate", bool(xs), "the list is empty", "at least one tensor")
    head = xs[0]
    at = rules.axis_index("concatenate", axis, head.ndim)
    rules.same_device("concatenate", *xs)
    for i, x in enumerate(xs[1:], 1):
        rules.require_same_dtype("concatenate", **{"xs[0]": head, f"xs[{i}]": x})
        fits = x.ndim == head.ndim and all(
            d == at or same_dim(a, b) for d, (a, b) in enumerate(zip(x.shape, head.shape, strict=True))
        )
        rules.require("concatenate", fits, f"xs[{i}] has shape {rules.show(x.shape)}, xs[0] {rules.show(head.shape)}",
                      f"equal sizes except along axis {at}")  # fmt: skip
    total = head.shape[at]
    for x in xs[1:]:
        total = total + x.shape[at]
    return head.with_shape((*head.shape[:at], total, *head.shape[at + 1 :]))


@declare("device_copy", schema=transform.device_copy, method=True)
def device_copy(x: TensorType, device: Device) -> TensorType:
    """The tensor on another device."""
    return tensor_type(x.shape, x.dtype, device)


@declare("stop_gradient", schema=transform.x_only, view=True, method=True)
def stop_gradient(x: TensorType) -> TensorType:
    """The tensor itself, through which no gradient flows."""
    return x


@declare("reshape", schema=transform.reshape, pattern="injective", view=True, method=True, aten="reshape", relay="reshape",
         onnx="Reshape")  # fmt: skip
def reshape(x: TensorType, shape: tuple[int, ...]) -> TensorType:
    """The same elements, in the same order, under another shape."""
    return x.with_shape(rules.resolve_reshape("reshape", x.shape, shape))


@declare("strided_slice", schema=transform.strided_slice, pattern="injective", method=True, relay="strided_slice",
         onnx="Slice")  # fmt: skip
def strided_slice(x: TensorType, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]) -> TensorType:
    """x[begin:end:strides] with NumPy's rules for negative and excessive bounds; trailing axes are kept whole."""
    steps = strides or (1,) * len(begin)
    fits = len(begin) == len(end) == len(steps) and len(begin) <= x.ndim and 0 not in steps
    rules.require("strided_slice", fits, f"begin={begin}, end={end}, strides={strides} for rank {x.ndim}",
                  "one of each an axis, at most as many as the rank, strides not zero")  # fmt: skip
    sizes = tuple(
        len(range(*slice(b, e, s).indices(d))) for b, e, s, d in zip(begin, end, steps, x.shape, strict=False)
    )
    return x.with_shape((*sizes, *x.shape[len(begin) :]))


@declare("strided_slice_dx", schema=transform.strided_slice_dx, pattern="injective")
def strided_slice_dx(
    dy: TensorType, shape: tuple[int, ...], begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]
) -> TensorType:
    """Gradient of strided_slice: dy in the sliced places of a tensor of zeros."""
    rules.require_same_shape("strided_slice_dx", dy=dy, slice=strided_slice(dy.with_shape(shape), begin, end, strides))
    return dy.with_shape(shape)
