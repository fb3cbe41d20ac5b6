"""Linear algebra: products, factorizations, solutions and norms, named as in torch.linalg.

Matrices are the last two axes of a tensor, all axes before them are batches. Every function runs on arrays and on
traced values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta._generated.functions import matmul as matmul
    from meta.functional.products import outer as outer
    from meta.functional.products import tensordot as tensordot
    from meta.functional.products import trace as trace
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "meta._generated.functions": ("matmul",),
            "meta.functional.products": ("outer", "tensordot", "trace"),
        },
    )
