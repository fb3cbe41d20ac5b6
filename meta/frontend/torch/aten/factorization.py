"""Factorizations of matrices, inverses and solutions of linear systems."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import accumulation_dtype, real_dtype
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import direct, row, rows
from meta.frontend.torch.aten._values import in_dtype
from meta.op.grad.support import adjoint

rows({
    "cholesky": "linalg.cholesky", "det": "det", "inverse": "linalg.inv", "linalg_cholesky": "linalg.cholesky",
    "linalg_cholesky_ex": "cholesky_ex", "linalg_det": direct("det", A="x"), "linalg_inv": direct("linalg.inv", A="x"),
    "linalg_inv_ex": direct("inv_ex", A="x"), "linalg_lu": direct("linalg.lu", A="x"),
    "linalg_lu_factor": direct("linalg.lu_factor", A="x"), "linalg_lu_factor_ex": direct("lu_factor_ex", A="x"),
    "linalg_lu_solve": direct("linalg.lu_solve", LU="factors", B="b"),
    "linalg_qr": direct("linalg.qr", A="x"), "linalg_slogdet": direct("slogdet", A="x"),
    "linalg_solve": direct("linalg.solve", A="a", B="b"), "linalg_solve_ex": direct("linalg.solve_ex", A="a", B="b"),
    "linalg_solve_triangular": direct("linalg.solve_triangular", self="a", B="b"),
    "linalg_tensorinv": "linalg.tensorinv",
    "linalg_tensorsolve": direct("linalg.tensorsolve", self="a", other="b", dims="axes"), "logdet": "linalg.logdet",
    "lu_unpack": direct("linalg.lu_unpack", LU_data="factors", LU_pivots="pivots"),
    "slogdet": "slogdet",
    "_linalg_det": lambda A: (meta.det(A), *_factors(A)),
    "_linalg_slogdet": lambda A: (*meta.slogdet(A), *_factors(A)),
    "linalg_eigh": lambda self, UPLO="L": meta.eigh(self, _reads_upper(UPLO)),
    "linalg_eigvalsh": lambda self, UPLO="L": meta.linalg.eigvalsh(self, _reads_upper(UPLO)),
    "qr": lambda self, some=True: meta.qr(self, not some),
    "lu_solve": lambda self, LU_data, LU_pivots: meta.linalg.lu_solve(LU_data, LU_pivots, self),
    "cholesky_solve": lambda self, input2, upper=False: _solved(self, _with_whole_gradient(input2, upper), upper),
    "linalg_pinv": lambda self, rcond=None, hermitian=False, *, atol=None, rtol=None:
        meta.linalg.pinv(self, atol, rtol if rcond is None else rcond, hermitian),
    "pinverse": lambda self, rcond=1e-15: meta.linalg.pinv(self, rtol=rcond),
})  # fmt: skip


@row("matrix_exp", "linalg_matrix_exp")
def matrix_exp(self: Tensor) -> Any:
    wide = accumulation_dtype(self.dtype) if self.dtype in ("float16", "bfloat16") else self.dtype
    return in_dtype(meta.matrix_exp(in_dtype(self, wide)), self.dtype)


def _reads_upper(UPLO: str) -> bool:
    if UPLO.upper() not in ("L", "U"):
        raise ArgumentError("eigh", f"UPLO is {UPLO!r}", "'L' or 'U'")
    return UPLO.upper() == "U"


@row()
def _linalg_eigh(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> Any:
    upper = _reads_upper(UPLO)
    if compute_v:
        return meta.eigh(A, upper)
    return meta.linalg.eigvalsh(A, upper), meta.zeros((0,), A.dtype, A.device)


def _factors(x: Tensor) -> Any:
    """The LU factors and pivots that ATen keeps for the gradient. meta's gradients compute their own."""
    return meta.lu_factor_ex(meta.stop_gradient(x))[:2]


@row()
def _linalg_solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    solution, info = meta.linalg.solve_ex(A, B, left=left, check_errors=check_errors)
    return solution, *_factors(A), info


@row()
def linalg_householder_product(input: Tensor, tau: Tensor) -> Any:
    """The first columns of a product of reflections I - tau v v^H, whose vectors v are the columns below a diagonal of
    ones."""
    *batch, m, n = input.shape
    count = tau.shape[-1]
    if n > m or count > n or tuple(tau.shape[:-1]) != tuple(batch):
        shapes = f"input has shape {tuple(input.shape)}, tau {tuple(tau.shape)}"
        raise ArgumentError("householder_product", shapes, "(..., m, n) with m >= n, and (..., k) with k <= n")
    identity = meta.eye(m, n, input.dtype, input.device)
    vectors = meta.tril(input, -1) + identity
    out = meta.broadcast_to(identity, tuple(input.shape))
    for i in reversed(range(count)):
        v = vectors[..., i : i + 1]
        out = out - meta.expand_dims(tau[..., i : i + 1], -1) * meta.matmul(v, meta.matmul(adjoint(v), out))
    return out


@row()
def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    _require_no_driver("svd", driver)
    return meta.svd(A, full_matrices)


@row()
def _linalg_svd(A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    if compute_uv:
        return linalg_svd(A, full_matrices, driver=driver)
    nothing = meta.zeros((0,), A.dtype, A.device)
    return nothing, linalg_svdvals(A, driver=driver), nothing


@row()
def linalg_svdvals(A: Tensor, *, driver: str | None = None) -> Any:
    _require_no_driver("svdvals", driver)
    return meta.linalg.svdvals(A)


def _require_no_driver(name: str, driver: str | None) -> None:
    """As torch on the CPU: drivers are cuSOLVER's."""
    if driver is not None:
        raise ArgumentError(name, f"driver is {driver!r}", "None, the default of the library")


@row()
def svd(self: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    if compute_uv:
        u, s, vh = meta.svd(self, not some)
        return u, s, adjoint(vh)
    *batch, m, n = self.shape
    empty = [meta.zeros((*batch, k, k), self.dtype, self.device) for k in (m, n)]
    return empty[0], meta.linalg.svdvals(self), empty[1]


@row()
def cholesky_inverse(self: Tensor, upper: bool = False) -> Any:
    factor = _with_whole_gradient(self, upper)
    return _solved(meta.eye(self.shape[-1], None, self.dtype, self.device), factor, upper)


def _with_whole_gradient(factor: Any, upper: bool) -> Any:
    """One triangle of a factor. ATen's gradient also has the other triangle, as if the factor were a full matrix."""
    if factor.ndim < 2:
        raise ArgumentError("cholesky", f"the factor has {factor.ndim} axes", "at least 2")
    triangle = meta.triu(factor) if upper else meta.tril(factor)
    return meta.stop_gradient(triangle) + (factor - meta.stop_gradient(factor))


def _solved(b: Tensor, factor: Any, upper: bool) -> Any:
    turned = adjoint(factor)
    first, second = (turned, factor) if upper else (factor, turned)
    return meta.solve_ex(second, meta.solve_ex(first, b)[0])[0]


@row()
def triangular_solve(
    self: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Any, Any]:
    a, is_upper = (meta.swap_axis(A, -2, -1), not upper) if transpose else (A, upper)
    return meta.solve_triangular(a, self, is_upper, unitriangular), A


_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@row()
def linalg_lstsq(self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """LAPACK's drivers return different parts: "gels" no rank, "gelsy" no residuals, and neither singular values."""
    driver_name = driver or "gelsy"
    if driver_name not in _DRIVERS:
        raise ArgumentError("lstsq", f"driver is {driver!r}", f"one of {', '.join(_DRIVERS)}")
    solution, residuals, rank, values = meta.linalg.lstsq(self, b, rcond)
    no_rank, nothing = (meta.zeros((0,), dtype, self.device) for dtype in ("int64", real_dtype(self.dtype)))
    return (
        solution,
        nothing if driver_name == "gelsy" else residuals,
        no_rank if driver_name == "gels" else rank,
        values if driver_name in ("gelsd", "gelss") else nothing,
    )
