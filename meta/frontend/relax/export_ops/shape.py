"""Operators that move elements."""

from __future__ import annotations

from typing import Any

from meta.frontend.relax.export_ops._table import RelaxSite, row, rows

rows({
    "broadcast_to": lambda call, x, shape: call.op.broadcast_to(x, call.shape(call.result.shape)),
    "concatenate": lambda call, xs, axis: call.op.concat(list(xs), axis) if call.is_uniform else None,
    "full": lambda call, shape, value, dtype, device: (
        call.op.full(call.shape(call.result.shape), call.number(value, dtype), dtype)
        if isinstance(value, (bool, int, float)) and dtype != "bfloat16"
        else None
    ),
    "transpose": lambda call, x, axes: call.op.permute_dims(x, None if axes is None else list(axes)),
    "tril": lambda call, x, k: call.op.tril(x, k) if call.is_wide else None,
    "triu": lambda call, x, k: call.op.triu(x, k) if call.is_wide else None,
})  # fmt: skip
row("copy", "stop_gradient", "device_copy")(lambda call, x, *_: x)


@row("flip")
def flip(call: RelaxSite, x: Any, axis: tuple[int, ...] | None) -> Any:
    return call.op.flip(x, axis[0] % call.result.ndim) if axis is not None and len(axis) == 1 else None
