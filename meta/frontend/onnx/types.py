"""Types of values: those that a model declares, and those that values have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from meta.device import Device
from meta.dim import Dim, SymDim, is_name, names, sym
from meta.errors import TypeInferenceError
from meta.frontend.onnx.errors import OnnxError, UndecidedError, UnsupportedError
from meta.frontend.onnx.tensors import check_dtype, dtype_name
from meta.ir.type import TensorType, tensor_type
from meta.limits import MAX_DIMENSIONS


def input_type(value: Any, device: Device, shape: Sequence[Dim] | None = None) -> TensorType:
    """The type of an input of the graph. shape: in place of the declared one.

    Named dimensions are symbolic sizes of their names; unnamed ones are named after the input and the axis.
    Raises UndecidedError for inputs without a shape and those that are not tensors, UnsupportedError for dtypes that
    meta lacks, OnnxError for shapes that do not fit."""
    where = f"input '{value.name}'"
    kind = value.type
    if kind is None or type(kind).__name__ != "TensorType":
        declared = "no type" if kind is None else f"the type {type(kind).__name__}"
        raise UndecidedError("onnx", f"{where} has {declared}", "a tensor", remedy="call `interpret`")
    dtype = check_dtype(dtype_name(kind.dtype, where), where)
    if value.shape is None and shape is None:
        problem = f"{where} has no declared shape"
        raise UndecidedError("onnx", problem, "a shape", remedy="pass it in `shapes`, or call `interpret`")
    sizes = _declared_sizes(value, where) if value.shape is not None else None
    if shape is not None:
        if sizes is not None and len(sizes) != len(shape):
            raise OnnxError("onnx", f"the shape {tuple(shape)} is given for {where}", f"{len(sizes)} dimensions")
        sizes = tuple(shape)
    try:
        return tensor_type(sizes, dtype, device)  # type: ignore[arg-type]
    except TypeInferenceError as error:
        raise OnnxError("onnx", f"{where}: {error.problem}", error.expected) from None


def _declared_sizes(value: Any, where: str) -> tuple[Dim, ...]:
    if len(value.shape) > MAX_DIMENSIONS:
        raise OnnxError("onnx", f"{where} has {len(value.shape)} dimensions", f"at most {MAX_DIMENSIONS}")
    return tuple(_size(d, f"{value.name}_{i}", where) for i, d in enumerate(value.shape))


def _size(declared: Any, default: str, where: str) -> Dim:
    if isinstance(declared, int):
        if declared < 0:
            raise OnnxError("onnx", f"{where} has the size {declared}", "0 or more")
        return declared
    name = str(getattr(declared, "value", None) or default)
    expression = _multiple(name)
    return sym(size_name(name)) if expression is None else expression


_TERM = re.compile(r"(?:(\d{1,9})\*)?([A-Za-z_]\w*)|(\d{1,9})", re.ASCII)


def _multiple(name: str) -> SymDim | None:
    """The size in a name such as `2*n + 1`, as exporters write sizes that are computed from one; None for other names,
    in which signs need not be arithmetic (`batch-size`)."""
    total: Dim = 0
    parts = name.split(" + ")
    for part in parts[:3]:
        term = _TERM.fullmatch(part)
        if term is None or (term[2] and not is_name(term[2])):
            return None
        total = total + (int(term[3]) if term[3] else sym(term[2]) * int(term[1] or 1))
    return total if isinstance(total, SymDim) and len(parts) < 3 and len(names(total)) == 1 else None


def size_name(name: str) -> str:
    """The name of a size: the model's name, or one that IR text can hold, distinct for distinct names."""
    if is_name(name):
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "_" for c in name)[:64]
    return f"{plain if plain[:1].isalpha() or plain[:1] == '_' else 'd' + plain}_{digest}"


def check_declared(value: Any, actual: Any, what: str) -> None:
    """Raise OnnxError unless a tensor has the dtype and the number of dimensions that the model declares for it.

    what: the value in words.  Declared sizes are not compared: they often come from the exported example."""
    kind = value.type
    if type(kind).__name__ != "TensorType" or not hasattr(actual, "dtype"):
        return
    dtype = dtype_name(kind.dtype, what)
    got = "int64" if actual.dtype == object else str(actual.dtype)
    if dtype not in ("text", "undefined", got):
        raise OnnxError("onnx", f"{what} is declared as {dtype} and is {got}", "one dtype")
    if value.shape is not None and len(value.shape) != actual.ndim:
        problem = f"{what} is declared with {len(value.shape)} dimensions and has {actual.ndim}"
        raise OnnxError("onnx", problem, "one number of dimensions")


_ONNX_NAMES: Mapping[str, str] = {"float32": "FLOAT", "float64": "DOUBLE"}


def type_proto(value: Any) -> Any:
    """The `onnx.TypeProto` of a value; symbolic sizes are named by their text."""
    import onnx

    if isinstance(value, list):
        elements: list[Any] = value
        inner = type_proto(elements[0]) if elements else onnx.TypeProto()
        return onnx.helper.make_sequence_type_proto(inner)
    dtype = "int64" if isinstance(value, np.ndarray) and value.dtype == object else str(value.dtype)
    text = isinstance(value, np.ndarray) and value.dtype.kind == "U"
    name = "STRING" if text else _ONNX_NAMES.get(dtype, dtype.upper())
    shape = [str(d) if isinstance(d, SymDim) else int(d) for d in value.shape]
    return onnx.helper.make_tensor_type_proto(onnx.TensorProto.DataType.Value(name), shape)


def empty_stack(value: Any, where: str) -> np.ndarray[Any, Any]:
    """The stack of no values of the type that a value declares. Raises UnsupportedError where it declares none."""
    kind = value.type
    if kind is None or type(kind).__name__ != "TensorType" or value.shape is None:
        raise UnsupportedError("onnx", f"{where} stacks no values of '{value.name}', which declares no type", "a type")
    shape = [d if isinstance(d, int) else 0 for d in value.shape]
    return np.zeros((0, *shape), kind.dtype.numpy())
