"""Conversions of dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.dtype import itemsize
from meta.errors import TypeInferenceError
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.frontend.onnx.ops._values import dtype_of, host_dtype, is_host, tensor
from meta.functional._checks import as_dtype


def cast_to(node: Node, x: Any, dtype: str) -> Any:
    """x in another dtype; sizes stay sizes as integers."""
    if not is_host(x):
        return as_dtype(x, dtype)
    if x.dtype.kind in "OSU" and x.dtype != object:
        refuse(node, "text is cast", "numbers")
    if x.dtype != object:
        with np.errstate(invalid="ignore", over="ignore"):
            return x.astype(host_dtype(dtype))
    return x if dtype in ("int32", "int64") else as_dtype(tensor(x), dtype)


@row("Cast", since=6, raw=True)
def cast(node: Node, input: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """saturate and round_mode matter for floats of 8 bits only, which are refused."""
    return cast_to(node, input, dtype_of("Cast", to))


@row("BitCast", since=26, constants=("input",))
def bit_cast(node: Node, input: Any, *, to: int) -> Any:
    """The same bits as another dtype of the same size, for values that are known."""
    dtype = dtype_of("BitCast", to)
    if itemsize(dtype) != input.dtype.itemsize:
        raise TypeInferenceError("BitCast", f"{input.dtype} is read as {dtype}", "a dtype of the same size")
    bits = np.ascontiguousarray(input).reshape(input.shape)
    return bits.view(np.uint8) != 0 if dtype == "bool" else bits.view(host_dtype(dtype))
