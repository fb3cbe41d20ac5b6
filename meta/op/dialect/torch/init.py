"""Operators that create tensors by ATen, for complex numbers: `copy_` repeats the number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.op.dialect.torch import complex_only


def _filled(number: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    """The function that returns `number(*arguments)` as a tensor. It is complex for complex numbers only: results of
    real dtypes are filled too, and torch warns of imaginary parts that they lose."""

    def of(torch: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            value = number(*args)
            if isinstance(value, int) and abs(value) < 2**63:
                return torch.as_tensor(value)
            return torch.as_tensor(value, dtype=torch.complex128 if isinstance(value, complex) else torch.float64)

        return run

    return of


complex_only(
    {
        "eye": lambda torch: lambda n, m, dtype, device: torch.eye(n, n if m is None else m),
        "full": _filled(lambda shape, value, *_: value),
        "full_like": _filled(lambda x, value, *_: value),
        "ones": _filled(lambda *_: 1),
        "ones_like": _filled(lambda *_: 1),
        "zeros": _filled(lambda *_: 0),
        "zeros_like": _filled(lambda *_: 0),
    }
)
