"""Tensors and types of an ONNX model as NumPy arrays and types of meta."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from meta import dtype as dtypes
from meta.dtype import array_bytes
from meta.files.into_memory import allocate
from meta.frontend.onnx.errors import OnnxError, UnsupportedError
from meta.frontend.onnx.weights import DTYPES

_NAMES = {"FLOAT": "float32", "DOUBLE": "float64", "STRING": "text"}

MAX_BYTES = 1 << 36
"""Bytes of one tensor of a model: 64 GiB."""


def dtype_name(code: Any, where: str) -> str:
    """The name of a dtype: meta's, "text", or ONNX's own in lower case. code: of `TensorProto.DataType`.

    Raises OnnxError, about `where`, for a code that ONNX does not define."""
    import onnx_ir

    try:
        name = onnx_ir.DataType(int(code)).name
    except ValueError:
        raise OnnxError("onnx", f"{where} has dtype {int(code)}", "a dtype that ONNX defines") from None
    return _NAMES.get(str(name), str(name).lower())


def tensor_dtype(tensor: Any, where: str) -> str:
    """`dtype_name` of a tensor of `onnx_ir`."""
    try:
        code = tensor.dtype
    except ValueError as error:
        raise OnnxError("onnx", f"{where}: {error}", "a dtype that ONNX defines") from None
    return dtype_name(code, where)


def check_dtype(name: str, where: str) -> str:
    """A dtype of meta. Raises UnsupportedError, about `where`, for others."""
    if name not in dtypes.ALL:
        raise UnsupportedError("onnx", f"{where} has dtype {name}", f"one of {', '.join(dtypes.ALL)}")
    return name


def read_tensor(tensor: Any, where: str, folder: str | None) -> npt.NDArray[Any]:
    """The value of a tensor of `onnx_ir`, in a dtype of NumPy or `ml_dtypes`; text in dtype `U`.

    where: the tensor in words.  folder: of the model's file, which external data must lie in; None without one.
    Raises OnnxError for sizes, data and external files that do not fit."""
    import onnx_ir

    shape = _static_shape(tensor, where)
    name = tensor_dtype(tensor, where)
    if name == "undefined":
        raise OnnxError("onnx", f"{where} has no dtype", "a dtype that ONNX defines")
    count = array_bytes(shape, 1)
    if count is None or count > MAX_BYTES // 8:
        raise OnnxError("onnx", f"{where} has shape {shape}", f"non-negative sizes, of at most {MAX_BYTES >> 30} GiB")
    if isinstance(tensor, onnx_ir.ExternalTensor):
        tensor = _external(tensor, where, folder)
    elif not isinstance(tensor, onnx_ir.StringTensor) and count:
        _check_has_data(tensor, where, shape)
    try:
        value = np.asarray(tensor.numpy())
    except Exception as error:  # onnx-ir raises whatever its parsing trips over
        problem = f"the data of {where}, of shape {shape} and dtype {name}, cannot be read: {error}"
        raise OnnxError("onnx", problem, "as many elements as the shape has") from error
    if name == "text":
        return np.asarray([_text(v, where) for v in value.ravel().tolist()], dtype=np.str_).reshape(shape)
    is_shared = folder is None and value.flags.writeable  # with a model in memory, which may change
    return np.array(value).reshape(shape) if is_shared else value.reshape(shape)


def _static_shape(tensor: Any, where: str) -> tuple[int, ...]:
    try:
        return tuple(int(d) for d in tensor.shape)
    except (TypeError, ValueError):
        raise OnnxError("onnx", f"{where} has shape {tensor.shape}", "known sizes") from None


def _check_has_data(tensor: Any, where: str, shape: tuple[int, ...]) -> None:
    """onnx-ir reads a tensor without data as zeros, whatever its size. Reading `raw_data` copies it, so that only its
    presence is asked for: data of another length does not have the shape."""
    proto: Any = getattr(tensor, "raw", None)
    if not hasattr(proto, "HasField") or proto.HasField("raw_data"):
        return
    fields = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    if not any(len(getattr(proto, field)) for field in fields):
        raise OnnxError("onnx", f"{where} has shape {shape} and no data", "as many elements as the shape has")


def _text(value: bytes | str, where: str) -> str:
    if isinstance(value, str):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise OnnxError("onnx", f"{where} has text that is not UTF-8", "UTF-8") from None


def _external(tensor: Any, where: str, folder: str | None) -> Any:
    """The tensor with its data in memory: onnx-ir maps the file, and a process dies when it reads of a mapped file that
    was cut off since."""
    import onnx
    import onnx_ir

    path = _external_path(tensor, where, folder)
    code, shape, size = int(tensor.dtype), tuple(map(int, tensor.shape)), int(tensor.nbytes)
    data: Any = allocate((size,), np.uint8)
    try:
        with open(path, "rb") as file:
            file.seek(tensor.offset or 0)
            count = file.readinto(memoryview(data))
    except OSError as error:
        problem = f"the data of {where} in {os.fspath(tensor.location)!r} cannot be read: {error.strerror}"
        raise OnnxError("onnx", problem, "a file that can be read") from error
    if count != size:
        problem = f"the data of {where} in {os.fspath(tensor.location)!r} ends after {count} of {size} bytes"
        raise OnnxError("onnx", problem, "data inside of the file")
    if code in DTYPES:
        return onnx_ir.Tensor(data.view(DTYPES[code]).reshape(shape))
    return onnx_ir.TensorProtoTensor(onnx.TensorProto(dims=shape, data_type=code, raw_data=data.tobytes()))


def _external_path(tensor: Any, where: str, folder: str | None) -> str:
    """Raise OnnxError unless the data lies in a file inside of the model's folder, and is as long as it says."""
    location = os.fspath(tensor.location)
    if folder is None:
        problem = f"the data of {where} lies in the file {location!r}, and the model does not come from a file"
        raise OnnxError("onnx", problem, "a path to the model")
    root = os.path.realpath(folder)
    is_path = "\0" not in location and not os.path.isabs(location)
    path = os.path.realpath(os.path.join(root, location)) if is_path else ""
    if not is_path or os.path.commonpath([root, path]) != root:
        raise OnnxError("onnx", f"the data of {where} lies in {location!r}", "a file inside of the model's folder")
    if not os.path.isfile(path):
        raise OnnxError("onnx", f"the data of {where} lies in {location!r}, which does not exist", "a file")
    start, size = tensor.offset or 0, os.path.getsize(path)
    if tensor.length not in (None, int(tensor.nbytes)):
        problem = f"the data of {where} in {location!r} has {tensor.length} bytes by its own account"
        raise OnnxError("onnx", problem, f"{tensor.nbytes}, as its shape and dtype say")
    if start < 0 or start + int(tensor.nbytes) > size:
        problem = f"the data of {where} is {tensor.nbytes} bytes from byte {start} of {location!r}, which has {size}"
        raise OnnxError("onnx", problem, "data inside of the file")
    return path
