"""Pools with channels last: pools of one channel with another spatial axis, along which windows have one element.

Indices of maxima then follow that layout."""

from __future__ import annotations

from typing import Any

from meta.ir.expr import Call, FunctionExpr, TupleGetItem, Var
from meta.ir.visitor import reads
from meta.op import windows
from meta.op.registry import Op


def arguments_of(call: Call) -> dict[str, Any]:
    """The arguments of an operator's call by name."""
    assert isinstance(call.op, Op)
    return dict(zip(call.op.schema.names, call.args, strict=True))


def indices_of(function: FunctionExpr, call: Call) -> list[Var] | None:
    """The variables of a max pool's indices; None if they are used by more than gradients of this pool."""
    bindings = function.body.bindings
    pooled = next((b.var for b in bindings if b.value is call), None)
    items = [(b.var, b.value) for b in bindings if isinstance(b.value, TupleGetItem) and b.value.value is pooled]
    indices = [var for var, item in items if item.index == 1]
    own = [item for _, item in items]
    for value in (*(b.value for b in bindings), function.body.result):
        read = list(reads(value))
        if any(a is pooled for a in read) and not any(value is item for item in own):
            return None
        uses = sum(any(a is i for i in indices) for a in read)
        if uses and not (uses == 1 and isinstance(value, Call) and _is_gradient_of(value, call)):
            return None
    return indices if pooled is not None else None


def _is_gradient_of(value: Call, pool: Call) -> bool:
    """Whether a call is the gradient of a max pool of these windows."""
    if value.op_name != pool.op_name.replace("_with_indices", "_dx"):
        return False
    args = arguments_of(value)
    names = ("kernel", "stride", "padding", "dilation", "ceil_mode")
    same_windows = all(args[name] == arguments_of(pool)[name] for name in names)
    return same_windows and tuple(args["shape"]) == tuple(arguments_of(pool)["x"].type.shape)


def windows_of(args: dict[str, Any], rank: int) -> tuple[Any, ...]:
    """The windows of a pool, with one of size 1 for channels on the last axis."""
    kernel, dilation = (windows.per_axis(name, args[name], rank) for name in ("kernel", "dilation"))
    stride = windows.per_axis("stride", args["stride"], rank) if args["stride"] else kernel
    before, after = zip(*windows.pads(args["padding"], rank), strict=True)
    return (*kernel, 1), (*stride, 1), (*before, 0, *after, 0), (*dilation, 1), args["ceil_mode"]
