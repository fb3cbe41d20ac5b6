"""Operators that functions of `meta.functional` compose."""

from __future__ import annotations

from typing import Any

import meta
from meta.frontend.relay.convert.call import OpCall, converter, rows
from meta.frontend.relay.convert.type_mapping import dtype_of
from meta.functional.einsum import einsum as contract
from meta.functional.image import affine_grid as grid_of
from meta.functional.image import grid_sample as sample
from meta.functional.image import roi_align as align
from meta.functional.positions import searchsorted as places

rows({
    "einsum": lambda call: contract(call.text("equation"), *call.tuple()),
})  # fmt: skip


@converter("image.affine_grid")
def affine_grid(call: OpCall) -> Any:
    (theta,) = call.tensors(1)
    height, width = call.sizes("target_shape")
    return grid_of(theta, (height, width))


@converter("image.grid_sample")
def grid_sample(call: OpCall) -> Any:
    x, grid = call.tensors(2)
    method = call.only("method", "bilinear", "nearest", "bicubic")
    call.only("layout", "NCHW", "NCDHW")
    mode = call.only("padding_mode", "zeros", "border", "reflection")
    return sample(x, grid, method, mode, call.flag("align_corners", True))


@converter("searchsorted")
def searchsorted(call: OpCall) -> Any:
    sequence, values = call.tensors(2)
    dtype = dtype_of(call.text("dtype", "int32"), call.place)
    return meta.cast(places(sequence, values, call.flag("right")), dtype)


@converter("vision.roi_align")
def roi_align(call: OpCall) -> Any:
    x, rois = call.tensors(2)
    call.only("layout", "NCHW")
    height, width = call.sizes("pooled_size")
    ratio = call.int("sample_ratio", -1)
    if ratio < 1:
        call.refuse(f"sample_ratio is {ratio}: it would depend on each region", "at least 1")
    return align(x, rois, (height, width), call.float("spatial_scale"), ratio, call.only("mode", "avg", "max"))
