"""How the families of this dialect register tables of NumPy functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np

from meta import dtype as dtypes
from meta.ir.type import tensor_type
from meta.op.dialect.reference import DIALECT
from meta.op.registry import get
from meta.op.rules import promoted_dtype

Function = Callable[..., Any]


def plain(table: Mapping[str, Function]) -> None:
    """Register `function(*args in schema order)` for each operator, without NumPy's warnings: infinities and NaN are
    results here, not accidents."""
    for name, function in table.items():
        DIALECT.implement(name, _quiet(function))


def elementwise(table: Mapping[str, Function]) -> None:
    """Register `function(*operands, *attributes)`: the operands in their common dtype, halves in float32."""
    plain({name: _promoted(name, function) for name, function in table.items()})


def _quiet(function: Function) -> Function:
    @wraps(function)
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return run


def _promoted(name: str, function: Function) -> Function:
    tensors = [arg.is_tensor for arg in get(name).schema.args]

    def run(*args: Any) -> Any:
        operands = [a for a, is_tensor in zip(args, tensors, strict=True) if is_tensor]
        attributes = [a for a, is_tensor in zip(args, tensors, strict=True) if not is_tensor]
        return function(*together(*operands), *attributes)

    return run


def together(*operands: Any) -> list[Any]:
    """Arrays and Python numbers as arrays of their common dtype, halves as float32."""
    kinds = [tensor_type(x.shape, dtypes.canonical(x.dtype)) if isinstance(x, np.ndarray) else x for x in operands]
    dtype = promoted_dtype(*kinds)
    common = np.dtype(dtypes.accumulation_dtype(dtype))
    return [np.asarray(x).astype(common) for x in operands]


def floating(x: Any) -> Any:
    """x itself, or as float64 when it is of integers or booleans."""
    return x if x.dtype.kind == "f" else x.astype(np.float64)
