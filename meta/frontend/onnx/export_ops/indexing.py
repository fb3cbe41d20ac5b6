"""Positions: gathers and scatters of coordinates, resized images, and values without operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta import dtype as dtypes
from meta.frontend.onnx.export_ops._table import OnnxSite, row
from meta.frontend.rows import Function


def _coordinates_last(call: OnnxSite, indices: str, ndim: int) -> str:
    """Coordinates along the last axis, from along the first."""
    return call.node("Transpose", indices, perm=[*range(1, ndim), 0]) if ndim > 1 else indices


@row("gather_nd")
def gather_nd(call: OnnxSite, x: str, indices: str, batch_dims: int) -> str:
    kind = call.types[1]
    moved = _coordinates_last(call, call.cast(indices, kind.dtype, "int64"), kind.ndim)
    return call.node("GatherND", x, moved, batch_dims=batch_dims)


@row("scatter_nd")
def scatter_nd(call: OnnxSite, x: str, indices: str, src: str, reduction: str) -> str | None:
    kind = call.types[1]
    if call.dtype == "bool" and reduction != "update":
        return None
    moved = _coordinates_last(call, call.cast(indices, kind.dtype, "int64"), kind.ndim)
    return call.node("ScatterND", x, moved, src, reduction="none" if reduction == "update" else reduction)


@row("argwhere")
def argwhere(call: OnnxSite, x: str, size: Any) -> str | None:
    """The number of rows is found when the model runs; with `size` rows of -1 follow, and the first ones are taken."""
    rank = call.types[0].ndim
    if rank == 0 or (size is not None and not isinstance(size[0], int)):
        return None
    rows = call.node("Transpose", call.node("NonZero", x), perm=[1, 0])
    if size is None:
        return rows
    filled = call.node("Concat", rows, call.number(np.full((size[0], rank), -1)), axis=0)
    return call.node("Slice", filled, call.integers([0]), call.integers([size[0]]), call.integers([0]))


row("det")(lambda call, x: call.node("Det", x) if call.dtype in ("float32", "float64") else None)


@row("trunc_divide")
def trunc_divide(call: OnnxSite, x1: Any, x2: Any) -> str | None:
    """Div truncates integers."""
    if dtypes.is_float(call.dtype) or call.dtype == "bool":
        return None
    return call.node("Div", call.operand(0, x1, call.dtype), call.operand(1, x2, call.dtype))


_MODES = {"nearest": "nearest", "linear": "linear", "cubic": "cubic"}
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


def _resize(rank: int) -> Function:
    def convert(
        call: OnnxSite, x: str, size: Any, method: str, coordinates: str, rounding: str, cubic_alpha: float
    ) -> str | None:
        """Resize over the last axes. Implementations differ for sizes of 1 with `pytorch_half_pixel`."""
        kind, result = call.types[0], call.result
        if not call.is_float or coordinates not in _COORDINATES or (method == "cubic" and rank != 2):
            return None
        if coordinates == "pytorch_half_pixel" and 1 in result.shape[2:]:
            return None
        axes = list(range(kind.ndim - rank, kind.ndim))
        sizes = call.integers(result.shape[kind.ndim - rank :])
        options: dict[str, Any] = {"nearest_mode": rounding} if method == "nearest" else {}
        if method == "cubic":
            options["cubic_coeff_a"] = cubic_alpha
        return call.node("Resize", x, "", "", sizes, mode=_MODES[method], axes=axes,
                         coordinate_transformation_mode=coordinates, **options)  # fmt: skip

    return convert


for _rank in (1, 2, 3):
    row(f"resize{_rank}d")(_resize(_rank))
