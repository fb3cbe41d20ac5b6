"""Dot products of four bytes, added to sums of 32 bits: one instruction for a register of sums where the CPU has it.

    sums[lane] += x[0] * w[lane, 0] + x[1] * w[lane, 1] + x[2] * w[lane, 2] + x[3] * w[lane, 3]

`dot` is an operator of the eight bytes, which the end of lowering replaces in such a sum over the lanes of a vector.
x86 has an instruction for unsigned x and signed w (VNNI), ARM for signed x (`sdot`). Elsewhere it is four products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import cpu as cpus
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.intrinsic import Expr, dtype_of, operator
from meta.modes import modes

DOT: Final = "meta.dot"
_BYTES: Final = 4
_VNNI: Final = {512: "avx512vnni", 256: "avxvnni", 128: "avxvnni"}
"""The features of x86 with a dot product of registers of so many bits. AVX-512's is for shorter ones with avx512vl."""


def dot(x: Sequence[Expr], w: Sequence[Expr]) -> Any:
    """The sum of the products of four bytes of x and of w, int32."""
    return tirx.call_intrin("int32", _operator(), *x, *w)


def _operator() -> Any:
    return operator("dot", 2 * _BYTES)


def register_operators() -> None:
    """Make the operator known to TVM, for a function that another process wrote."""
    _operator()


def operand_dtype() -> str:
    """The dtype of x that the CPU compiled for has an instruction for: "uint8" or "int8"; "" if it has none."""
    from meta.backend.tvm.target import vector_bits

    features, bits = cpus.features_of(modes.cpu or cpus.host()), vector_bits()
    return next((dtype for dtype in ("uint8", "int8") if _instruction_name(dtype, bits, features)), "")


def expand_dots(func: tvm.PrimFunc) -> Any:
    """`func` with sums of dot products as instructions of its target, and others as products."""
    features = frozenset(map(str, tvm.cpu_features(func.attrs["target"])))
    stored = tvm.structural_map(func, (tvm.BufferStore, lambda store: _store(store, features)))
    return tvm.structural_map(stored, (tvm.Call, lambda call: _products(call) if _is_dot(call) else call))


def _is_dot(value: Any) -> bool:
    return isinstance(value, tvm.Call) and getattr(value.op, "name", "") == DOT


def _products(call: Any) -> Any:
    wide = [_cast(value, dtype_of(call)) for value in call.args]
    total = wide[0] * wide[_BYTES]
    for i in range(1, _BYTES):
        total = total + wide[i] * wide[_BYTES + i]
    return total


def _cast(value: Any, dtype: str) -> Any:
    return tirx.Cast(tvm.PrimType(dtype), value)


def _narrow(value: Any) -> Any:
    """An operand without the casts to more bits and back, in which TVM's sums wrap around."""
    while isinstance(value, tirx.Cast) and dtype_of(value.value).startswith("int"):
        value = value.value
    return value


def _store(store: Any, features: frozenset[str]) -> Any:
    total = _narrow(store.value)
    if not isinstance(total, tirx.Add):
        return store
    for call, sums in ((total.a, total.b), (total.b, total.a)):
        if _is_dot(_narrow(call)):
            value = _instruction(_narrow(call), _narrow(sums), features)
            return store if value is None else tvm.BufferStore(store.buffer, value, store.indices)
    return store


def _instruction(call: Any, sums: Any, features: frozenset[str]) -> Any:
    """A vector of sums with the dot products added; None for bytes that are not adjacent."""
    lanes = _lanes(dtype_of(call))
    x, w = (_adjacent(call.args[:_BYTES], 1), _adjacent(call.args[_BYTES:], lanes))
    if x is None or w is None or lanes == 1:
        return None
    one, dtype = dtype_of(x).partition("x")[0], dtype_of(call)
    name = _instruction_name(one, 32 * lanes, features)
    if not name:
        return None
    copies = tirx.Broadcast(tirx.reinterpret("int32", x), lanes)
    return tirx.call_llvm_pure_intrin(dtype, name, sums, tirx.reinterpret(f"{one}x{_BYTES * lanes}", copies), w)


def _instruction_name(dtype: str, bits: int, features: frozenset[str]) -> str:
    """The name of LLVM's instruction for x of a dtype and a register of so many bits of sums; "" if there is none."""
    if dtype == "int8":
        return "llvm.aarch64.neon.sdot" if "dotprod" in features and bits == 128 else ""
    has_short = "avx512vl" in features and "avx512vnni" in features
    is_single = has_short or _VNNI.get(bits, "") in features
    return f"llvm.x86.avx512.vpdpbusd.{bits}" if is_single and bits in _VNNI else ""


def _lanes(dtype: str) -> int:
    return int(dtype.partition("x")[2] or 1)


def _adjacent(loads: Sequence[Any], lanes: int) -> Any:
    """One load of adjacent bytes, four for each of the lanes; None if they are not."""
    loads = [load.value if lanes == 1 and isinstance(load, tirx.Broadcast) else load for load in loads]
    if not all(isinstance(load, tvm.TensorLoad) and load.source.same_as(loads[0].source) for load in loads):
        return None
    indices = [load.indices[-1] for load in loads]
    if lanes > 1:
        strided = [i for i in indices if isinstance(i, tirx.Ramp) and int(i.stride) == _BYTES]
        indices = [i.base for i in strided]
    analyzer = tvm.Analyzer()
    first = indices[0] if len(indices) == _BYTES else None
    if first is None or not all(analyzer.can_prove_equal(index - first, i) for i, index in enumerate(indices)):
        return None
    one = dtype_of(loads[0]).partition("x")[0]
    return loads[0].source.vload([*loads[0].indices[:-1], first], f"{one}x{_BYTES * lanes}")
