"""Declarations of operators on images: tensors (batch, channels, *spatial)."""

from __future__ import annotations

from meta.ir.type import TensorType
from meta.op import rules, window
from meta.op.registry import declare
from meta.schema import image as schema

_Ints = tuple[int, ...]


def _check(op: str, rank: int, x: TensorType, method: str) -> None:
    if method != "nearest":
        rules.require_float(op, "x", x)
    rules.require_rank(op, "x", x, rank + 2)
    shape = rules.show(x.shape)
    rules.require(op, 0 not in x.shape[1:], f"'x' has shape {shape}", "nothing but the batch may be empty")


def _declare_resize(rank: int) -> None:
    forward, backward = f"resize{rank}d", f"resize{rank}d_dx"

    @declare(forward, schema=schema.resize, pattern="injective", relay=f"image.{forward}", onnx="Resize")
    def resize(x: TensorType, size: _Ints, method: str, *_: object) -> TensorType:
        """The image at another size, interpolated from the nearest elements along each axis: one, the two next to it
        (linear) or four (cubic convolution: R. Keys, "Cubic Convolution Interpolation for Digital Image Processing",
        1981). Elements past the edge are those at the edge. "nearest" takes any dtype, the others floats."""
        _check(forward, rank, x, method)
        return x.with_shape((*x.shape[:2], *window.per_axis(forward, "size", size, rank)))

    @declare(backward, schema=schema.resize_dx)
    def resize_dx(dy: TensorType, shape: _Ints, method: str, *_: object) -> TensorType:
        """Gradient of resizing: each element of dy shared by those that it was interpolated from."""
        rules.require_float(backward, "dy", dy)
        _check(backward, rank, dy, method)
        x = dy.with_shape(shape)
        _check(backward, rank, x, method)
        rules.require_same_shape(backward, dy=dy.with_shape(dy.shape[:2]), shape=dy.with_shape(x.shape[:2]))
        return x


for _rank in (1, 2, 3):
    _declare_resize(_rank)
