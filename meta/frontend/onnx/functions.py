"""Functions: the model's own, and the bodies that ONNX gives for operators without a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta.frontend.onnx.attributes import definition
from meta.frontend.onnx.source import SourceProgram
from meta.frontend.onnx.types import type_proto


def model_function(program: SourceProgram, node: Any, domain: str) -> Any:
    """The model's function that a node calls, None if it has none."""
    return program.functions.get((domain, node.op_type, node.overload))


def has_body(name: str, domain: str, version: int) -> bool:
    """Whether ONNX defines an operator by a function."""
    schema = definition(name, domain, version)
    return schema is not None and any(v <= version for v in schema.all_function_opset_versions)


def function_body(node: Any, version: int, domain: str, inputs: Sequence[Any]) -> Any:
    """The function of `onnx_ir` that computes a node, from ONNX's definition of the operator; None if it has none.

    inputs: their types choose the body of some operators."""
    from onnx_ir import serde

    schema = definition(node.op_type, domain, version)
    if schema is None:
        return None
    opsets = [v for v in schema.all_function_opset_versions if v <= version]
    if not opsets:
        return None
    proto = _proto(schema, node, max(opsets), inputs)
    if proto is None:
        return None
    computed = {name for inner in proto.node for name in inner.output}.union(proto.input)
    # A body computes no output that its node leaves out: such an output is an absent input.
    proto.input.extend(name for name in proto.output if name not in computed)
    return serde.deserialize_function(proto)


def default_attributes(node: Any, version: int, domain: str) -> dict[str, Any]:
    """The defaults of an operator's attributes, which the body of its function refers to."""
    import onnx

    out: dict[str, Any] = {}
    for name, declared in definition(node.op_type, domain, version).attributes.items():
        if declared.default_value.type:
            value = onnx.helper.get_attribute_value(declared.default_value)
            out[name] = value.decode() if isinstance(value, bytes) else value
    return out


def _proto(schema: Any, node: Any, opset: int, inputs: Sequence[Any]) -> Any:
    import onnx
    from onnx_ir import serde

    if opset in schema.function_opset_versions:
        data = schema.get_function_with_opset_version(opset)
    else:
        types = [(onnx.TypeProto() if v is None else type_proto(v)).SerializeToString() for v in inputs]
        call = serde.serialize_node(node).SerializeToString()
        data = schema.get_context_dependent_function_with_opset_version(opset, call, types)
    if isinstance(data, onnx.FunctionProto):
        return onnx.FunctionProto.FromString(data.SerializeToString())
    return onnx.FunctionProto.FromString(data) if data else None
