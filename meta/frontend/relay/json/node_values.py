"""Values of the nodes of a graph, from the values of the nodes that they refer to.

An explicit stack orders the nodes, so Python's stack does not limit the depth of a program. Cycles are an error.
`nodes.py` has the fields and the value of each class of nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meta.frontend.relay import ast
from meta.frontend.relay.dtypes import none_if_empty, plain_attribute
from meta.frontend.relay.json.attribute_fields import BOOLS, FLOATS, STRINGS, holds_object
from meta.frontend.relay.json.graph import NodeGraph
from meta.frontend.relay.json.nodes import NODES, JsonNode
from meta.limits import MAX_NESTING, MAX_VALUE_SIZE

if TYPE_CHECKING:
    from meta.frontend.relay.ast import RelayProgram


_NEW, _OPEN, _DONE = 0, 1, 2
_CONTAINERS = ("Array", "Map", "StrMap")


class ValueBuilder:
    """The values of one graph. Nodes that refer to one node share its value."""

    def __init__(self, graph: NodeGraph) -> None:
        self.graph = graph
        count = len(graph.nodes)
        self._values: list[Any] = [None] * count
        self._state = bytearray(count)
        # Leaves and depth of types, patterns and attributes, which shared parts can make exponentially large.
        self._sizes = [0] * count
        self._depths = [0] * count
        # Constructors by node, with the types of their fields, which references to them lack.
        self._constructors: dict[int, ast.Constructor] = {}
        self._state[0] = _DONE

    def value(self, root: int) -> Any:
        """The value of node `root`; None for null."""
        stack = [root]
        state = self._state
        while stack:
            index = stack[-1]
            if state[index] == _DONE:
                stack.pop()
            elif state[index] == _OPEN:
                stack.pop()
                self._values[index] = self._build(index)
                state[index] = _DONE
            else:
                state[index] = _OPEN
                for child in self._children(index):
                    if state[child] == _OPEN:
                        raise self.graph.error(
                            f"refers to itself through node {child}", "a graph without cycles", index
                        )
                    if state[child] == _NEW:
                        stack.append(child)
        return self._values[root]

    def _children(self, index: int) -> list[int]:
        kind = self.graph.kind(index)
        if kind in NODES:
            return [self.graph.reference(index, field) for field in NODES[kind][0]]
        if kind in _CONTAINERS:
            return list(self.graph.items(index))
        return [child for _, child in self._attribute_objects(index)] if "attrs." in kind else []

    def _build(self, index: int) -> Any:
        kind = self.graph.kind(index)
        children = self._children(index)
        values = [self._values[child] for child in children]
        if kind in NODES:
            value = NODES[kind][1](JsonNode(self.graph, index, self._constructors), *values)
        elif kind == "Array":
            value = tuple(values)
        elif kind in _CONTAINERS:
            value = self._mapping(index, values)
        elif "attrs." in kind:
            value = self._attributes(index)
        else:
            value = self.graph.string(index)
            return ast.Opaque(kind) if value is None else value
        if not isinstance(value, ast.EXPRESSIONS):
            self._measure(index, children)
        return value

    def _measure(self, index: int, children: list[int]) -> None:
        self._sizes[index] = 1 + sum(self._sizes[child] for child in children)
        self._depths[index] = 1 + max((self._depths[child] for child in children), default=0)
        if self._sizes[index] > MAX_VALUE_SIZE:
            raise self.graph.error("a value with too many leaves", f"at most {MAX_VALUE_SIZE}", index)
        if self._depths[index] > MAX_NESTING:
            raise self.graph.error("a value that nests too deep", f"at most {MAX_NESTING} levels", index)

    def _mapping(self, index: int, values: list[Any]) -> dict[str, Any]:
        keys = self.graph.keys(index)
        if keys is None:
            if len(values) % 2:
                raise self.graph.error("a Map with a key and no value", node=index)
            keys = [self._key(index, each) for each in values[::2]]
            values = values[1::2]
        if len(keys) != len(values):
            raise self.graph.error(f"a Map with {len(keys)} keys and {len(values)} values", node=index)
        return dict(zip(keys, values, strict=True))

    def _key(self, index: int, value: object) -> str:
        if isinstance(value, (ast.GlobalVar, ast.NamedType)):
            return value.name
        if not isinstance(value, (str, int, float)):
            raise self.graph.error(f"a Map with a key of class {type(value).__name__}", node=index)
        return str(value)

    # --- attributes ---

    def _attribute_objects(self, index: int) -> list[tuple[str, int]]:
        """The fields of an attribute node that refer to nodes, with the nodes."""
        kind = self.graph.kind(index)
        references: list[tuple[str, int]] = []
        for name, value in self.graph.fields(index).items():
            number = self.graph.as_reference(value)
            if number is not None and self._refers(kind, name, number):
                references.append((name, number))
        return references

    def _refers(self, kind: str, name: str, number: int) -> bool:
        if name in STRINGS:
            return number != 0
        declared = holds_object(kind, name)
        if declared is not None:
            return declared
        return number != 0 and self.graph.is_orphan(number)

    def _attributes(self, index: int) -> dict[str, Any]:
        objects = dict(self._attribute_objects(index))
        out: dict[str, Any] = {}
        for name, text in self.graph.fields(index).items():
            if name in objects:
                value = plain_attribute(self._values[objects[name]])
            else:
                value = self._literal(index, name, text)
            out[name] = none_if_empty(value)
        return out

    def _literal(self, index: int, name: str, text: Any) -> Any:
        """A number, a bool or a text; JSON has all three as strings."""
        if not isinstance(text, str) or len(text) > 100_000:
            raise self.graph.error(f"field {name} is not a short text", node=index)
        if name in STRINGS or len(text) > 40:
            return text
        try:
            if name in FLOATS:
                return float(text)
            if text.removeprefix("-").isdecimal():
                number = int(text)
                return bool(number) if name in BOOLS and number in (0, 1) else number
            return float(text) if text[:1] in "-.0123456789in" else text
        except ValueError:
            return text


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
