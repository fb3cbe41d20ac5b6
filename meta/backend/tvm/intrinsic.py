"""meta's operators in TVM expressions: TVM's passes treat them as calls, and the end of lowering expands them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from meta.backend.tvm import adapter as tvm
from meta.locks import new_lock

_lock = new_lock("operators of TVM")

if TYPE_CHECKING:
    from meta.backend.tvm.adapter import Call as Call
    from meta.backend.tvm.adapter import Expr as Expr
    from meta.backend.tvm.adapter import Tensor as Tensor
else:
    Call = Expr = Tensor = Any  # annotations do not import TVM
Lowering = Callable[[Call], Expr]
"""A call -> its expansion."""


def dtype_of(x: Expr) -> str:
    """The dtype of an expression or tensor element, with lanes: "float32", "float32x16"."""
    return str(x.dtype if hasattr(x, "dtype") else x.ty)


def operator(name: str, inputs: int, *, like: str = "tirx.exp", **lowerings: Lowering) -> Any:
    """The operator `meta.<name>`, vectorisable; registers it with TVM on first use.

    like: an operator of TVM with the same side effects, by default none.
    lowerings: its expansion by target kind, such as `llvm`, and `default` for all other kinds."""
    full = f"meta.{name}"
    with _lock:
        try:
            tvm.register_op(full, f"{full}, expanded by meta")
        except AttributeError:  # it is registered
            return tvm.Op.get(full)
        op = tvm.Op.get(full)
        op.set_num_inputs(inputs)
        op.set_attr("TCallEffectKind", tvm.Op.get(like).get_attr("TCallEffectKind"))
        op.set_attr("TVectorizable", True)
        op.set_attr("TScriptPrinterName", full)
        for kind, lower in lowerings.items():
            op.set_attr(f"{kind}.FLowerIntrinsic", lower)
        return op


def nearbyint(x: Expr) -> Expr:
    """The nearest integer, halves to even. TVM's operator takes vectors, but does not say so: vectorised loops with it
    were scalar, and a rounded transpose took seven times as long."""
    _takes_vectors("tirx.nearbyint")
    return tvm.tirx.nearbyint(x)


@cache
def _takes_vectors(name: str) -> None:
    tvm.Op.get(name).set_attr("TVectorizable", True)


def bind(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """`body` of a variable bound to `value`, so that the value is computed once; of the value itself where it reads
    nothing, since TVM folds some copies of it and then takes the bindings of one variable for different ones."""
    if not tvm.tirx.analysis.undefined_vars(value):
        return body(value)
    var, within = binding(value)
    return within(body(var))


def binding(value: Expr) -> tuple[Expr, Callable[[Expr], Expr]]:
    """A variable, and the function that binds it to `value` in an expression."""
    var = tvm.Var("t", dtype_of(value))
    return var, lambda body: tvm.tirx.Let(var, value, body)


def shared(value: Expr) -> Expr:
    """`value` as the value of a variable that passes of TVM keep: they substitute values without side effects."""
    return tvm.tirx.call_intrin(dtype_of(value), _identity(), value)


def shared_value(call: Expr) -> Expr | None:
    """The value of a call of `shared`, None for other expressions."""
    return call.args[0] if isinstance(call, tvm.Call) and call.op.same_as(_identity()) else None


@cache
def _identity() -> Any:
    """An identity that reads state, as far as TVM knows."""
    return operator("shared", 1, like="tirx.tvm_struct_get", default=lambda call: call.args[0])


def register_operators() -> None:
    """Make the operators of this module known to TVM, for a function that another process wrote."""
    _identity()
    _takes_vectors("tirx.nearbyint")
