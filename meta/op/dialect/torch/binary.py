"""Elementwise operators of two operands and `where` by ATen: for complex numbers, and where its kernels have vector
instructions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from meta.op.dialect.torch import complex_only, vectorised


def _on_tensors(function: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    """`function` with Python numbers as tensors of the dtype that the operands have: torch's logical operators refuse
    numbers, and a quotient of two numbers is Python's, which raises for zero."""

    def build(torch: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            like = next(arg for arg in args if isinstance(arg, torch.Tensor))
            return function(torch, *[torch.as_tensor(arg, dtype=like.dtype, device=like.device) for arg in args])

        return run

    return build


def _logical(name: str) -> Callable[[Any], Callable[..., Any]]:
    return _on_tensors(lambda torch, x1, x2: getattr(torch, name)(x1, x2))


complex_only(
    {
        "add": lambda torch: operator.add,
        "addcdiv": _on_tensors(lambda torch, x, x1, x2, value: x + value * (x1 / x2)),
        "addcmul": lambda torch: lambda x, x1, x2, value: x + value * x1 * x2,
        "divide": lambda torch: operator.truediv,
        "equal": lambda torch: operator.eq,
        "logical_and": _logical("logical_and"),
        "logical_or": _logical("logical_or"),
        "logical_xor": _logical("logical_xor"),
        "multiply": lambda torch: operator.mul,
        "not_equal": lambda torch: operator.ne,
        "subtract": lambda torch: operator.sub,
    },
    promote=True,
)


def _remainder(name: str) -> Callable[[Any], Callable[..., Any]]:
    """`fmod` or `remainder`. ATen gives NaN where the quotient is infinite, as in 1e30 / 1e-30; NumPy computes those
    elements. A remainder of zero gets the sign of the divisor, as in NumPy."""

    def build(torch: Any) -> Callable[..., None]:
        def run(a: Any, b: Any, *, out: Any) -> None:
            getattr(torch, name)(a, b, out=out)
            if out.sum().isnan():
                missing = out.isnan()
                left, right = (x.expand_as(out)[missing].numpy() for x in (a, b))
                with np.errstate(invalid="ignore"):
                    out[missing] = torch.from_numpy(getattr(np, name)(left, right))
            if name == "remainder":
                torch.copysign(out, b, out=out)

        return run

    return build


def _where(torch: Any) -> Callable[..., Any]:
    """torch promotes no unsigned integers of more than 8 bits: these are cast to the dtype of the complex operand."""
    unsigned = (torch.uint16, torch.uint32, torch.uint64)

    def run(condition: Any, *values: Any) -> Any:
        like = next(x for x in values if isinstance(x, torch.Tensor) and x.is_complex())
        wide = [x.to(like.dtype) if isinstance(x, torch.Tensor) and x.dtype in unsigned else x for x in values]
        return torch.where(condition, *wide)

    return run


complex_only({"where": _where})
vectorised({name: name for name in ("atan2", "floor_divide", "hypot")})
vectorised({"power": "pow"}, takes_complex=True, promote=True)
vectorised({"mod": _remainder("remainder"), "trunc_mod": _remainder("fmod")})
