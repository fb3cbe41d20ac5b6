"""Convolutions by Winograd's algorithm: kernels that are transformed once, and convolutions with them.

A kernel g of n x n elements becomes G g G^T for a matrix G of m + n - 1 rows, where m is the tile size (A. Lavin,
S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). G has a left inverse, so the transformed kernel
determines g, and the convolution is that with g.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.frontend.relay.convert.call import OpCall, constant, converter
from meta.frontend.relay.convert.tensor_layout import permuted
from meta.frontend.relay.ops.conv import convolved
from meta.functional.einsum import einsum

_POINTS = {
    3: (0, -1, 1), 4: (0, -1, 1, 1 / 2), 5: (0, -1, 1, 1 / 2, -2), 6: (0, -1, 1, 1 / 2, -2, -1 / 2),
    7: (0, -1, 1, 1 / 2, -1 / 2, 2, -2), 8: (0, -1, 1, 1 / 2, -1 / 2, 2, -2, -1 / 4),
    9: (0, -1, 1, 1 / 2, -1 / 2, 2, -2, -1 / 4, 4),
}  # fmt: skip
"""The points at which Relay interpolates, by their number."""


def _matrix(call: OpCall, tile: int, kernel: int) -> np.ndarray[Any, Any]:
    """G, (tile + kernel - 1, kernel): powers of each point over the product of its distances to the others, and a last
    row for the point at infinity. The first row is positive."""
    points = np.asarray(_POINTS.get(tile + kernel - 2, ()), "float64")
    if not points.size:
        call.refuse(f"tile_size is {tile} for a kernel of {kernel}", f"{min(_POINTS)} to {max(_POINTS)} points")
    distances = points[:, None] - points
    np.fill_diagonal(distances, 1.0)
    scale = distances.prod(1)
    scale[0] = abs(scale[0])
    last = np.eye(kernel)[-1:]
    return np.concatenate([points[:, None] ** np.arange(kernel) / scale[:, None], last])


@converter("nn.contrib_conv2d_winograd_weight_transform")
def weight_transform(call: OpCall) -> Any:
    """A kernel (out, in, n, n) transformed: (m + n - 1, m + n - 1, out, in)."""
    (w,) = call.tensors(1)
    if w.ndim != 4 or w.shape[2] != w.shape[3]:
        call.refuse(f"a kernel of shape {w.shape}", "(out, in, n, n)")
    matrix = constant(_matrix(call, call.int("tile_size"), int(w.shape[2])).astype(w.dtype))
    return einsum("ia,jb,ocab->ijoc", matrix, matrix, w)


@converter("nn.contrib_conv2d_winograd_without_weight_transform")
def without_weight_transform(call: OpCall) -> Any:
    """A convolution with a transformed kernel: (.., .., in, out) for NCHW, (.., .., out, in) for NHWC."""
    x, transformed = call.tensors(2)
    if transformed.ndim != 4:
        call.refuse(f"a transformed kernel of shape {transformed.shape}", "four axes")
    layout = call.text("data_layout", "NCHW") or "NCHW"
    kernel = int(transformed.shape[0]) - call.int("tile_size") + 1
    inverse = constant(np.linalg.pinv(_matrix(call, call.int("tile_size"), kernel)).astype(x.dtype))
    axes = "co" if layout == "NCHW" else "oc"
    w = einsum(f"ai,bj,ij{axes}->ocab", inverse, inverse, transformed)
    kernel_layout = call.text("kernel_layout", "OIHW") or "OIHW"
    return convolved(call, x, permuted(w, "OIHW", kernel_layout))


# --- three dimensions ------------------------------------------------------------------------------------------------


def _transforms_depth(depth: int, height: int) -> bool:
    """Whether Relay also transforms the depth of a kernel."""
    return 2 < depth < 8 and depth == height


@converter("nn.contrib_conv3d_winograd_weight_transform")
def weight_transform_3d(call: OpCall) -> Any:
    """A kernel (out, in, depth, n, n) transformed: (m + n - 1, m + n - 1, m + n - 1, out, in) for a cube of 3 to 7
    elements, else (m + n - 1, m + n - 1, depth, out, in)."""
    (w,) = call.tensors(1)
    if w.ndim != 5 or w.shape[3] != w.shape[4]:
        call.refuse(f"a kernel of shape {w.shape}", "(out, in, depth, n, n)")
    matrix = constant(_matrix(call, call.int("tile_size"), int(w.shape[3])).astype(w.dtype))
    if _transforms_depth(int(w.shape[2]), int(w.shape[3])):
        return einsum("ia,jb,kc,oeabc->ijkoe", matrix, matrix, matrix, w)
    return einsum("ia,jb,oedab->ijdoe", matrix, matrix, w)


@converter("nn.contrib_conv3d_winograd_without_weight_transform")
def without_weight_transform_3d(call: OpCall) -> Any:
    """A convolution with a transformed kernel; `kernel_size` says whether its depth was transformed."""
    x, transformed = call.tensors(2)
    size = call.sizes("kernel_size")
    if transformed.ndim != 5 or len(size) != 3:
        call.refuse(f"kernel_size {size} and a transformed kernel of shape {transformed.shape}", "three and five axes")
    depth, height, _ = size
    matrix = _matrix(call, call.int("tile_size"), int(height))
    inverse = constant(np.linalg.pinv(matrix).astype(x.dtype))
    if _transforms_depth(depth, height):
        w = einsum("ai,bj,ck,ijkoe->oeabc", inverse, inverse, inverse, transformed)
    else:
        w = einsum("ai,bj,ijdoe->oedab", inverse, inverse, transformed)
    kernel_layout = call.text("kernel_layout", "OIDHW") or "OIDHW"
    return convolved(call, x, permuted(w, "OIDHW", kernel_layout))
