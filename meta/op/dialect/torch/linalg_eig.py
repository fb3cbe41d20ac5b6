"""Eigenvalues of general matrices by ATen: LAPACK on the CPU, cuSOLVER or MAGMA on CUDA."""

from __future__ import annotations

from typing import Any

import torch

from meta.op import matrices
from meta.op.dialect.torch import DIALECT


@matrices.converging("eig")
def eig(x: Any, *, out: Any) -> None:
    for target, result in zip(out, torch.linalg.eig(x), strict=True):
        target.copy_(result)


DIALECT.implement("eig", eig)
