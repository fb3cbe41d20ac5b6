"""Factorizations by ATen: LAPACK on the CPU, cuSOLVER on CUDA."""

from __future__ import annotations

import math
from typing import Any

import torch

from meta.ir.expr import CallInfo
from meta.op import matrices
from meta.op.dialect.torch import DIALECT


def _write(out: Any, results: Any) -> None:
    for target, result in zip(out, results, strict=True):
        target.copy_(result)


def cholesky_ex(x: Any, upper: bool, check_errors: bool, *, out: Any) -> None:
    factor, info = torch.linalg.cholesky_ex(x, upper=upper)
    if check_errors:
        matrices.require_positive_definite(info.cpu().numpy())
    columns = torch.arange(1, x.shape[-1] + 1, device=x.device)
    is_left = (info[..., None] > 0) & (columns >= info[..., None])  # what ATen has not computed keeps its elements
    is_left = is_left[..., None] if upper else is_left[..., None, :]
    failed = torch.full_like(factor, math.nan)
    _write(out, (torch.where(is_left, failed.triu() if upper else failed.tril(), factor), info))


def lu_factor_ex(x: Any, pivot: bool, check_errors: bool, *, out: Any) -> None:
    factors = torch.linalg.lu_factor_ex(x, pivot=pivot)
    if check_errors:
        matrices.require_invertible("lu_factor", factors.info.cpu().numpy())
    _write(out, factors)


def _needs_exchanges(call: CallInfo) -> str | None:
    without = call.device.kind == "cpu" and not call.bind()["pivot"]
    return "LAPACK exchanges rows" if without else None


def pivots_to_permutation(pivots: Any, size: int, *, out: Any) -> None:
    # Exchanges are few, each of all batches at once; `lu_unpack` would need the factors.
    rows = torch.arange(size, device=pivots.device).expand(*pivots.shape[:-1], size).clone()
    for i in range(pivots.shape[-1]):
        other = pivots[..., i : i + 1].to(torch.int64) - 1
        other = torch.where((other >= 0) & (other < size), other, i)
        row, exchanged = rows[..., i : i + 1].clone(), rows.gather(-1, other)
        rows[..., i : i + 1] = exchanged
        rows.scatter_(-1, other, row)
    out.copy_(rows)


def qr(x: Any, complete: bool, *, out: Any) -> None:
    _write(out, torch.linalg.qr(x, "complete" if complete else "reduced"))


@matrices.converging("svd")
def svd(x: Any, full_matrices: bool, *, out: Any) -> None:
    _write(out, torch.linalg.svd(x, full_matrices))


@matrices.converging("eigh")
def eigh(x: Any, upper: bool, *, out: Any) -> None:
    _write(out, torch.linalg.eigh(x, "U" if upper else "L"))


DIALECT.implement("cholesky_ex", cholesky_ex)
DIALECT.implement("lu_factor_ex", lu_factor_ex, accepts=_needs_exchanges)
DIALECT.implement("pivots_to_permutation", pivots_to_permutation)
DIALECT.implement("qr", qr)
DIALECT.implement("svd", svd)
DIALECT.implement("eigh", eigh)
