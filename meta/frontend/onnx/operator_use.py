"""The operators that a model uses, and whether they are supported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meta.frontend.onnx.errors import UnsupportedError
from meta.frontend.onnx.functions import has_body, model_function
from meta.frontend.onnx.node import describe
from meta.frontend.onnx.source import Program
from meta.frontend.onnx.table import domain_of, find


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """The nodes of one operator. nodes: in words, in order."""

    name: str
    supported: bool
    nodes: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.nodes)


def operators(program: Program) -> tuple[OperatorUse, ...]:
    """The operators of the graph, its subgraphs and the functions that it calls, by name."""
    nodes: dict[str, list[str]] = {}
    supported: dict[str, bool] = {}
    seen: set[int] = set()
    stack: list[tuple[Any, Mapping[str, int]]] = [(program.graph, program.opsets)]
    while stack:
        graph, opsets = stack.pop()
        for node in _nodes(graph):
            domain = domain_of(node.domain)
            function = model_function(program, node, domain)
            if function is not None:
                if id(function) not in seen:
                    seen.add(id(function))
                    stack.append((function.graph, {domain_of(d): int(v) for d, v in function.opset_imports.items()}))
                continue
            name = f"{domain}::{node.op_type}" if domain else node.op_type
            version = opsets.get(domain, 0)
            nodes.setdefault(name, []).append(describe(node))
            known = find(node.op_type, domain, version) is not None or has_body(node.op_type, domain, version)
            supported[name] = supported.get(name, True) and known
    return tuple(OperatorUse(name, supported[name], tuple(found)) for name, found in sorted(nodes.items()))


def _nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of its subgraphs, in order."""
    for node in graph:
        yield node
        for attribute in node.attributes.values():
            if attribute.is_ref():
                continue
            if attribute.type.name == "GRAPH":
                yield from _nodes(attribute.value)
            elif attribute.type.name == "GRAPHS":
                for inner in attribute.value:
                    yield from _nodes(inner)


def check_operators(program: Program) -> None:
    """Raise UnsupportedError with every operator that is not supported."""
    missing = [use for use in operators(program) if not use.supported]
    if missing:
        word = "operators are" if len(missing) > 1 else "operator is"
        problem = f"{len(missing)} {word} not supported: " + ", ".join(map(_summary, missing))
        remedy = "docs/from-onnx.md lists the supported ones"
        raise UnsupportedError("onnx", problem, remedy=remedy, operators={use.name: use.nodes for use in missing})


def _summary(use: OperatorUse) -> str:
    """`Foo (3 times: node 'a' (Foo), ...)`."""
    shown = ", ".join(use.nodes[:5]) + (", ..." if use.count > 5 else "")
    return f"{use.name} ({'once' if use.count == 1 else f'{use.count} times'}: {shown})"
