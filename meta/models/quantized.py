"""Weights in 8 and 4 bits: rounding, and layers that keep them.

A weight becomes the nearest multiple of the scale of its group. The scale is the least positive one for which no weight
of the group is clipped: integers are -127 to 127, or -8 to 7."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import meta
from meta._generated.methods import Tensor
from meta.dtype import to_numpy
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, value_text
from meta.model.model import Model
from meta.model.names import Alias
from meta.models.blocks import Projection, TokenTable, TransposedProjection
from meta.records import record

_FORMAT: Final = re.compile(r"int8|int4:([0-9]{1,6})")
_PIECE: Final = 1 << 20
"""Weights that are rounded at a time, at least a row: their floats stay in the cache."""


@record
class WeightFormat:
    """bits: 8 or 4.  group: the weights of a row that share a scale; 0 for all of them."""

    bits: int
    group: int

    def __str__(self) -> str:
        return "int8" if self.bits == 8 else f"int4:{self.group}"

    def groups(self, name: str, k: int) -> int:
        """The number of groups of a row of k weights. Raises ArgumentError if they do not divide it."""
        group = self.group or k
        if k % group:
            raise ArgumentError("weights", f"{name} has rows of {k} weights and weights='{self}' groups of {group}",
                                "groups that divide the rows", "choose another size, or weights='int8'")  # fmt: skip
        return k // group


def weight_format(weights: object) -> WeightFormat:
    """The format that a text names: "int8", or "int4:64" for groups of 64 weights. Raises ArgumentError for others."""
    match = _FORMAT.fullmatch(weights) if isinstance(weights, str) else None
    group = int(match[1] or 0) if match else 0
    if match is None or (match[1] and (group < 2 or group % 2)):
        expected = "'int8', or 'int4:' and an even size of groups, as in 'int4:64'"
        raise ArgumentError("weights", f"weights is {value_text(weights)}", expected)
    return WeightFormat(4 if match[1] else 8, group)


def quantize_rows(
    rows: npt.NDArray[Any], format: WeightFormat, groups: int, dtype: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows of weights, (n, k), as integers, and their scales in `dtype`, (n, groups): what `meta.quantized_dense`
    takes. Raises ArgumentError for weights that are not finite."""
    n, k = rows.shape
    floats: Any = rows.astype(np.float32)
    parts = floats.reshape(n, groups, k // groups)
    low, high = parts.min(-1), parts.max(-1)
    if not np.isfinite(low).all() or not np.isfinite(high).all():
        raise ArgumentError("weights", "there are NaN or infinite weights", "finite ones", "load without weights=")
    scale = np.maximum(high / 127, low / -127) if format.bits == 8 else np.maximum(high / 7, low / -8)
    stored = scale.astype(to_numpy(dtype))
    stored[stored == 0] = 1  # all weights are zeros, or too small for the dtype
    least, most = (-127, 127) if format.bits == 8 else (-8, 7)
    nearest: Any = np.rint(parts / stored.astype(np.float32)[..., None])
    integers = nearest.clip(least, most).astype(np.int8)
    if format.bits == 8:
        return integers.reshape(n, k), stored
    halves = (integers + 8).view(np.uint8).reshape(n, groups, 2, -1)
    return (halves[:, :, 0] | (halves[:, :, 1] << 4)).reshape(n, k // 2), stored


class QuantizedProjection(Model):
    """y = x @ w^T + b with weights in 8 or 4 bits, which are not trained: see `meta.quantized_dense`."""

    w: NDArray
    scale: NDArray
    weight, weight_scale, bias = Alias("w"), Alias("scale"), Alias("b")

    def build(self, w: NDArray, scale: NDArray, b: NDArray | None) -> None:
        self.buffer("w", w)
        self.buffer("scale", scale)
        self.b = b

    def forward(self, x: Tensor) -> Tensor:
        return meta.quantized_dense(x, self.w, self.scale, self.b)


class QuantizedTable(Model):
    """Rows of a table in 8 or 4 bits, as floats of the dtype of the scales."""

    w: NDArray
    scale: NDArray
    weight, weight_scale = Alias("w"), Alias("scale")

    def build(self, w: NDArray, scale: NDArray) -> None:
        self.buffer("w", w)
        self.buffer("scale", scale)

    def forward(self, ids: Tensor) -> Tensor:
        rows, scales = meta.take(self.w, ids, 0), meta.take(self.scale, ids, 0)
        return meta.dequantize_weight(rows, scales, self.scale.dtype)


def replace_layers(model: Model, format: WeightFormat, dtype: str) -> dict[int, QuantizedWeight]:
    """Put quantised layers, without values, in place of the projections and tables of tokens. Returns the arrays that
    they replace, by id. Raises ArgumentError for groups that do not divide the rows of a layer."""
    made: dict[int, QuantizedWeight] = {}
    for path, part in list(model.models()):
        for name, layer in list(vars(part).items()):
            if type(layer) not in (Projection, TokenTable, TransposedProjection):
                continue
            weight = made.get(id(layer.w)) or QuantizedWeight(
                f"{path}.{name}".lstrip("."), layer.w, type(layer) is TransposedProjection, format, dtype
            )
            made[id(layer.w)] = weight
            is_table = type(layer) is TokenTable
            setattr(part, name, QuantizedTable(weight.w, weight.scale) if is_table else
                    QuantizedProjection(weight.w, weight.scale, layer.b))  # fmt: skip
    return made


class QuantizedWeight:
    """A matrix of a checkpoint that is rounded when it is read.

    transposed: whether rows of the file are inputs."""

    def __init__(self, name: str, floats: NDArray, transposed: bool, format: WeightFormat, dtype: str) -> None:
        n, k = floats.shape[::-1] if transposed else floats.shape
        self.floats, self.transposed, self.format, self.dtype = floats, transposed, format, dtype
        self.groups = format.groups(name, int(k))
        packed = np.zeros((n, k) if format.bits == 8 else (n, k // 2), np.int8 if format.bits == 8 else np.uint8)
        self.w = meta.from_numpy(packed)
        self.scale = meta.from_numpy(np.zeros((n, self.groups), to_numpy(dtype)))

    def __call__(
        self, shape: tuple[int, ...], pieces: Callable[[int], Iterator[Any]]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The integers and the scales of a matrix that `pieces` reads in flat pieces of some size."""
        n, k = shape[::-1] if self.transposed else shape
        packed = np.empty(self.w.shape, to_numpy(self.w.dtype))
        scale = np.empty(self.scale.shape, to_numpy(self.dtype))
        rows = max(_PIECE // max(k, 1), 1)
        if self.transposed:
            whole: Any = next(pieces(n * k))
            matrix = whole.reshape(shape).T
            blocks: Iterator[Any] = (matrix[i : i + rows] for i in range(0, n, rows))
        else:
            blocks = (piece.reshape(-1, k) for piece in pieces(rows * k))
        start = 0
        for block in blocks:
            place = slice(start, start + len(block))
            packed[place], scale[place] = quantize_rows(block, self.format, self.groups, self.dtype)
            start += len(block)
        return packed, scale
