"""Resizing images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dim import Dim
from meta.dtype import is_float, is_int
from meta.errors import TypeInferenceError
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.frontend.onnx.ops._values import axes_of, ints
from meta.functional._checks import as_dtype
from meta.functional._resize_filters import matrix_at
from meta.limits import MAX_FOLDED

_RESIZE = (meta.resize1d, meta.resize2d, meta.resize3d)
_DIRECT = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")
"""Coordinate transformations that meta's operators have."""


@dataclass(frozen=True, slots=True)
class _Method:
    """Attributes of Resize that say how an element is computed."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool
    extrapolation: float


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis to resize: its sizes, the factor between positions, and the part that is read (tf_crop_and_resize)."""

    axis: int
    old: Any
    new: Any
    scale: Any
    roi: tuple[float, float]


def _scaled(node: Node, size: Dim, scale: float) -> Dim:
    """floor(size * scale)."""
    if isinstance(size, int):
        return math.floor(size * scale)
    if scale != int(scale):
        refuse(node, f"an axis of size {size} is scaled by {scale}", "a known size, or a whole factor")
    return size * int(scale)


def _from_sizes(x: Tensor, resized_axes: Sequence[int], sizes: Sequence[Any], policy: str) -> list[tuple[Any, Any]]:
    """(size, scale) of each axis. Unless stretched, the ratio of all is the smallest or the largest."""
    ratios = [
        new / x.shape[axis] if isinstance(x.shape[axis], int) else None
        for axis, new in zip(resized_axes, sizes, strict=True)
    ]
    if policy == "stretch":
        return list(zip(sizes, ratios, strict=True))
    if policy not in ("not_larger", "not_smaller") or None in ratios:
        raise TypeInferenceError("Resize", f"keep_aspect_ratio_policy is {policy!r}",
                                 "stretch, or not_larger or not_smaller with known sizes")  # fmt: skip
    ratio = (min if policy == "not_larger" else max)(ratios)  # type: ignore[type-var]
    return [(int(ratio * x.shape[axis] + 0.5), ratio) for axis in resized_axes]


@row("Resize", since=11, constants=("roi", "scales", "sizes"))
def resize(
    node: Node, X: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None, *, mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel", nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0, antialias: int = 0,
    axes: Sequence[int] | None = None, keep_aspect_ratio_policy: str = "stretch",
) -> Any:  # fmt: skip
    if mode not in ("nearest", "linear", "cubic"):
        refuse(node, f"mode is {mode!r}", "nearest, linear or cubic")
    resized_axes = axes_of("Resize", range(X.ndim) if axes is None else axes, X.ndim)
    if sizes is not None and sizes.size:
        targets = _from_sizes(X, resized_axes, ints(sizes), keep_aspect_ratio_policy)
    elif scales is not None and scales.size:
        factors = [float(s) for s in scales.reshape(-1)]
        targets = [(_scaled(node, X.shape[a], s), s) for a, s in zip(resized_axes, factors, strict=True)]
    else:
        raise TypeInferenceError("Resize", "there are neither scales nor sizes", "one of them")
    parts = [(0.0, 1.0)] * len(resized_axes)
    if coordinate_transformation_mode == "tf_crop_and_resize":
        numbers = [float(v) for v in roi.reshape(-1)]
        parts = list(zip(numbers[: len(resized_axes)], numbers[len(resized_axes) :], strict=True))
    method = _Method(mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(antialias),
                     bool(exclude_outside), extrapolation_value)  # fmt: skip
    resized = [_Axis(a, X.shape[a], *targets[i], parts[i]) for i, a in enumerate(resized_axes)]
    return _resized(node, X, [a for a in resized if _changes(a, method)], method)


def _changes(axis: _Axis, method: _Method) -> bool:
    cut = method.coordinates == "tf_crop_and_resize" and axis.roi != (0.0, 1.0)
    return cut or axis.old != axis.new or (axis.scale is not None and not math.isclose(axis.scale, 1.0))


def _resized(node: Node, x: Any, axes: list[_Axis], method: _Method) -> Any:
    if not axes:
        return x
    if _has_operator(x, axes, method):
        spatial = x.shape[2:] if x.ndim > 2 else (x.shape[-1],)
        new = {a.axis: a.new for a in axes}
        size = tuple(new.get(i + 2, n) for i, n in enumerate(spatial))
        function: Any = _RESIZE[len(size) - 1]
        return function(x, size, method.mode, method.coordinates, method.nearest, method.cubic)
    if method.mode == "nearest":
        for a in axes:
            x = _nearest(node, x, a, method)
        return x
    y = as_dtype(x, "float64" if is_int(x.dtype) else x.dtype)
    for a in axes:
        y = _weighted(node, y, a, method)
    if not is_int(x.dtype):
        return as_dtype(y, x.dtype)
    limits = np.iinfo(x.dtype)
    return meta.cast(meta.clip(meta.round(y), float(limits.min), float(limits.max)), x.dtype)


def _has_operator(x: Tensor, axes: list[_Axis], method: _Method) -> bool:
    """Whether an operator of meta does the same: spatial axes, and positions by the ratio of the sizes."""
    plain = not method.antialias and not method.exclude_outside and method.coordinates in _DIRECT
    dtype = is_float(x.dtype) or method.mode == "nearest"
    by_ratio = all(a.scale is None or (isinstance(a.old, int) and a.scale * a.old == a.new) for a in axes)
    return plain and dtype and by_ratio and 3 <= x.ndim <= 5 and all(a.axis >= 2 for a in axes)


# --- by tables of positions and weights ------------------------------------------------------------------------------


def _positions(node: Node, a: _Axis, mode: str) -> np.ndarray[Any, Any]:
    """The position in the input of each element of the result."""
    if not isinstance(a.old, int) or not isinstance(a.new, int):
        refuse(node, f"an axis of size {a.old} is resized by {mode}", "a known size")
    if a.new * a.old > MAX_FOLDED:
        refuse(node, f"an axis of size {a.old} is resized to {a.new} by {mode}", f"at most {MAX_FOLDED} weights")
    x, width = np.arange(a.new, dtype="float64"), a.scale * a.old
    if mode == "align_corners":
        return x * (a.old - 1) / (width - 1) if width != 1 else np.zeros_like(x)
    if mode == "asymmetric":
        return x / a.scale
    if mode == "tf_crop_and_resize":
        low, high = a.roi
        if a.new <= 1:
            return np.full_like(x, 0.5 * (low + high) * (a.old - 1))
        return low * (a.old - 1) + x * (high - low) * (a.old - 1) / (width - 1)
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / a.scale
    if mode == "pytorch_half_pixel" and width == 1:
        return np.full_like(x, -0.5)
    if mode == "half_pixel_symmetric":
        return a.old / 2 * (1 - a.new / width) + (x + 0.5) / a.scale - 0.5
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        refuse(
            node, f"coordinate_transformation_mode is {mode!r}", f"{', '.join(_DIRECT)} or another that ONNX defines"
        )
    return (x + 0.5) / a.scale - 0.5


def _outside(a: _Axis, positions: Any, method: _Method) -> Any:
    """Which elements are outside of the image and take the extrapolation value; None if none can."""
    if method.coordinates != "tf_crop_and_resize":
        return None
    outside = (positions < 0) | (positions > a.old - 1)
    return outside if outside.any() else None


def _filled(y: Tensor, a: _Axis, outside: Any, value: float) -> Any:
    if outside is None:
        return y
    mask = meta.array(outside.reshape([-1 if i == a.axis else 1 for i in range(y.ndim)]))
    return meta.where(mask, meta.full_like(y, value), y)


_ROUND = {
    "round_prefer_floor": lambda p: np.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: np.floor(p + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _nearest(node: Node, x: Any, a: _Axis, method: _Method) -> Any:
    if method.nearest not in _ROUND:
        refuse(node, f"nearest_mode is {method.nearest!r}", " or ".join(_ROUND))
    positions = _positions(node, a, method.coordinates)
    places = np.clip(_ROUND[method.nearest](positions), 0, a.old - 1).astype("int64")
    y = meta.take(x, meta.array(places), a.axis)
    return _filled(y, a, _outside(a, positions, method), method.extrapolation)


def _weighted(node: Node, x: Tensor, a: _Axis, method: _Method) -> Any:
    """The product with a matrix (new size, old size) of weights along one axis."""
    positions = _positions(node, a, method.coordinates)
    shrink = min(a.scale, 1.0) if method.antialias else 1.0
    is_cubic, excludes = method.mode == "cubic", method.exclude_outside
    weights = matrix_at(a.old, positions, is_cubic, method.cubic, shrink, excludes, method.antialias)
    matrix = meta.array(weights.astype("float64" if x.dtype == "float64" else "float32"))
    moved = meta.moveaxis(x, a.axis, -1)
    wide = meta.cast(moved, matrix.dtype)
    y = meta.moveaxis(as_dtype(meta.matmul(wide, matrix, transpose_b=True), x.dtype), -1, a.axis)
    return _filled(y, a, _outside(a, positions, method), method.extrapolation)


# --- older forms -----------------------------------------------------------------------------------------------------


@row("Resize", "Upsample", since=9, constants=("scales",))
def upsample(node: Node, X: Tensor, scales: Any, *, mode: str = "nearest") -> Any:
    """Positions are divided by the scales, and rounded down for the nearest."""
    modes = {"nearest": "nearest", "linear": "linear", "bilinear": "linear"}
    if mode not in modes:
        refuse(node, f"mode is {mode!r}", "nearest or linear")
    return resize(node, X, None, scales, mode=modes[mode], coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor")  # fmt: skip


@row("Upsample", since=7)
def upsample_7(node: Node, X: Tensor, *, scales: Sequence[float], mode: str = "nearest") -> Any:
    return upsample(node, X, np.asarray(scales, "float64"), mode=mode)
