"""Gradients of eigenvalues of general matrices."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.ir.type import TensorType
from meta.op.grad.support import fit


def eig_grad(x: TensorType, y_0: Tensor, y_1: Tensor, dy_0: Any, dy_1: Tensor | None) -> Tensor:
    """v^-H (diag(dw) + (v^H dv - v^H v diag(Re(v^H dv))) / E) v^H with E_ij = conj(w_j - w_i) off the diagonal, where
    the quotient is 0: the second term keeps the eigenvectors at length 1 (C. Boeddeker et al., "On the Computation of
    Complex-valued Gradients with Application to Statistically Optimum Beamforming", 2017, section 4.5)."""
    back = meta.conj(meta.swap_axis(y_1, -2, -1))
    if dy_1 is None:
        return fit(meta.solve_ex(back, meta.expand_dims(dy_0, -1) * back)[0], x)
    diagonal = meta.eye(y_0.shape[-1], None, y_0.dtype, y_0.device)
    along = meta.matmul(back, dy_1)
    lengths = meta.cast(meta.real(meta.sum(along * diagonal, (-2,), True)), y_0.dtype)
    across = along - meta.matmul(back, y_1 * lengths)
    values = meta.conj(y_0)
    gaps = meta.expand_dims(values, -2) - meta.expand_dims(values, -1) + diagonal
    inner = across / gaps * (1 - diagonal)
    if dy_0 is not None:
        inner = inner + meta.expand_dims(dy_0, -1) * diagonal
    return fit(meta.solve_ex(back, meta.matmul(inner, back))[0], x)
