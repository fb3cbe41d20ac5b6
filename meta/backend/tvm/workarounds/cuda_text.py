"""Expressions that TVM writes as CUDA code which is wrong or does not compile, in a form that it writes well.

| expression | TVM writes |
| --- | --- |
| float64 literals | 15 decimals |
| float32 literals near the smallest numbers | more digits than float32 holds |
| NaN and infinities of bfloat16 | `inff`, an unknown name |
| reinterpreted literals | the address of a literal |
| a choice of vectors by one condition | the condition, repeated, as a vector of the dtype of the values |

Passes of TVM fold constants until the end of lowering, so these are the last changes.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.numbers import rounded


def in_cuda_text(func: Any) -> Any:
    """A device function with these expressions replaced."""
    func = tvm.structural_map(func, [(tvm.Call, _literal_of_bits), (tirx.Select, _by_one_condition)])
    return tvm.structural_map(func, (tvm.FloatImm, _literal))


def _literal(number: Any) -> Any:
    dtype, value = str(number.ty.dtype), float(number.value)
    if dtype == "float64" and math.isfinite(value) and float(f"{value:.15f}") != value:
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        return _double(bits)
    if dtype == "bfloat16" and not math.isfinite(value):
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        return tirx.call_pure_extern(dtype, "__ushort_as_bfloat16", tvm.IntImm("uint16", bits >> 16))
    if dtype == "float32" and math.isfinite(value):
        return tvm.FloatImm(dtype, rounded(value, dtype))
    return number


def _literal_of_bits(call: Any) -> Any:
    if str(getattr(call.op, "name", "")) != "tirx.reinterpret" or not isinstance(call.args[0], tvm.IntImm):
        return call
    dtype, bits = str(call.ty.dtype), int(call.args[0].value)
    if dtype == "float64":
        return _double(bits)
    return tvm.FloatImm(dtype, *struct.unpack("<f", struct.pack("<i", bits))) if dtype == "float32" else call


def _double(bits: int) -> Any:
    return tirx.call_pure_extern("float64", "__longlong_as_double", tvm.IntImm("int64", bits))


def _by_one_condition(choice: Any) -> Any:
    if not isinstance(choice.condition, tirx.Broadcast):
        return choice
    return tirx.if_then_else(choice.condition.value, choice.true_value, choice.false_value)
