"""Values bound to variables in expressions."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.te.intrinsic import dtype_of


def repeat_bfloat16_bindings(func: Any) -> Any:
    """A function without loads of bfloat16 in the values of `Let`: TVM's legalisation skips these values, and the bits
    would be read as another number.

    On the CPU, a load that is cast at once is written as the conversion of its bits, which needs no legalisation. All
    other values with such loads are computed anew where they are used, in time exponential in the nesting of bindings.
    """
    target = func.attrs["target"] if func.attrs and "target" in func.attrs else None
    on_cpu = target is not None and str(target.kind.name) == "llvm"
    return _repeat_bindings(func, on_cpu)


def _repeat_bindings(node: Any, on_cpu: bool) -> Any:
    def repeat(let: Any) -> Any:
        value = tvm.structural_map(let.value, (tirx.Cast, _from_bits)) if on_cpu else let.value
        if not _loads_bfloat16(value):
            return let if value.same_as(let.value) else tirx.Let(let.var, value, let.body)
        # The bindings inside have been visited before the value was put there.
        return _repeat_bindings(
            tvm.structural_map(let.body, (tvm.Var, lambda v: value if v.same_as(let.var) else v)), on_cpu
        )

    return tvm.structural_map(node, (tirx.Let, repeat))


def _from_bits(cast: Any) -> Any:
    """A cast; of a bfloat16 in memory, by way of the float32 whose upper half has its bits."""
    if not isinstance(cast.value, tvm.TensorLoad) or dtype_of(cast.value) != "bfloat16":
        return cast
    bits = tirx.reinterpret("uint16", cast.value).astype("uint32")
    number = tirx.reinterpret("float32", tirx.shift_left(bits, tirx.const(16, "uint32")))
    return number if dtype_of(cast) == "float32" else number.astype(dtype_of(cast))


def _loads_bfloat16(value: Any) -> bool:
    """Whether a value loads bfloat16 other than as bits."""
    others = tvm.structural_map(value, (tvm.Call, lambda c: tirx.const(0, "uint16") if _is_bits(c) else c))
    loads: list[Any] = []
    tvm.structural_walk(others, (tvm.TensorLoad, lambda load: loads.append(dtype_of(load))))
    return any("bfloat16" in dtype for dtype in loads)


def _is_bits(call: Any) -> bool:
    is_reinterpreted = getattr(call.op, "name", "") == "tirx.reinterpret"
    return is_reinterpreted and dtype_of(call) == "uint16" and isinstance(call.args[0], tvm.TensorLoad)
