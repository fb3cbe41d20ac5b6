"""Adaptive pooling of long windows of rows by ATen, which reads them in order; TVM's kernels wait for every addition
or comparison."""

from __future__ import annotations

from typing import Any

import torch

from meta.ir.expr import CallInfo
from meta.op.dialect.torch import DIALECT


def _refuse(call: CallInfo) -> str | None:
    if call.device.kind != "cpu":
        return "for the CPU"
    x = call.tensors()[0]
    return None if x.dtype in ("float32", "float64") else "for float32 and float64"


def adaptive_avg_pool1d(x: Any, size: Any, *, out: Any) -> None:
    out.copy_(torch.nn.functional.adaptive_avg_pool1d(x, out.shape[-1]))


def adaptive_max_pool1d_with_indices(x: Any, size: Any, *, out: Any) -> None:
    results = torch.nn.functional.adaptive_max_pool1d(x, out[0].shape[-1], return_indices=True)
    for target, result in zip(out, results, strict=True):
        target.copy_(result)


DIALECT.implement("adaptive_avg_pool1d", adaptive_avg_pool1d, accepts=_refuse)
DIALECT.implement("adaptive_max_pool1d_with_indices", adaptive_max_pool1d_with_indices, accepts=_refuse)
