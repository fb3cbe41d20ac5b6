"""Declarations of operators on images: tensors (batch, channels, *spatial)."""

from __future__ import annotations

from meta.dim import Dim, same_dim
from meta.ir.type import TensorType, TupleType
from meta.op import rules, windows
from meta.op.registry import declare
from meta.schema import image as schema

_Ints = tuple[int, ...]


def _check(rank: int, x: TensorType, method: str) -> None:
    if method != "nearest":
        rules.require_float("x", x)
    rules.require_rank("x", x, rank + 2)
    shape = rules.show(x.shape)
    rules.require(0 not in x.shape[1:], f"'x' has shape {shape}", "nothing but the batch may be empty")


def _sizes(size: tuple[Dim, ...], rank: int) -> tuple[Dim, ...]:
    """The size of each of `rank` axes; sizes that are numbers are at least 1."""
    windows.per_axis("size", tuple(d if isinstance(d, int) else 1 for d in size), rank)
    return size * rank if len(size) == 1 else size


def _declare_resize(rank: int) -> None:
    forward, backward = f"resize{rank}d", f"resize{rank}d_dx"

    @declare(forward, schema=schema.resize, pattern="injective")
    def resize(x: TensorType, size: _Ints, method: str, *_: object) -> TensorType:
        """The image at another size, interpolated along each axis from the nearest element (nearest), two (linear) or
        four elements (cubic convolution: R. Keys, "Cubic Convolution Interpolation for Digital Image Processing",
        1981). Positions past the edge read the edge element. "nearest" takes any dtype, the others floats."""
        _check(rank, x, method)
        return x.with_shape((*x.shape[:2], *_sizes(size, rank)))

    @declare(backward, schema=schema.resize_dx)
    def resize_dx(dy: TensorType, shape: _Ints, method: str, *_: object) -> TensorType:
        """Gradient of resizing: dy distributed by weight to the elements that each result was interpolated from."""
        rules.require_float("dy", dy)
        _check(rank, dy, method)
        x = dy.with_shape(shape)
        _check(rank, x, method)
        rules.require_same_shape(dy=dy.with_shape(dy.shape[:2]), shape=dy.with_shape(x.shape[:2]))
        return x


@declare("non_max_suppression", schema=schema.non_max_suppression, amp="never", outputs=("indices", "count"))
def non_max_suppression(
    boxes: TensorType, scores: TensorType, iou_threshold: float, score_threshold: float | None, max_size: int | None
) -> TupleType:
    """The boxes kept after removing each box that overlaps a kept box of higher score: positions by descending score,
    (batch, n), -1 after the last; and the number kept, (batch,); int64. Of equal scores the first counts as higher.
    To suppress within classes only, offset the boxes of each class so that classes do not overlap."""
    rules.require_float("boxes", boxes)
    rules.require_same_dtype(boxes=boxes, scores=scores)
    rules.same_device(boxes, scores)
    rules.require_rank("boxes", boxes, 3)
    rules.require_same_shape(scores=scores, boxes_without_corners=boxes.with_shape(boxes.shape[:2]))
    rules.require(same_dim(boxes.shape[2], 4), f"'boxes' has shape {rules.show(boxes.shape)}", "(batch, n, 4)")
    indices = scores.with_dtype("int64")
    return TupleType((indices, indices.with_shape(scores.shape[:1])))


for _rank in (1, 2, 3):
    _declare_resize(_rank)
