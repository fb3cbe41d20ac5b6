"""`read`: a model of `onnx_ir` from any source of an ONNX model."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from meta.errors import ArgumentError, NotSupportedError, install_hint
from meta.frontend.onnx.errors import OnnxError
from meta.frontend.onnx.ops._row import domain_of
from meta.frontend.onnx.structure import check_structure
from meta.frontend.onnx.weights import Arrays, read_model
from meta.limits import MAX_SOURCE

Source: TypeAlias = "str | bytes | os.PathLike[str] | Any"
"""A path, the bytes of a model, an `onnx.ModelProto`, or an `onnx_ir.Model`."""


@dataclass(frozen=True, slots=True, eq=False)
class SourceProgram:
    """A model that has been read.

    model: an `onnx_ir.Model`.  name: of its file, or "<onnx>".  folder: of its file, None without one.
    opsets: the version of each domain.  functions: the model's own, by (domain, name, overload)."""

    model: Any
    name: str
    folder: str | None
    opsets: dict[str, int]
    functions: dict[tuple[str, str, str], Any]

    @property
    def graph(self) -> Any:
        return self.model.graph


def read(source: Source) -> SourceProgram:
    """The model that `source` holds. Nothing in it is executed, and external data is not read yet.

    Raises NotSupportedError without the packages `onnx` and `onnx-ir`, OnnxError for invalid models, ArgumentError for
    other objects."""
    ir = _onnx_ir()
    name, folder = "<onnx>", None
    arrays: Arrays = {}
    value: Any = source
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        name, folder = os.path.basename(path), os.path.dirname(os.path.abspath(path))
        value, arrays = _contents(path)
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = _parsed(bytes(value), name)
    if isinstance(value, ir.Model):
        model = value
    elif type(value).__name__ == "ModelProto" and hasattr(value, "opset_import"):
        model = _deserialized(value, name)
    else:
        raise ArgumentError("onnx", f"source is {type(source).__name__}", "a path, bytes, a ModelProto or an ir.Model")
    check_structure(model)
    _attach(model, arrays, name)
    return SourceProgram(model, name, folder, _opsets(model, name), _functions(model))


def _onnx_ir() -> Any:
    try:
        import onnx  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import onnx_ir
    except ImportError as error:
        problem = f"the package {error.name} is not installed"
        raise NotSupportedError("onnx", problem, "onnx and onnx-ir, which read models", install_hint("onnx")) from None
    return onnx_ir


def _contents(path: str) -> tuple[bytes, Arrays]:
    """A file without its large weights, and those."""
    try:
        size = os.stat(path).st_size
        if size > MAX_SOURCE * 2:
            limit = f"at most {MAX_SOURCE * 2}, with weights as external data"
            raise OnnxError("onnx", f"{path} has {size} bytes", limit)
        with open(path, "rb") as file:
            return read_model(file, size)
    except OnnxError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OnnxError("onnx", f"cannot read {path}: {reason}", "a file with an ONNX model") from error


def _attach(model: Any, arrays: Arrays, name: str) -> None:
    """Give initializers the data that was read apart."""
    import onnx_ir

    initializers = model.graph.initializers
    for key, array in arrays.items():
        value = initializers.get(key)
        if value is None or value.const_value.raw.HasField("raw_data"):
            raise OnnxError("onnx", f"{name} has two initializers '{key}'", "a distinct name for each")
        value.const_value = onnx_ir.Tensor(cast("Any", array), name=key)


def _parsed(data: bytes, name: str) -> Any:
    import onnx

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's own class, which depends on its implementation
        raise OnnxError("onnx", f"{name} cannot be parsed: {error}", "a serialised ModelProto") from error
    if not model.HasField("graph"):
        raise OnnxError("onnx", f"{name} has no graph", "a serialised ModelProto")
    return model


def _deserialized(proto: Any, name: str) -> Any:
    from onnx_ir import serde

    logger = logging.getLogger("onnx_ir.serde")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what it warns about becomes an error when the graph is checked
    try:
        return serde.deserialize_model(proto)
    except Exception as error:  # onnx-ir raises whatever its parsing trips over
        cause: BaseException = error
        while following := cause.__cause__ or cause.__context__:  # onnx-ir fails to describe some errors
            cause = following
        problem = f"{name} is not a valid model: {str(cause)[:500]}"
        raise OnnxError("onnx", problem, "a model that onnx.checker accepts") from error
    finally:
        logger.setLevel(level)


def _opsets(model: Any, name: str) -> dict[str, int]:
    opsets = {domain_of(domain): int(version) for domain, version in model.graph.opset_imports.items()}
    if not opsets:
        raise OnnxError("onnx", f"{name} imports no opset", "opset_import with the versions of its operators")
    return opsets


def _functions(model: Any) -> dict[tuple[str, str, str], Any]:
    return {(domain_of(d), n, overload): function for (d, n, overload), function in model.functions.items()}
