"""Sums of batch norm by ATen on CUDA, which reads each tensor once."""

from __future__ import annotations

from typing import Any

import torch

from meta.dim import around
from meta.dtype import accumulation_dtype, is_float
from meta.op.dialect.torch import DIALECT
from meta.op.dispatch import CallInfo

_LEAST_ROWS = 1024
"""Rows of a call, at least: TVM's kernels take less time for fewer."""


def _unsupported(call: CallInfo) -> str | None:
    args = call.bind()
    x = args["x"]
    if call.device.kind != "cuda":
        return "ATen has these sums on CUDA only"
    if not x.is_static or not is_float(x.dtype) or x.dtype == "float64":
        return f"{x!r}: static sizes of float32, float16 or bfloat16 only"
    before, _, after = around(x.shape, args["axis"])
    if after != 1:
        return f"channels on axis {args['axis']} of rank {x.ndim}: ATen is fast for channels on the last axis"
    if int(before) < _LEAST_ROWS:
        return f"{before} rows: TVM's kernels take less time below {_LEAST_ROWS}"
    statistics = [args[name].dtype for name in ("mean", "invstd") if name in args]
    wrong = [dtype for dtype in statistics if dtype != accumulation_dtype(x.dtype)]
    return f"statistics of {wrong[0]} beside {x.dtype}" if wrong else None


def _rows(x: Any) -> Any:
    """A matrix (rows, channels), for which ATen has kernels that take channels on the last axis."""
    return x.reshape(-1, x.shape[-1])


def batch_norm_stats(x: Any, eps: float, axis: int, *, out: Any) -> None:
    del axis
    mean, invstd = torch.batch_norm_stats(_rows(x), eps)
    out[0].copy_(mean)
    out[1].copy_(invstd)


def batch_norm_sums(dy: Any, x: Any, mean: Any, invstd: Any, axis: int, *, out: Any) -> None:
    del axis
    db, unscaled, _, _ = torch.batch_norm_backward_reduce(_rows(dy), _rows(x), mean, invstd, None, True, False, False)
    torch.mul(unscaled, invstd, out=out[0])
    out[1].copy_(db)


DIALECT.implement("batch_norm_stats", batch_norm_stats, accepts=_unsupported)
DIALECT.implement("batch_norm_sums", batch_norm_sums, accepts=_unsupported)
