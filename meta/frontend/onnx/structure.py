"""Checks of models that `onnx_ir` does not make: names that are text and that belong to one value each, and nesting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from meta.frontend.onnx.errors import OnnxError, UnsupportedError
from meta.frontend.onnx.ops._row import domain_of
from meta.limits import MAX_DEPTH, MAX_NAME


def check_structure(model: Any) -> None:
    """Raise OnnxError for names that are not UTF-8 or too long, inputs of one name, and graphs that nest too deep."""
    _check_names((*model.graph.opset_imports, model.graph.name or ""), "the model")
    _check_opsets(model.graph.opset_imports, "the model")
    graphs = [(model.graph, "the graph", 0)]
    for (domain, name, overload), function in model.functions.items():
        _check_names((domain, name, overload, *function.opset_imports, *function.attributes), "a function")
        _check_opsets(function.opset_imports, f"function '{name}'")
        graphs.append((function.graph, f"function '{name}'", 0))
    while graphs:
        graph, where, depth = graphs.pop()
        if depth > MAX_DEPTH:
            raise OnnxError("onnx", f"graphs nest deeper than {MAX_DEPTH} in {where}", f"at most {MAX_DEPTH}")
        _check_graph(graph, where)
        graphs += [(inner, where, depth + 1) for inner in _subgraphs(graph)]


def _check_opsets(imports: Mapping[str, int], where: str) -> None:
    """Raise OnnxError for impossible versions, UnsupportedError for those that the installed onnx does not know."""
    import onnx.defs

    newest = onnx.defs.onnx_opset_version()
    for domain, version in imports.items():
        if not 0 < version < 2**31:
            raise OnnxError("onnx", f"{where} imports opset {version} of '{domain}'", "a version from 1")
        if domain_of(domain) == "" and version > newest:
            problem = f"{where} imports opset {version}; the installed onnx knows opsets up to {newest}"
            raise UnsupportedError("onnx", problem, remedy="update onnx, or export to an older opset")


def _check_graph(graph: Any, where: str) -> None:
    _check_names((v.name for v in (*graph.inputs, *graph.outputs)), where)
    _check_names(graph.initializers, where)
    seen: set[str] = set()
    for value in graph.inputs:
        if value.name in seen or not value.name:
            problem = (
                f"two inputs of {where} are called '{value.name}'" if value.name else f"an input of {where} has no name"
            )
            raise OnnxError("onnx", problem, "a distinct name for each")
        seen.add(value.name)
    for node in graph:
        _check_names(
            (node.name or "", node.op_type, node.domain, node.overload, *node.attributes), f"a node of {where}"
        )
        _check_names((v.name or "" for v in (*node.inputs, *node.outputs) if v is not None), f"a node of {where}")


def _check_names(names: Iterable[Any], where: str) -> None:
    for name in names:
        if not isinstance(name, str):
            raise OnnxError("onnx", f"{where} has a name that is not UTF-8: {str(name)[:80]}", "UTF-8")
        if len(name) > MAX_NAME:
            raise OnnxError("onnx", f"{where} has a name of {len(name)} characters", f"at most {MAX_NAME}")


def _subgraphs(graph: Any) -> Iterator[Any]:
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.is_ref():
                continue
            if attribute.type.name == "GRAPH":
                yield attribute.value
            elif attribute.type.name == "GRAPHS":
                yield from attribute.value
