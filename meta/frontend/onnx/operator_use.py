"""The operators that a model uses, and what of it is not supported: all of it at once, before anything is converted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from meta import dtype as dtypes
from meta.frontend.examination import OperatorUse, operator_uses, problem_text
from meta.frontend.onnx.errors import GUIDE, OnnxError, UnsupportedError
from meta.frontend.onnx.functions import has_body, model_function
from meta.frontend.onnx.node import describe
from meta.frontend.onnx.ops._refused import REASONS
from meta.frontend.onnx.ops._row import OperatorRow, domain_of, qualified, table
from meta.frontend.onnx.source import SourceProgram
from meta.frontend.onnx.tensors import tensor_dtype
from meta.frontend.reader import Reader

READER = Reader("onnx", OnnxError, UnsupportedError, "tensors or attributes", GUIDE, GUIDE)


@dataclass(slots=True, eq=False)
class _Survey:
    places: dict[str, list[int | str]] = field(default_factory=dict[str, "list[int | str]"])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Of the operators that are not supported."""
    problems: list[str] = field(default_factory=list[str])


def examined(program: SourceProgram) -> tuple[tuple[OperatorUse, ...], tuple[str, ...]]:
    """The operators of the graph, its subgraphs and the functions that it calls, by name; and the attributes and dtypes
    that are not supported, each with its place."""
    survey = _Survey()
    seen: set[int] = set()
    stack: list[tuple[Any, Mapping[str, int]]] = [(program.graph, program.opsets)]
    while stack:
        graph, opsets = stack.pop()
        _tensors(graph, survey)
        for node in _nodes(graph, survey):
            domain = domain_of(node.domain)
            function = model_function(program, node, domain)
            if function is None:
                _operator(node, domain, opsets, survey)
            elif id(function) not in seen:
                seen.add(id(function))
                stack.append((function.graph, {domain_of(d): int(v) for d, v in function.opset_imports.items()}))
    supported = [name for name in survey.places if name not in survey.reasons]
    return operator_uses(survey.places, supported, survey.reasons), tuple(survey.problems)


def check_supported(program: SourceProgram) -> None:
    """Raise UnsupportedError about everything in a model that is known not to be supported."""
    uses, problems = examined(program)
    READER.check_supported(uses, [UnsupportedError("onnx", problem) for problem in problems])


def _operator(node: Any, domain: str, opsets: Mapping[str, int], survey: _Survey) -> None:
    name = qualified(node.op_type, domain)
    survey.places.setdefault(name, []).append(node.name or next((f"<{v.name}>" for v in node.outputs if v.name), "<>"))
    version = opsets.get(domain, 0)
    row = table.find(name, version)
    if row is not None:
        survey.problems += _unknown_attributes(node, row)
    elif not has_body(node.op_type, domain, version):
        first = min(table.versions(name), default=None)
        late = first is not None and 0 < version < first
        survey.reasons.setdefault(
            name,
            f"opset {version} is imported, and {first} is the first supported"
            if late
            else REASONS.get((domain, node.op_type), ""),
        )


def _unknown_attributes(node: Any, row: OperatorRow) -> list[str]:
    return [f"{describe(node)}: the attribute {name}" for name in node.attributes if name not in row.attributes]


def _tensors(graph: Any, survey: _Survey) -> None:
    """Add the dtypes of inputs and initializers that meta lacks; text is known at conversion only."""
    typed = {f"input '{v.name}'": v.type for v in graph.inputs if type(v.type).__name__ == "TensorType"}
    typed |= {f"initializer '{name}'": v.const_value for name, v in graph.initializers.items()}
    for where, holder in typed.items():
        try:
            name = tensor_dtype(holder, where)
        except OnnxError as error:
            survey.problems.append(problem_text(error))
            continue
        if name != "text" and name not in dtypes.ALL:
            survey.problems.append(f"{where} has dtype {name}")


def _nodes(graph: Any, survey: _Survey) -> Iterator[Any]:
    """The nodes of a graph and of its subgraphs, in order."""
    for node in graph:
        yield node
        for attribute in node.attributes.values():
            if not attribute.is_ref() and attribute.type.name in ("GRAPH", "GRAPHS"):
                for inner in attribute.value if attribute.type.name == "GRAPHS" else (attribute.value,):
                    _tensors(inner, survey)
                    yield from _nodes(inner, survey)
