"""An ONNX graph under construction: nodes, initializers, and sizes as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meta.dim import Dim, SymDim, compute, is_static, names
from meta.frontend.onnx.export_types import casts, dtype_of_element, element_type, held_type, signature
from meta.ir.type import TensorType, linear


@dataclass(frozen=True, slots=True)
class SizeSource:
    """Where a symbolic size is: the axis of an input has `coefficient * size + rest` elements."""

    input: str
    axis: int
    coefficient: Dim = 1
    rest: Dim = 0


def size_sources(inputs: Mapping[str, Sequence[Dim]]) -> dict[str, SizeSource]:
    """The source of each symbolic size in shapes of inputs: an axis of this size, or else one that is linear in it."""
    axes = [(name, axis, size) for name, shape in inputs.items() for axis, size in enumerate(shape)]
    sources: dict[str, SizeSource] = {}
    for name, axis, size in axes:
        if isinstance(size, SymDim) and size.name is not None:
            sources.setdefault(size.name, SizeSource(name, axis))
    count = -1
    while count < len(sources):
        count = len(sources)
        for name, axis, size in axes:
            unknown = names(size) - sources.keys()
            equation = linear(size, *unknown) if len(unknown) == 1 else None
            if equation is not None:
                sources[next(iter(unknown))] = SizeSource(name, axis, *equation)
    return sources


@dataclass(slots=True)
class ExportGraph:
    """A graph or the body of a branch.

    opset: the version of ONNX's operators.  sizes: the sources of symbolic sizes by their names.
    taken: the names of values so far, and dtypes: their dtypes, as far as they are known; both are shared with the
    graphs around.  constants: initializers by their contents."""

    opset: int
    sizes: Mapping[str, SizeSource]
    taken: set[str] = field(default_factory=set[str])
    dtypes: dict[str, str] = field(default_factory=dict[str, str])
    nodes: list[Any] = field(default_factory=list[Any])
    initializers: list[Any] = field(default_factory=list[Any])
    constants: dict[Any, str] = field(default_factory=dict[Any, str])
    known_sizes: dict[str, str] = field(default_factory=dict[str, str])
    label: str = ""

    def branch(self) -> ExportGraph:
        """A graph inside of this one, which sees its values."""
        return ExportGraph(self.opset, self.sizes, self.taken, self.dtypes, label=self.label)

    def name(self, hint: str) -> str:
        """A new name of a value."""
        unique, number = hint, 0
        while unique in self.taken:
            number += 1
            unique = f"{hint}_{number}"
        self.taken.add(unique)
        return unique

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node of ONNX's operator `kind`. Returns the name of its output, or a tuple of the names of several.

        inputs: "" for an absent one. Where the operator does not take their dtype, it computes in a wider one, and its
        outputs are cast back.  attributes: any that are None are left out.

        Raises UnwritableError for dtypes without a wider one."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        kinds = signature(kind, self.opset)
        bound = kinds.bound([self.dtypes.get(name, "") for name in inputs])
        wider = casts(kind, self.opset, bound)
        operands = [
            self._cast(name, wider[variable]) if name and variable in wider else name
            for name, variable in zip(inputs, kinds.input_variables(len(inputs)), strict=True)
        ]
        names = self._append(kind, operands, outputs, attributes)
        results: list[str] = []
        for name, variable in zip(names, kinds.output_variables(outputs), strict=True):
            dtype = bound.get(variable, "" if variable in kinds.allowed else variable) or _stated_dtype(attributes)
            self.dtypes[name] = wider.get(variable, dtype)
            results.append(self._cast(name, dtype) if variable in wider else name)
        return tuple(results) if outputs > 1 else results[0]

    def _cast(self, name: str, dtype: str) -> str:
        (result,) = self._append("Cast", [name], 1, {"to": element_type(dtype)})
        self.dtypes[result] = dtype
        return result

    def _append(self, kind: str, inputs: Sequence[str], outputs: int, attributes: Mapping[str, Any]) -> tuple[str, ...]:
        import onnx

        names = tuple(self.name(kind.lower()) for _ in range(outputs))
        present = {key: value for key, value in attributes.items() if value is not None}
        node = onnx.helper.make_node(kind, list(inputs), list(names), **present)
        node.name = self.name(f"{self.label or kind}_{len(self.nodes)}")
        self.nodes.append(node)
        return names

    def constant(self, value: Any, dtype: str) -> str:
        """An initializer with the elements `value`, one for equal ones."""
        from meta import dtype as dtypes

        array = np.asarray(value).astype(dtypes.to_numpy(dtype))
        key = (dtype, array.shape, array.tobytes()) if array.nbytes <= 1024 else None
        if key is not None and key in self.constants:
            return self.constants[key]
        name = self.initializer(self.name("constant"), array)
        if key is not None:
            self.constants[key] = name
        return name

    def initializer(self, name: str, array: Any) -> str:
        import onnx

        self.dtypes[name] = str(array.dtype)
        self.initializers.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def integers(self, values: Sequence[Dim]) -> str:
        """A vector of int64; symbolic sizes among its elements are computed from the shapes of inputs."""
        if is_static(values):
            return self.constant(np.array([int(value) for value in values], "int64"), "int64")
        return self.node("Concat", *map(self.size, values), axis=0)

    def size(self, value: Dim) -> str:
        """A size as a vector of one int64."""
        if isinstance(value, int):
            return self.integers([value])
        result = compute(
            value,
            lambda name: _Size(self, self._named_size(name)),
            lambda number: _Size(self, self.integers([number])),
            lambda a, b: _Size(self, self._quotient(a.name, b.name)),
            lambda a, b: _Size(self, self.node("Min", a.name, b.name)),
        )
        return result.name

    def _quotient(self, a: str, b: str) -> str:
        """Floor division. Div truncates, and so divides the multiple of `b` that is not above `a`."""
        return self.node("Div", self.node("Sub", a, self.node("Mod", a, b)), b)

    def _named_size(self, name: str) -> str:
        if name not in self.known_sizes:
            source = self.sizes[name]
            size = self.node("Shape", source.input, start=source.axis, end=source.axis + 1)
            if source.rest != 0:
                size = self.node("Sub", size, self.size(source.rest))
            if source.coefficient != 1:
                size = self.node("Div", size, self.size(source.coefficient))
            self.known_sizes[name] = size
        return self.known_sizes[name]


@dataclass(frozen=True, slots=True)
class _Size:
    """A size in the arithmetic of a graph."""

    graph: ExportGraph
    name: str

    def __add__(self, other: _Size) -> _Size:
        return _Size(self.graph, self.graph.node("Add", self.name, other.name))

    def __mul__(self, other: _Size) -> _Size:
        return _Size(self.graph, self.graph.node("Mul", self.name, other.name))


def _stated_dtype(attributes: Mapping[str, Any]) -> str:
    """The dtype of outputs that attributes state; "" without one."""
    number = attributes.get("to") or attributes.get("dtype")
    if number is None and hasattr(attributes.get("value"), "data_type"):
        number = attributes["value"].data_type
    return "" if number is None else dtype_of_element(number)


def value_info(name: str, kind: TensorType) -> Any:
    """A declared input or output; symbolic sizes are parameters of dimensions by their names."""
    import onnx

    kind = held_type(kind)
    return onnx.helper.make_tensor_value_info(
        name, element_type(kind.dtype), [d if isinstance(d, int) else str(d) for d in kind.shape]
    )
