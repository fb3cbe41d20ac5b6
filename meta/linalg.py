"""Linear algebra: products, factorizations, solutions and norms, named as in torch.linalg.

Matrices are the last two axes of a tensor, all axes before them are batches. Every function runs on arrays and on
traced values. Factorizations are LAPACK's, through torch or NumPy, and cuSOLVER's, through torch; they compute in
float32, float64, complex64 and complex128, and compiled programs call them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.functional._numpy import takes_numpy
from meta.lazy import exports

if TYPE_CHECKING:
    from meta._generated.functions import cholesky_ex as cholesky_ex
    from meta._generated.functions import det as det
    from meta._generated.functions import eig as eig
    from meta._generated.functions import eigh as eigh
    from meta._generated.functions import inv_ex as inv_ex
    from meta._generated.functions import lu_factor_ex as lu_factor_ex
    from meta._generated.functions import matmul as matmul
    from meta._generated.functions import matrix_exp as matrix_exp
    from meta._generated.functions import slogdet as slogdet
    from meta._generated.functions import svd as svd
    from meta.functional.linalg.factor import cholesky as cholesky
    from meta.functional.linalg.factor import cholesky_inverse as cholesky_inverse
    from meta.functional.linalg.factor import cholesky_solve as cholesky_solve
    from meta.functional.linalg.factor import eigvals as eigvals
    from meta.functional.linalg.factor import eigvalsh as eigvalsh
    from meta.functional.linalg.factor import lu as lu
    from meta.functional.linalg.factor import lu_factor as lu_factor
    from meta.functional.linalg.factor import lu_unpack as lu_unpack
    from meta.functional.linalg.factor import qr as qr
    from meta.functional.linalg.factor import svdvals as svdvals
    from meta.functional.linalg.norms import cond as cond
    from meta.functional.linalg.norms import matrix_norm as matrix_norm
    from meta.functional.linalg.norms import matrix_rank as matrix_rank
    from meta.functional.linalg.norms import norm as norm
    from meta.functional.linalg.norms import vector_norm as vector_norm
    from meta.functional.linalg.products import diagonal as diagonal
    from meta.functional.linalg.products import multi_dot as multi_dot
    from meta.functional.linalg.products import vander as vander
    from meta.functional.linalg.products import vecdot as vecdot
    from meta.functional.linalg.solve import inv as inv
    from meta.functional.linalg.solve import logdet as logdet
    from meta.functional.linalg.solve import lstsq as lstsq
    from meta.functional.linalg.solve import lu_solve as lu_solve
    from meta.functional.linalg.solve import matrix_power as matrix_power
    from meta.functional.linalg.solve import pinv as pinv
    from meta.functional.linalg.solve import solve as solve
    from meta.functional.linalg.solve import solve_ex as solve_ex
    from meta.functional.linalg.solve import solve_triangular as solve_triangular
    from meta.functional.linalg.solve import tensorinv as tensorinv
    from meta.functional.linalg.solve import tensorsolve as tensorsolve
    from meta.functional.products import cross as cross
    from meta.functional.products import outer as outer
    from meta.functional.products import tensordot as tensordot
    from meta.functional.products import trace as trace
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta._generated.functions": (
            "cholesky_ex", "det", "eig", "eigh", "inv_ex", "lu_factor_ex", "matmul", "matrix_exp", "slogdet", "svd",
        ),
        "meta.functional.linalg.factor": (
            "cholesky", "cholesky_inverse", "cholesky_solve", "eigvals", "eigvalsh", "lu", "lu_factor",
            "lu_unpack", "qr", "svdvals",
        ),
        "meta.functional.linalg.norms": ("cond", "matrix_norm", "matrix_rank", "norm", "vector_norm"),
        "meta.functional.linalg.products": ("diagonal", "multi_dot", "vander", "vecdot"),
        "meta.functional.linalg.solve": (
            "inv", "logdet", "lstsq", "lu_solve", "matrix_power", "pinv", "solve", "solve_ex", "solve_triangular",
            "tensorinv", "tensorsolve",
        ),
        "meta.functional.products": ("cross", "outer", "tensordot", "trace"),
    }, takes_numpy)  # fmt: skip
