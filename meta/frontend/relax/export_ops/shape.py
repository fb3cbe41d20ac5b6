"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta.frontend.relax.export_ops._table import RelaxSite, row


@row("transpose")
def transpose(call: RelaxSite, x: Any, axes: tuple[int, ...] | None) -> Any:
    return call.op.permute_dims(x, None if axes is None else list(axes))


@row("swap_axis")
def swap_axis(call: RelaxSite, x: Any, axis1: int, axis2: int) -> Any:
    axes = list(range(call.result.ndim))
    axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
    return call.op.permute_dims(x, axes)


@row("concatenate")
def concatenate(call: RelaxSite, xs: Sequence[Any], axis: int) -> Any:
    return call.op.concat(list(xs), axis) if call.is_uniform else None


@row("stack")
def stack(call: RelaxSite, xs: Sequence[Any], axis: int) -> Any:
    return call.op.stack(list(xs), axis) if call.is_uniform else None


@row("broadcast_to")
def broadcast_to(call: RelaxSite, x: Any, shape: tuple[Any, ...]) -> Any:
    return call.op.broadcast_to(x, call.shape(call.result.shape))


@row("flip")
def flip(call: RelaxSite, x: Any, axis: tuple[int, ...] | None) -> Any:
    return call.op.flip(x, axis[0] % call.result.ndim) if axis is not None and len(axis) == 1 else None


@row("tril")
def tril(call: RelaxSite, x: Any, k: int) -> Any:
    return call.op.tril(x, k) if call.is_wide else None


@row("triu")
def triu(call: RelaxSite, x: Any, k: int) -> Any:
    return call.op.triu(x, k) if call.is_wide else None


@row("zeros", "ones")
def filled(call: RelaxSite, shape: tuple[Any, ...], dtype: str, device: Any) -> Any:
    function = call.op.zeros if call.call.op_name == "zeros" else call.op.ones
    return function(call.shape(call.result.shape), dtype)


@row("copy", "stop_gradient", "device_copy")
def copy(call: RelaxSite, x: Any, *_: Any) -> Any:
    return x
