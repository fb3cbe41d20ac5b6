"""Values of a model that is converted: tensors (arrays or symbols), and NumPy arrays, which are known at conversion.

A NumPy array of dtype object holds sizes: ints and symbolic sizes (`meta.dim`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dim import Dim, is_static
from meta.dtype import canonical, to_numpy
from meta.eager.ndarray import NDArray, asarray
from meta.errors import AxisError, NotSupportedError, TypeInferenceError
from meta.modes import modes

Host = np.ndarray[Any, Any]

MAX_VIEWED = 1 << 14
"""Elements of the largest floating array that is transposed at conversion."""


class _Constants(Protocol):
    def constant(self, value: Any, what: str) -> Host: ...


def is_host(value: Any) -> bool:
    """Whether a value is known at conversion."""
    return isinstance(value, (np.ndarray, np.generic))


def value_of(node: _Constants, value: Any, what: str) -> Host:
    """The value of input `what` of a node. Raises NotSupportedError unless it is known at conversion."""
    if is_host(value):
        return np.asarray(value)
    return value.numpy() if isinstance(value, NDArray) else node.constant(value, what)


def tensor(value: Any) -> Any:
    """A value as a tensor, in a trace over the same memory: constants of programs are not written. Sizes are int64."""
    if not is_host(value):
        return value
    if value.dtype != object:
        return meta.array(value) if modes.trace is None else asarray(value)
    flat = [meta.full((1,), size, "int64") for size in value.reshape(-1)]
    return meta.reshape(meta.concatenate(flat), value.shape) if flat else meta.zeros(value.shape, "int64")


def transposed_constant(value: Host, perm: Any = None) -> Any:
    """A known value transposed; NotImplemented for weights, which products read as they are, as transposed matrices."""
    if value.dtype.kind == "f" and value.size > MAX_VIEWED:
        return NotImplemented
    return np.transpose(value, perm)


def sizes(values: Sequence[Dim] | Host) -> Host:
    """Sizes as an array: int64 if all are known, otherwise of dtype object."""
    sizes = list(values)
    if is_static(sizes):
        return np.array([int(size) for size in sizes], "int64")
    out = np.empty(len(sizes), object)
    out[:] = sizes
    return out


def ints(values: Any) -> tuple[Any, ...]:
    """The ints, or sizes, of an array or attribute."""
    if isinstance(values, (int, np.integer)):
        return (int(values),)
    flat = np.asarray(values).reshape(-1) if is_host(values) else values
    return tuple(int(v) if isinstance(v, (int, np.integer)) else v for v in flat)


def axis_of(op: str, axis: int, rank: int) -> int:
    """An axis counted from the front. Raises AxisError for one out of range."""
    if not -rank <= axis < rank:
        raise AxisError(op, f"axis {axis} is out of range for rank {rank}", f"{-rank} to {rank - 1}")
    return axis % rank if rank else 0


def axes_of(op: str, axes: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front. Raises AxisError for those out of range."""
    return tuple(axis_of(op, axis, rank) for axis in ints(axes))


def number(value: Any, what: str) -> Any:
    """The number in a known array of one element."""
    array = np.asarray(value)
    if array.size != 1:
        raise TypeInferenceError("", f"{what} has shape {array.shape}", "one number")
    item = array.reshape(-1)[0]
    return item.item() if isinstance(item, np.generic) else item


def static(op: str, x: Tensor, what: str = "the input") -> tuple[int, ...]:
    """The shape of a tensor without symbolic sizes. Raises NotSupportedError for others."""
    if not is_static(x.shape):
        raise NotSupportedError(op, f"{what} has the symbolic shape {x.shape}", "known sizes")
    return tuple(map(int, x.shape))


def row_shape(size: Any, axis: int, rank: int) -> tuple[Any, ...]:
    """The shape that broadcasts `size` elements along one axis."""
    return tuple(size if i == axis else 1 for i in range(rank))


def wide(x: Tensor) -> Any:
    """Halves in float32, others as they are."""
    return meta.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x


DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
}  # fmt: skip
"""ONNX's numbers of data types that meta has."""

_OTHERS = {
    8: "string", 17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4",
    22: "int4", 23: "float4e2m1", 24: "float8e8m0", 25: "uint2", 26: "int2", 27: "float6e2m3", 28: "float6e3m2",
}  # fmt: skip


def dtype_of(op: str, number: int) -> str:
    """meta's name of a data type. Raises NotSupportedError for those that meta lacks."""
    name = DTYPES.get(number)
    if name is None:
        raise NotSupportedError(op, f"data type {_OTHERS.get(number, number)}", ", ".join(DTYPES.values()))
    return canonical(name, op)


def host_dtype(name: str) -> np.dtype[Any]:
    return to_numpy(name)
