"""Operators on complex numbers and their parts by ATen."""

from __future__ import annotations

from typing import Any

from meta.op.dialect.torch import complex_only


def sgn(torch: Any) -> Any:
    """x / abs(x), 0 at 0. ATen's is infinite for denormal numbers: they are divided by their larger part first."""

    def run(x: Any) -> Any:
        parts = torch.view_as_real(x)
        larger = parts.abs().amax(-1, keepdim=True)
        scaled = parts / larger.masked_fill(larger == 0, 1)
        size = torch.hypot(scaled[..., :1], scaled[..., 1:])
        return torch.view_as_complex(scaled / size.masked_fill(size == 0, 1))

    return run


complex_only({name: name for name in ("angle", "complex", "conj", "imag", "polar", "real")})
complex_only({"sgn": sgn})
