"""Attention in blocks of queries and keys, without scores in memory (T. Dao, "FlashAttention-2", 2023).

Operands are compact tensors of shape (heads, length, features), in which heads counts all leading axes together.
Products of float32 use TF32 where torch's own products may (`torch.backends.cuda.matmul.allow_tf32`), else three of
TF32 that together have the precision of float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo

Kernel = Callable[..., None]


@triton.jit
def _tile(pointer, rows, columns, length, features):
    """Rows of a matrix, 0 outside of it."""
    inside = (rows[:, None] < length) & (columns[None, :] < features)
    return tl.load(pointer + rows[:, None] * features + columns[None, :], mask=inside, other=0.0)


@triton.jit
def _store(pointer, value, rows, columns, length, features):
    inside = (rows[:, None] < length) & (columns[None, :] < features)
    value = value.to(pointer.dtype.element_ty)
    tl.store(pointer + rows[:, None] * features + columns[None, :], value, mask=inside)


@triton.jit
def forward_kernel(
    q, k, v, y, lse, queries_length, keys_length, features, values, scale,
    CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, FEATURES: tl.constexpr, VALUES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head: y and lse."""
    head = tl.program_id(0).to(tl.int64)
    q += head * queries_length * features
    k += head * keys_length * features
    v += head * keys_length * values
    queries = tl.program_id(1) * QUERIES + tl.arange(0, QUERIES)
    columns, value_columns = tl.arange(0, FEATURES), tl.arange(0, VALUES)
    q_tile = _tile(q, queries, columns, queries_length, features)
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    weighted = tl.zeros([QUERIES, VALUES], tl.float32)
    end = keys_length
    if CAUSAL:
        end = tl.minimum(end, (tl.program_id(1) + 1) * QUERIES)
    for start in range(0, end, KEYS):
        keys = start + tl.arange(0, KEYS)
        k_tile = _tile(k, keys, columns, keys_length, features)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * scale
        visible = (keys < keys_length)[None, :]
        if CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        scores = tl.where(visible, scores, float("-inf"))
        maximum = tl.maximum(largest, tl.max(scores, 1))
        # exp(-inf - -inf) would be NaN: rows that have only seen scores of -inf subtract 0.
        subtracted = tl.where(maximum == float("-inf"), 0.0, maximum)
        p = tl.exp(scores - subtracted[:, None])
        rescaled = tl.exp(largest - subtracted)
        total = total * rescaled + tl.sum(p, 1)
        v_tile = _tile(v, keys, value_columns, keys_length, values)
        weighted = weighted * rescaled[:, None] + tl.dot(p.to(v_tile.dtype), v_tile, input_precision=PRECISION)
        largest = maximum
    divisor = tl.where(total == 0.0, 1.0, total)
    _store(
        y + head * queries_length * values, weighted / divisor[:, None], queries, value_columns, queries_length, values
    )
    logarithms = tl.where(largest == float("-inf"), 0.0, largest) + tl.log(total)
    tl.store(lse + head * queries_length + queries, logarithms, mask=queries < queries_length)


@triton.jit
def _gradient_of_scores(
    q_tile, k_tile, v_tile, y_tile, dy_tile, lse, queries, keys, queries_length, keys_length, scale,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """p and scale * ds of a block, as (keys, queries)."""
    inside = queries < queries_length
    logarithms = tl.load(lse + queries, mask=inside, other=0.0)
    logarithms = tl.where(logarithms == float("-inf"), 0.0, logarithms)
    scores = tl.dot(k_tile, tl.trans(q_tile), input_precision=PRECISION) * scale
    visible = (keys[:, None] < keys_length) & inside[None, :]
    if CAUSAL:
        visible = visible & (keys[:, None] <= queries[None, :])
    p = tl.exp(tl.where(visible, scores, float("-inf")) - logarithms[None, :])
    mean = tl.sum(dy_tile.to(tl.float32) * y_tile.to(tl.float32), 1)
    dp = tl.dot(v_tile, tl.trans(dy_tile), input_precision=PRECISION)
    return p, p * (dp - mean[None, :]) * scale


@triton.jit
def keys_kernel(
    q, k, v, y, lse, dy, dq, dk, dv, queries_length, keys_length, features, values, scale,
    CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, FEATURES: tl.constexpr, VALUES: tl.constexpr,
    PRECISION: tl.constexpr, WRITES_DQ: tl.constexpr,
):  # fmt: skip
    """One block of keys of one head: dk and dv; and dq where this block holds all keys."""
    head = tl.program_id(0).to(tl.int64)
    q += head * queries_length * features
    dq += head * queries_length * features
    k += head * keys_length * features
    v += head * keys_length * values
    y += head * queries_length * values
    dy += head * queries_length * values
    lse += head * queries_length
    keys = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    columns, value_columns = tl.arange(0, FEATURES), tl.arange(0, VALUES)
    k_tile = _tile(k, keys, columns, keys_length, features)
    v_tile = _tile(v, keys, value_columns, keys_length, values)
    dk_tile = tl.zeros([KEYS, FEATURES], tl.float32)
    dv_tile = tl.zeros([KEYS, VALUES], tl.float32)
    begin = 0
    if CAUSAL:
        begin = (tl.program_id(1) * KEYS) // QUERIES * QUERIES
    for start in range(begin, queries_length, QUERIES):
        queries = start + tl.arange(0, QUERIES)
        q_tile = _tile(q, queries, columns, queries_length, features)
        y_tile = _tile(y, queries, value_columns, queries_length, values)
        dy_tile = _tile(dy, queries, value_columns, queries_length, values)
        p, ds = _gradient_of_scores(
            q_tile, k_tile, v_tile, y_tile, dy_tile, lse, queries, keys, queries_length, keys_length, scale,
            CAUSAL, PRECISION,
        )  # fmt: skip
        ds = ds.to(q_tile.dtype)
        dv_tile += tl.dot(p.to(dy_tile.dtype), dy_tile, input_precision=PRECISION)
        dk_tile += tl.dot(ds, q_tile, input_precision=PRECISION)
        if WRITES_DQ:
            dq_tile = tl.dot(tl.trans(ds), k_tile, input_precision=PRECISION)
            _store(dq, dq_tile, queries, columns, queries_length, features)
    _store(dk + head * keys_length * features, dk_tile, keys, columns, keys_length, features)
    _store(dv + head * keys_length * values, dv_tile, keys, value_columns, keys_length, values)


@triton.jit
def queries_kernel(
    q, k, v, y, lse, dy, dq, queries_length, keys_length, features, values, scale,
    CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, FEATURES: tl.constexpr, VALUES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head: dq."""
    head = tl.program_id(0).to(tl.int64)
    k += head * keys_length * features
    v += head * keys_length * values
    queries = tl.program_id(1) * QUERIES + tl.arange(0, QUERIES)
    columns, value_columns = tl.arange(0, FEATURES), tl.arange(0, VALUES)
    q_tile = _tile(q + head * queries_length * features, queries, columns, queries_length, features)
    y_tile = _tile(y + head * queries_length * values, queries, value_columns, queries_length, values)
    dy_tile = _tile(dy + head * queries_length * values, queries, value_columns, queries_length, values)
    dq_tile = tl.zeros([QUERIES, FEATURES], tl.float32)
    end = keys_length
    if CAUSAL:
        end = tl.minimum(end, (tl.program_id(1) + 1) * QUERIES)
    for start in range(0, end, KEYS):
        keys = start + tl.arange(0, KEYS)
        k_tile = _tile(k, keys, columns, keys_length, features)
        v_tile = _tile(v, keys, value_columns, keys_length, values)
        _, ds = _gradient_of_scores(
            q_tile, k_tile, v_tile, y_tile, dy_tile, lse + head * queries_length, queries, keys, queries_length,
            keys_length, scale, CAUSAL, PRECISION,
        )  # fmt: skip
        dq_tile += tl.dot(tl.trans(ds.to(k_tile.dtype)), k_tile, input_precision=PRECISION)
    _store(dq + head * queries_length * features, dq_tile, queries, columns, queries_length, features)


@dataclass(frozen=True, slots=True)
class Tile:
    """A block of queries and keys, and how a program computes it. Numbers of queries and keys are powers of two."""

    queries: int
    keys: int
    warps: int
    stages: int


def tf32_allowed() -> bool:
    """Whether products of float32 may round their operands to TF32."""
    return bool(torch.backends.cuda.matmul.allow_tf32)


def _precision(dtype: torch.dtype) -> str:
    """How products of float32 are computed. Halves have one way."""
    return "tf32" if dtype != torch.float32 or tf32_allowed() else "tf32x3"


def _width(columns: int) -> int:
    """Columns of a block that holds as many."""
    least_width = 16  # Columns that products on tensor cores take at least.
    return max(least_width, triton.next_power_of_2(columns))


def _forward_tile(dtype: torch.dtype, width: int, precision: str) -> Tile:
    """The fastest of those measured with compute capability 9.0, as for `_backward_tile`. Others spill registers."""
    if dtype != torch.float32:
        return Tile(64, 64, 4, 2)
    if precision == "tf32x3":
        return Tile(64, 64, 4, 1) if width <= 64 else Tile(32, 32, 4, 1)
    return Tile(128, 64, 4, 1) if width <= 64 else Tile(128, 64, 8, 1)


def _backward_tile(dtype: torch.dtype, keys: int, width: int, precision: str) -> Tile:
    if dtype != torch.float32:
        return Tile(64, 64, 4, 2 if width <= 64 else 1)
    if width > 64:
        return Tile(32, 32, 4, 1)
    if precision == "tf32x3":
        return Tile(32, 64, 4, 1)
    # One block of all keys of a head computes dq too.
    return Tile(64, 128, 8, 1) if 64 < keys <= 128 else Tile(64, 64, 4, 2)


def forward(call: CallInfo) -> Kernel:
    """`kernel(q, k, v, y, lse)` on compact tensors."""
    causal, scale = _options(call)

    def run(q: Any, k: Any, v: Any, y: Any, lse: Any) -> None:
        heads, sizes, factor = _sizes(q, v, scale)
        if not q.numel():
            return
        precision, widths = _precision(q.dtype), (_width(sizes[2]), _width(sizes[3]))
        tile = _forward_tile(q.dtype, max(widths), precision)
        forward_kernel[heads, triton.cdiv(sizes[0], tile.queries)](
            q, k, v, y, lse, *sizes, factor, causal, tile.queries, tile.keys, *widths, precision,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    return run


def backward(call: CallInfo) -> Kernel:
    """`kernel(q, k, v, y, lse, dy, dq, dk, dv)` on compact tensors."""
    causal, scale = _options(call)

    def run(q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, dq: Any, dk: Any, dv: Any) -> None:
        heads, sizes, factor = _sizes(q, v, scale)
        if not heads:
            return
        precision, widths = _precision(q.dtype), (_width(sizes[2]), _width(sizes[3]))
        tile = _backward_tile(q.dtype, sizes[1], max(widths), precision)
        blocks = triton.cdiv(sizes[1], tile.keys)
        options = causal, tile.queries, tile.keys, *widths, precision
        how = {"num_warps": tile.warps, "num_stages": tile.stages}
        keys_kernel[heads, blocks](q, k, v, y, lse, dy, dq, dk, dv, *sizes, factor, *options, blocks == 1, **how)
        if blocks > 1 and sizes[0]:
            grid = heads, triton.cdiv(sizes[0], tile.queries)
            queries_kernel[grid](q, k, v, y, lse, dy, dq, *sizes, factor, *options, **how)

    return run


def _options(call: CallInfo) -> tuple[bool, float | None]:
    args = call.bind()
    return bool(args["causal"]), args["scale"]


def _sizes(q: Any, v: Any, scale: float | None) -> tuple[int, tuple[int, int, int, int], float]:
    """Heads; queries, keys, features and values of each; and the factor of the scores."""
    *leading, queries, features = q.shape
    keys, values = v.shape[-2:]
    return math.prod(leading), (queries, keys, features, values), features**-0.5 if scale is None else float(scale)
