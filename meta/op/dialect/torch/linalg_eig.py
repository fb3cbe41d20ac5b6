"""Eigenvalues of general matrices by ATen: LAPACK on the CPU, cuSOLVER or MAGMA on CUDA."""

from __future__ import annotations

from typing import Any

import torch

from meta.op import matrices
from meta.op.dialect.torch import DIALECT


@matrices.converging("eig")
def eig(x: Any, *, out: Any) -> None:
    factor = _factor(x)
    values, vectors = torch.linalg.eig(x if factor is None else x * factor)
    if factor is not None:  # by parts: a complex quotient overflows
        values = torch.view_as_complex(torch.view_as_real(values) / factor)
    out[0].copy_(values)
    out[1].copy_(vectors)


def _factor(x: Any) -> Any:
    """Powers of 2, one for each matrix, that matrices of numbers near the dtype's limit are multiplied by; None if no
    matrix has such numbers. LAPACK writes outside of its arrays for some whose squares are infinite."""
    parts = torch.view_as_real(x).flatten(-2) if x.is_complex() else x
    if not parts.numel():
        return None
    largest = parts.abs().amax((-2, -1), keepdim=True)
    is_large = (largest > torch.finfo(largest.dtype).max ** 0.5) & largest.isfinite()
    if not is_large.any():
        return None
    exponents = torch.where(is_large, -torch.frexp(largest).exponent, 0)
    return torch.ldexp(torch.ones_like(largest), exponents)


DIALECT.implement("eig", eig)
