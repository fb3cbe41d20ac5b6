"""`NodeEvaluator`: runs the nodes of a model, on arrays (eagerly) or on symbols (which converts them)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meta.errors import MetaError, NotSupportedError, SymbolicSizeError, TraceError
from meta.frontend.onnx.attributes import attributes, check_against_definition
from meta.frontend.onnx.errors import GUIDE, OnnxError, UndecidedError, UnsupportedError
from meta.frontend.onnx.functions import default_attributes, function_body, model_function
from meta.frontend.onnx.node import NodeView, describe
from meta.frontend.onnx.ops._row import OperatorRow, domain_of, qualified, table
from meta.frontend.onnx.source import SourceProgram
from meta.frontend.onnx.tensors import read_tensor
from meta.limits import MAX_FOLDED
from meta.modes import suspended
from meta.schema._dsl import TensorLike

MAX_NODES = 10_000_000
"""Nodes that one call runs; nodes of loops and functions count with each repetition."""
MAX_CALLS = 64
"""Nesting of functions and subgraphs."""

_MISFITS = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)


@dataclass(slots=True, eq=False)
class GraphFrame:
    """The values of a graph that is being run.

    attributes: of the function that the graph is in.  opsets: the version of each domain.  parent: the frame of the
    graph around a subgraph."""

    opsets: Mapping[str, int]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    parent: GraphFrame | None = None
    depth: int = 0
    values: dict[Any, Any] = field(default_factory=dict[Any, Any])

    def find(self, value: Any) -> Any:
        """A value of this graph or of one around it. Raises KeyError for one that is not computed yet."""
        frame: GraphFrame | None = self
        while frame is not None:
            if value in frame.values:
                return frame.values[value]
            frame = frame.parent
        raise KeyError(value.name)


@dataclass(frozen=True, slots=True, eq=False)
class Subgraph:
    """A graph that is an attribute: a branch, or the body of a loop. It reads the values around it."""

    evaluator: NodeEvaluator
    graph: Any
    frame: GraphFrame

    @property
    def inputs(self) -> tuple[Any, ...]:
        return tuple(self.graph.inputs)

    @property
    def outputs(self) -> tuple[Any, ...]:
        return tuple(self.graph.outputs)

    def keeps_going(self) -> bool:
        """Whether output 0 of the body of a loop is the condition that it is given, or a constant true."""
        value = self.graph.outputs[0] if self.graph.outputs else None
        while value is not None and value.producer() is not None and value.producer().op_type in ("Identity", "Cast"):
            value = value.producer().inputs[0]
        if value is None or (len(self.graph.inputs) > 1 and value is self.graph.inputs[1]):
            return value is not None
        try:
            constant = self.evaluator.constant(value, self.frame)
        except OnnxError:
            return False
        return isinstance(constant, np.ndarray) and constant.size == 1 and bool(constant.reshape(()).item())

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        frame = GraphFrame(self.frame.opsets, self.frame.attributes, self.frame, self.frame.depth + 1)
        return self.evaluator.graph(self.graph, inputs, frame)


class NodeEvaluator:
    """Runs the nodes of one program.

    initializers: an initializer of the graph -> its value, in place of the file's (None leaves it).
    place: the node that runs, or ran last, in words.
    """

    def __init__(self, program: SourceProgram, initializers: Callable[[Any], Any] | None = None) -> None:
        self.program = program
        self._initializers = initializers or (lambda _: None)
        self._constants: dict[Any, Any] = {}
        self._count = 0
        self.place = ""

    def main(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of the model's graph."""
        self._count = 0
        return self.graph(self.program.graph, inputs, GraphFrame(self.program.opsets))

    def graph(self, graph: Any, inputs: Sequence[Any], frame: GraphFrame) -> tuple[Any, ...]:
        """The outputs of a graph. inputs: without those that are initializers only."""
        if frame.depth > MAX_CALLS:
            raise OnnxError("onnx", f"functions and subgraphs nest {frame.depth} deep", f"at most {MAX_CALLS}")
        for value in graph.initializers.values():
            frame.values[value] = self.initializer(value)
        if len(inputs) != len(graph.inputs):
            raise OnnxError("onnx", f"graph '{graph.name}' is given {len(inputs)} inputs", f"{len(graph.inputs)}")
        frame.values.update(zip(graph.inputs, inputs, strict=True))
        for node in graph:
            self.node(node, frame)
        return tuple(
            self._read(value, frame, f"output '{value.name}' of graph '{graph.name}'") for value in graph.outputs
        )

    def node(self, node: Any, frame: GraphFrame) -> None:
        """Run a node and keep its outputs in the frame."""
        where = self.place = describe(node)
        self._count += 1
        if self._count > MAX_NODES:
            raise OnnxError("onnx", f"{where}: more than {MAX_NODES} nodes are run", "a model that ends sooner")
        inputs = [None if v is None else self._read(v, frame, f"input '{v.name}' of {where}") for v in node.inputs]
        try:
            result = self._result(node, where, inputs, frame)
        except OnnxError:
            raise
        except MetaError as error:
            kind = _kind(error)
            subject = f"[{error.subject}] " if error.subject else ""
            raise kind("onnx", f"{where}: {subject}{error.problem}", error.expected, remedy=error.remedy) from error
        except _MISFITS as error:
            problem = f"{where}: its inputs and attributes do not fit together ({type(error).__name__}: {error})"
            raise OnnxError("onnx", problem, "operands that ONNX allows") from error
        outputs: tuple[Any, ...] = result if isinstance(result, tuple) else (result,)
        for i, value in enumerate(node.outputs):
            if i < len(outputs):
                frame.values[value] = np.asarray(outputs[i]) if isinstance(outputs[i], np.generic) else outputs[i]
            elif value.name:
                raise UnsupportedError(
                    "onnx", f"{where}: output {i}, '{value.name}', is used", f"{len(outputs)} outputs"
                )

    # --- a node ------------------------------------------------------------------------------------------------------

    def _result(self, node: Any, where: str, inputs: list[Any], frame: GraphFrame) -> Any:
        domain = domain_of(node.domain)
        function = model_function(self.program, node, domain)
        if function is not None:
            return self._call(function, inputs, self._attributes(node, where, frame), frame)
        version = frame.opsets.get(domain)
        if version is None:
            raise OnnxError("onnx", f"{where} is of a domain that the model does not import", "an opset_import of it")
        check_against_definition(node, where, version, domain)
        attrs = self._attributes(node, where, frame)
        row = table.find(qualified(node.op_type, domain), version)
        result = NotImplemented if row is None else self._by_row(row, node, where, version, domain, inputs, attrs)
        if result is NotImplemented:
            body = self._body(node, where, version, domain, inputs)
            return self._call(body, inputs, default_attributes(node, version, domain) | attrs, frame)
        return result

    def _by_row(
        self, row: OperatorRow, node: Any, where: str, version: int, domain: str, inputs: list[Any],
        attrs: dict[str, Any],
    ) -> Any:  # fmt: skip
        used = tuple(v.name if v.name and (v.uses() or v.is_graph_output()) else "" for v in node.outputs)
        names = tuple("" if v is None else v.name or "" for v in node.inputs)
        view = NodeView(where, node.op_type, domain, node.overload, version, names, used)
        if row.folds and row.fold is None and _are_known(inputs) and _is_moderate(node.op_type, inputs):
            with suspended():
                return _as_known(row(view, inputs, attrs))
        return row(view, inputs, attrs)

    def _attributes(self, node: Any, where: str, frame: GraphFrame) -> dict[str, Any]:
        def graph(value: Any) -> Subgraph:
            return Subgraph(self, value, frame)

        return attributes(node, where, frame.attributes, graph, self.program.folder)

    def _body(self, node: Any, where: str, version: int, domain: str, inputs: list[Any]) -> Any:
        body = function_body(node, version, domain, inputs)
        if body is None:
            problem = f"{where}: the operator is not supported in opset {version}"
            raise UnsupportedError("onnx", problem, remedy=GUIDE)
        return body

    def _call(self, function: Any, inputs: list[Any], attrs: dict[str, Any], frame: GraphFrame) -> tuple[Any, ...]:
        defaults = attributes(function, function.name, {}, lambda g: Subgraph(self, g, frame), self.program.folder)
        # The bodies that ONNX gives for operators of its other domains import these domains alone.
        opsets = {**frame.opsets, **{domain_of(d): int(v) for d, v in function.opset_imports.items()}}
        padded = inputs + [None] * (len(function.inputs) - len(inputs))
        inner = GraphFrame(
            opsets, {k: v for k, v in {**defaults, **attrs}.items() if v is not None}, None, frame.depth + 1
        )
        return self.graph(function.graph, padded, inner)

    # --- values ------------------------------------------------------------------------------------------------------

    def constant(self, value: Any, frame: GraphFrame) -> Any:
        """The value of an initializer, of a node Constant, or of a value around a subgraph; None for others."""
        node = value.producer()
        if node is not None and node.op_type == "Constant":
            inner = GraphFrame(frame.opsets, frame.attributes, frame, frame.depth)
            self.node(node, inner)
            return inner.values[value]
        if value.const_value is not None:
            return self.initializer(value)
        return self._read(value, frame, f"'{value.name}'")

    def initializer(self, value: Any) -> Any:
        constant = self._initializers(value)
        if constant is not None:
            return constant
        if value not in self._constants:
            where = f"initializer '{value.name}'"
            self._constants[value] = read_tensor(value.const_value, where, self.program.folder)
        return self._constants[value]

    def _read(self, value: Any, frame: GraphFrame, where: str) -> Any:
        try:
            return frame.find(value)
        except KeyError:
            expected = "nodes in the order in which they are computed, without cycles"
            raise OnnxError("onnx", f"{where} is not computed before it is read", expected) from None


def _kind(error: MetaError) -> type[OnnxError]:
    """The class of the error about a node in which an operator of meta raised one. A trace that needs values or numbers
    for symbolic sizes leaves the model undecided, not wrong."""
    if isinstance(error, (TraceError, SymbolicSizeError)):
        return UndecidedError
    return UnsupportedError if isinstance(error, NotSupportedError) else OnnxError


def _are_known(inputs: Sequence[Any]) -> bool:
    """Whether a node can be computed at conversion: all of its inputs are known, and there is one."""
    values = [v for v in inputs if isinstance(v, np.ndarray)]
    if not values or len(values) != sum(v is not None for v in inputs) or any(v.dtype.kind in "OU" for v in values):
        return False
    return sum(v.size for v in values) <= MAX_FOLDED


def _is_moderate(op_type: str, inputs: Sequence[Any]) -> bool:
    """Whether the result of a node is no larger than what conversion computes: its size may be an input's value."""
    return op_type != "ConstantOfShape" or math.prod(int(n) for n in inputs[0].ravel()) <= MAX_FOLDED


def _as_known(result: Any) -> Any:
    """The result of a node on known inputs, as NumPy arrays."""
    if isinstance(result, tuple):
        return tuple(map(_as_known, result))
    if isinstance(result, list):
        return list(map(_as_known, result))
    return result.numpy() if isinstance(result, TensorLike) else result
