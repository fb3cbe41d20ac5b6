"""Images and detection."""

from __future__ import annotations

from typing import Any

import meta
from meta.frontend.relax.ops._table import row, shape_of, shared, tensor
from meta.frontend.relay.convert.call import OpCall
from meta.frontend.relay.ops.image import resized
from meta.functional._checks import as_dtype

shared("vision.get_valid_counts", "vision.roi_pool")


@row("image.resize2d", "image.resize3d")
def resize(call: OpCall) -> Any:
    rank = int(call.name[-2])
    x, size = tensor(call, 0), shape_of(call, 1)
    call.check_size(*size)
    if any(call.get("roi") or ()):
        call.refuse(f"roi is {call.get('roi')}", "no region of interest")
    mode = call.only("coordinate_transformation_mode", "half_pixel", "align_corners", "asymmetric",
                     "pytorch_half_pixel", "tf_half_pixel_for_nn")  # fmt: skip
    call.only("cubic_exclude", 0, False)
    call.only("extrapolation_value", 0.0, 0)
    method, rounding = call.text("method", "linear"), call.get("rounding_method", "round") or ""
    y = resized(call, x, tuple(map(int, size)), method, mode, rounding, call.float("cubic_alpha", -0.75), rank)
    return as_dtype(y, call.text("out_dtype") or y.dtype)


@row("image.grid_sample")
def grid_sample(call: OpCall) -> Any:
    """The grid is (batch, 2, height, width), with x before y."""
    x, grid = call.tensors(2)
    call.only("layout", "NCHW")
    method = call.only("method", "bilinear", "nearest", "bicubic")
    padding = call.only("padding_mode", "zeros", "border", "reflection")
    return meta.grid_sample(x, grid, method, padding, call.flag("align_corners", True))


@row("image.affine_grid")
def affine_grid(call: OpCall) -> Any:
    size = shape_of(call, 1)
    if not call.flag("align_corners", True):
        call.refuse("align_corners is False", "True")
    height, width = size
    return meta.affine_grid(tensor(call, 0), (height, width))  # type: ignore[arg-type]


@row("vision.roi_align")
def roi_align(call: OpCall) -> Any:
    x, rois = call.tensors(2)
    call.only("layout", "NCHW")
    if call.flag("aligned"):
        call.refuse("aligned is True", "False")
    height, width = call.sizes("pooled_size")
    scale, ratio = call.float("spatial_scale"), call.int("sample_ratio", -1)
    return meta.roi_align(x, rois, (height, width), scale, ratio, call.text("mode", "avg"))
