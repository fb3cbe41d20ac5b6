"""Attributes of nodes as values of Python, checked against ONNX's definition of the operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from meta.frontend.onnx.errors import OnnxError, UnsupportedError
from meta.frontend.onnx.tensors import read_tensor

MakeGraph = Callable[[Any], Any]
"""A graph of `onnx_ir` -> what a row is given for it."""


def attributes(
    node: Any, where: str, function_attributes: Mapping[str, Any], graph: MakeGraph, folder: str | None
) -> dict[str, Any]:
    """The attributes of a node. where: the node in words.  function_attributes: of the function that the node is in.

    A reference to an attribute that its function was not given is left out: the operator has its default then."""
    out: dict[str, Any] = {}
    for name, attribute in node.attributes.items():
        if attribute.type.name == "UNDEFINED" and not attribute.is_ref():
            continue  # a function declares an attribute without a default
        if not attribute.is_ref():
            out[name] = _value(attribute, f"{where}: attribute {name}", graph, folder)
        elif attribute.ref_attr_name in function_attributes:
            out[name] = function_attributes[attribute.ref_attr_name]
    return out


def _value(attribute: Any, where: str, graph: MakeGraph, folder: str | None) -> Any:
    kind, value = attribute.type.name, attribute.value
    match kind:
        case "INT" | "FLOAT":
            return value
        case "STRING":
            return _text(value, where)
        case "INTS" | "FLOATS":
            return tuple(value)
        case "STRINGS":
            return tuple(_text(v, where) for v in value)
        case "TENSOR":
            return read_tensor(value, where, folder)
        case "TENSORS":
            return tuple(read_tensor(v, where, folder) for v in value)
        case "GRAPH":
            return graph(value)
        case "GRAPHS":
            return tuple(map(graph, value))
        case "TYPE_PROTO":
            return value
        case _:
            raise UnsupportedError("onnx", f"{where} is of type {kind}", "a number, text, a tensor or a graph")


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise OnnxError("onnx", f"{where} is text that is not UTF-8", "UTF-8")
    return value


@lru_cache(maxsize=4096)
def definition(name: str, domain: str, version: int) -> Any:
    """ONNX's definition of an operator, None if it has none."""
    import onnx.defs

    try:
        return onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        return None


def check_against_definition(node: Any, where: str, version: int, domain: str) -> None:
    """Raise OnnxError unless a node has the attributes, inputs and outputs that ONNX's definition allows."""
    schema = definition(node.op_type, domain, version)
    if schema is None:
        return
    for name, attribute in node.attributes.items():
        declared = schema.attributes.get(name)
        if declared is None:
            allowed = ", ".join(sorted(schema.attributes)) or "no attributes"
            raise OnnxError("onnx", f"{where} has the attribute {name}", f"{allowed}, as of opset {version}")
        if declared.type.name != attribute.type.name:
            raise OnnxError("onnx", f"{where}: attribute {name} is of type {attribute.type.name}", declared.type.name)
    missing = [n for n, declared in schema.attributes.items() if declared.required and n not in node.attributes]
    if missing:
        raise OnnxError("onnx", f"{where} lacks the attribute {missing[0]}", "a value")
    for what, count, least, most in (
        ("inputs", len(node.inputs), schema.min_input, schema.max_input),
        ("outputs", len(node.outputs), schema.min_output, schema.max_output),
    ):
        if not least <= count <= most:
            expected = f"{least} to {most}" if most < 2**31 - 1 else f"at least {least}"
            raise OnnxError("onnx", f"{where} has {count} {what}", expected)
