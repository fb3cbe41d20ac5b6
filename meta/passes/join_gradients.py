"""Gradients that a library computes in one call, from the statistics of the forward pass where it is in the program.

dx = layer_norm_dx(x, scale, dy)
dscale, dbias = layer_norm_dwb(x, dy)      =>      dx, dscale, dbias = layer_norm_dxwb(x, scale, dy)

y = layer_norm(x, scale, bias)             =>      y, mean, invstd = layer_norm_train(x, scale, bias)
... both of the gradients                  =>      ... = layer_norm_train_dxwb(dy, x, scale, mean, invstd)
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm.compute import TEImplementation
from meta.ir.expr import Binding, Call, CallInfo, Expr, FunctionExpr, Tuple, TupleGetItem, Var, arg_types
from meta.ir.visitor import walk
from meta.op.dispatch import first_accepting
from meta.op.registry import get
from meta.passes.manager import function_pass
from meta.passes.rewriting import Rule, Scope, by_op, counted, plain_call, rewrite

_Key = tuple[Any, ...]
"""The arguments that both calls of a pair have in common: x, dy, the axes and eps."""


@function_pass("join_gradients", "layer_norm_dwb")
def join_gradients(function: FunctionExpr) -> FunctionExpr:
    """Put layer_norm_dxwb in place of layer_norm_dx and layer_norm_dwb of the same operands, where the dialect that
    runs it is a library's, and layer_norm_train_dxwb where the program has the forward pass. Results stay the same up
    to rounding."""
    return rewrite(function, counted("join_gradients", by_op(_table(function))))


def _table(function: FunctionExpr) -> dict[str, Rule]:
    calls = [b.value for b in walk(function) if isinstance(b.value, Call)]
    sums = {_key(c) for c in calls if plain_call(c, "layer_norm_dwb")}
    scales = {_key(c): c.args[1] for c in calls if plain_call(c, "layer_norm_dx") and _key(c) in sums}
    scales = {key: scale for key, scale in scales.items() if _is_by_library("layer_norm_dxwb", _args(key, scale))}
    rows = {_rows(key) for key in scales}
    statistics: dict[_Key, tuple[Var, Var]] = {}
    joined: dict[_Key, Var] = {}

    def forward(binding: Binding, scope: Scope) -> Expr | None:
        call = plain_call(binding.value, "layer_norm")
        key: _Key = () if call is None else (call.args[0], *call.args[-2:])
        if call is None or key not in rows:
            return None
        results = scope.call(get("layer_norm_train"), call.args)
        statistics[key] = scope.get_item(results, 1), scope.get_item(results, 2)
        return TupleGetItem(results, 0, binding.span)

    def gradients(call: Call, scope: Scope) -> Var | None:
        """The results of the call for all gradients, in scope; None where there is none."""
        key = _key(call)
        if key not in scales:
            return None
        existing = joined.get(key)
        if existing is not None and scope.definition(existing) is not None:
            return existing
        scale = scales[key]
        if isinstance(scale, Var) and scale not in function.params and scope.definition(scale) is None:
            del scales[key]  # neither call of the pair is replaced
            return None
        x, dy, axis, _ = key
        moments = statistics.get(_rows(key), ())
        if moments and all(scope.definition(m) is not None for m in moments):
            joined[key] = scope.call(get("layer_norm_train_dxwb"), (dy, x, scale, *moments, axis))
        else:
            joined[key] = scope.call(get("layer_norm_dxwb"), _args(key, scale))
        return joined[key]

    def dx(binding: Binding, scope: Scope) -> Expr | None:
        call = plain_call(binding.value, "layer_norm_dx")
        joint = None if call is None else gradients(call, scope)
        return None if joint is None else TupleGetItem(joint, 0, binding.span)

    def dwb(binding: Binding, scope: Scope) -> Expr | None:
        call = plain_call(binding.value, "layer_norm_dwb")
        joint = None if call is None else gradients(call, scope)
        if joint is None:
            return None
        return Tuple((scope.get_item(joint, 1), scope.get_item(joint, 2)), binding.span)

    return {"layer_norm": forward, "layer_norm_dx": dx, "layer_norm_dwb": dwb}


def _key(call: Call) -> _Key:
    return (call.args[0], *call.args[-3:])


def _rows(key: _Key) -> _Key:
    """What determines the statistics: x, the axes and eps."""
    x, _, axis, eps = key
    return x, axis, eps


def _args(key: _Key, scale: Any) -> tuple[Any, ...]:
    x, dy, axis, eps = key
    return x, scale, dy, axis, eps


def _is_by_library(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a library computes all gradients of these operands in one call."""
    op, types = get(name), arg_types(args)
    x: Any = types[0]
    if not x.is_static:
        return False
    implementation = first_accepting(CallInfo(op, types, op.infer(types), x.device), in_program=True)
    return (
        implementation is not None
        and implementation.dialect.name != "reference"
        and not isinstance(implementation.payload, TEImplementation)
    )
