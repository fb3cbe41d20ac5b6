"""Resizing of images."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.frontend.relay.convert.call import OpCall, converter
from meta.frontend.relay.convert.tensor_layout import SPATIAL_LAYOUTS, convert_layout, spatial_rank
from meta.functional._checks import as_dtype

_RESIZE: dict[int, Any] = {1: meta.resize1d, 2: meta.resize2d, 3: meta.resize3d}
_METHODS = {"nearest_neighbor": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear",
            "cubic": "cubic", "bicubic": "cubic"}  # fmt: skip
_ROUNDING = {"round": "round_prefer_ceil"}


@converter("image.resize1d", "image.resize2d", "image.resize3d", "dyn.image.resize2d")
def resize(call: OpCall) -> Any:
    rank = spatial_rank(call)
    args = call.tensors(3) if call.name.startswith("dyn.") else call.tensors(1)
    size = call.ints(args[1], "size") if len(args) == 3 else call.sizes("size")
    roi = call.ints(args[2], "roi") if len(args) == 3 else call.get("roi") or ()
    if any(roi):
        call.refuse(f"roi is {roi}", "no region of interest")
    mode = call.only("coordinate_transformation_mode", "half_pixel", "align_corners", "asymmetric",
                     "pytorch_half_pixel", "tf_half_pixel_for_nn")  # fmt: skip
    call.only("cubic_exclude", 0, False)
    call.only("extrapolation_value", 0.0, 0)
    alpha = call.float("cubic_alpha", -0.5)
    method, rounding = call.text("method", "linear"), call.get("rounding_method", "round") or ""
    y = resized(call, args[0], size, method, mode, rounding, alpha, rank)
    return as_dtype(y, call.text("out_dtype") or y.dtype)


def resized(
    call: OpCall, x: Tensor, size: tuple[int, ...], method: str, mode: str, rounding: str, alpha: float, rank: int
) -> Any:
    """x at another size, in the layout of the call."""
    plain = SPATIAL_LAYOUTS[rank]
    layout = call.text("layout", plain) or plain
    if method not in _METHODS:
        call.refuse(f"method is {method!r}", f"one of {', '.join(_METHODS)}")
    rounding = _ROUNDING.get(rounding, rounding) or ("round_prefer_ceil" if mode == "align_corners" else "floor")
    x = convert_layout(call, x, layout, plain)
    y = _RESIZE[rank](x, size, _METHODS[method], mode, rounding, alpha)
    return convert_layout(call, y, plain, layout)


@converter("nn.upsampling", "nn.upsampling3d")
def upsampling(call: OpCall) -> Any:
    """Resizing by a scale for each axis; sizes are rounded."""
    rank = 3 if call.name.endswith("3d") else 2
    names = ("scale_d", "scale_h", "scale_w")[-rank:]
    (x,) = call.tensors(1)
    scales = [call.float(name, 1.0) for name in names]
    plain = SPATIAL_LAYOUTS[rank]
    layout = call.text("layout", plain) or plain
    size = tuple(round(x.shape[layout.index(c)] * s) for c, s in zip(plain[2:], scales, strict=True))
    if rank == 2:
        mode = "align_corners" if call.flag("align_corners") else "asymmetric"
    else:
        mode = call.only("coordinate_transformation_mode", "half_pixel", "align_corners", "asymmetric")
    return resized(call, x, size, call.text("method", "nearest_neighbor"), mode, "", -0.5, rank)
