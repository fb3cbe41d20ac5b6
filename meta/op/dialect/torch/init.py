"""Operators that create tensors by ATen, for complex numbers: `copy_` repeats the number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.op.dialect.torch import complex_only


def _filled(number: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    """The function that returns `number(*arguments)` as a tensor."""
    return lambda torch: lambda *args: torch.as_tensor(number(*args), dtype=torch.complex128)


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
