"""Graphs of ATen calls as data: what torch's FX graphs and the JSON of `.pt2` files are read into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from meta.dim import Dim
from meta.ir.expr import Span
from meta.ir.type import TensorType


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of an input or a node, as an argument of another node."""

    name: str


@dataclass(frozen=True, slots=True)
class Placeholder:
    """An input of a graph.

    type: of a tensor; a size, or a plain value that the program was captured for; None if it is not known."""

    name: str
    type: TensorType | Dim | float | str | None


@dataclass(frozen=True, slots=True, eq=False)
class GraphNode:
    """A call.

    operator: its full name, such as "aten.add.Tensor", "operator.mul" or "higher_order.cond".
    args, kwargs: nests of Refs, Graphs (of higher-order operators), dtypes by name and plain values.
    span: the line of the user's code.  target: the operator as an object of torch; None for a graph from a file.
    results: the names of several results that have names (in a file, a node defines each); empty otherwise.
    dtypes: the names of the results' dtypes, None for a result other than a tensor; empty if they are unknown."""

    name: str
    operator: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    span: Span | None = None
    target: Any = None
    results: tuple[Any, ...] = ()
    dtypes: tuple[str | None, ...] = ()

    @property
    def base(self) -> str:
        """ATen's base name, which all overloads share: "add" of "aten.add.Tensor"."""
        return self.operator.split(".")[1] if "." in self.operator else self.operator

    @property
    def namespace(self) -> str:
        return self.operator.partition(".")[0]

    @property
    def overload(self) -> str:
        return self.operator.split(".", 2)[2] if self.operator.count(".") > 1 else ""


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Calls in order.

    constants: tensors of the graph itself, by the names that Refs have.  output: a nest of Refs and plain values."""

    inputs: tuple[Placeholder, ...]
    nodes: tuple[GraphNode, ...]
    output: Any
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])


def substituted(value: Any, get: Callable[[str], Any]) -> Any:
    """A nest with `get(name)` in place of each Ref."""
    kind = type(value)
    if kind is Ref:
        return get(value.name)
    if kind is tuple or kind is list:
        return kind([substituted(item, get) for item in value])
    if kind is dict:
        return {key: substituted(item, get) for key, item in value.items()}
    return value


def references(value: object) -> Iterator[str]:
    """The names that a nest of arguments refers to, those in subgraphs excluded: these see nothing of the graph."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from references(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from references(item)


def defined(node: GraphNode) -> Iterator[str]:
    """The names of a node's values."""
    yield node.name
    yield from (ref.name for ref in node.results if isinstance(ref, Ref) and ref.name != node.name)


def subgraphs(node: GraphNode) -> Iterator[Graph]:
    """The graphs among the arguments of a higher-order operator."""
    return (value for value in (*node.args, *node.kwargs.values()) if isinstance(value, Graph))
