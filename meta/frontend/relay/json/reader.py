"""The reader of Relay JSON, which Relay-era `tvm.ir.save_json` wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meta.frontend.relay import ast
from meta.frontend.relay.json.graph import NodeGraph
from meta.frontend.relay.json.node_values import ValueBuilder

if TYPE_CHECKING:
    from meta.frontend.relay.ast import RelayProgram


def parse(text: str, source: str = "") -> RelayProgram:
    """The program in `text`: a module, or a function, which becomes "main".

    source: the name of the text for errors. Raises RelayError that names the node of the graph."""
    graph = NodeGraph(text, source)
    value: Any = ValueBuilder(graph).value(graph.root)
    if isinstance(value, ast.RelayProgram):
        return value
    if isinstance(value, ast.RelayFunction):
        return ast.RelayProgram({"main": value}, {})
    raise graph.error(f"a {graph.kind(graph.root)}", "a module or a function", graph.root)
