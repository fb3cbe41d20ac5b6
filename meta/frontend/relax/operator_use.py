"""The operators that a Relax function calls, and whether they are supported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meta.frontend.examination import OperatorUse, operator_uses
from meta.frontend.reader import Reader
from meta.frontend.relax.convert import KERNEL_CALLS, PACKED_CALLS, PREFIX, span_of
from meta.frontend.relax.ops._table import table
from meta.frontend.relax.sizes import RelaxError, UnsupportedError, variable_name

_REASONS = {
    "call_tir_inplace": "the kernel overwrites its operands",
    "call_inplace_packed": "the function overwrites its operands",
    "print": "it has an effect",
    "assert_op": "it has an effect",
}

READER = Reader(
    "relax", RelaxError, UnsupportedError, "calls",
    "docs/relax.md lists the supported ones; functions={...} gives what computes others",
)  # fmt: skip


def operators(module: Any, entry: str, functions: Mapping[str, Any]) -> tuple[OperatorUse, ...]:
    """The operators that a function and those that it calls use, by name, with the names of their bindings or the lines
    that the module tells. Kernels of the module are "call_tir"; packed functions have their own names. Nothing is
    converted. functions: what is given for kernels and packed functions."""
    places: dict[str, list[int | str]] = {}
    supported: set[str] = set()
    reasons: dict[str, str] = {}
    reached: set[str] = set()
    pending = [entry]
    by_name = {str(g.name_hint): f for g, f in module.functions.items()}
    while pending:
        name = pending.pop()
        if name in reached or type(by_name.get(name)).__name__ != "Function":
            continue
        reached.add(name)
        for place, call in _calls(by_name[name]):
            kind = type(call.op).__name__
            if kind == "GlobalVar":
                pending.append(str(call.op.name_hint))
                continue
            used, is_supported, reason = _use(call, kind, by_name, functions)
            places.setdefault(used, []).append(place)
            if is_supported:
                supported.add(used)
            elif reason:
                reasons[used] = reason
    return operator_uses(places, supported, reasons)


def _use(call: Any, kind: str, by_name: Mapping[str, Any], functions: Mapping[str, Any]) -> tuple[str, bool, str]:
    """The operator of a call, whether it is supported, and the reason why not."""
    if kind != "Op":
        name = str(getattr(call.op, "global_symbol", variable_name(call.op) if kind == "Var" else kind))
        return name, name in functions, "a packed function"
    name = str(call.op.name).removeprefix(PREFIX)
    target = call.args[0] if len(call.args) else None
    if name in KERNEL_CALLS:
        kernel = str(getattr(target, "name_hint", target))
        is_supported = kernel in functions or type(by_name.get(kernel)).__name__ == "PrimFunc"
        return name, is_supported, f"@{kernel} is not a PrimFunc of the module"
    if name in PACKED_CALLS:
        packed = str(getattr(target, "global_symbol", target))
        return packed, packed in functions, "a packed function"
    return name, table.find(name) is not None, _REASONS.get(name, "")


def _calls(function: Any) -> Iterator[tuple[int | str, Any]]:
    """The calls of a function in order, each with its place."""
    pending: list[tuple[int | str, Any]] = [("", function.body)]
    while pending:
        place, node = pending.pop()
        match type(node).__name__:
            case "SeqExpr":
                inner = [
                    (str(span_of(b) or variable_name(b.var)), b.value) for block in node.blocks for b in block.bindings
                ]
                pending += [*inner, (place, node.body)][::-1]
            case "Call":
                yield place or "result", node
                pending += [(place, arg) for arg in node.args if type(arg).__name__ == "Call"]
            case "If":
                pending += [(place, node.false_branch), (place, node.true_branch)]
            case "Tuple":
                pending += [(place, field) for field in node.fields]
            case "TupleGetItem":
                pending.append((place, node.tuple_value))
            case _:
                pass
