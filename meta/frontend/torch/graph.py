"""Graphs of ATen calls as programs of meta.

    record = convert(graph)                     # an FX graph of ATen calls -> a traced program
    outputs = run(read_graph(graph), values)    # the same on arrays, or on symbols of a trace that is going on

Each node runs as its row of the ATen table (`meta.frontend.torch.aten`), so that a conversion is a trace: what the rows
call is recorded. Writes in place (`relu_`, `copy_` to a slice) become new values that other names of the same memory
see (`aliases`); inputs that the graph writes are overwritten at the end.

For a backend of torch.compile: the graphs of AOTAutograd are read as they are. `read_graph(gm)` has one placeholder for
each input, whose `type` is the type of its fake value: a TensorType with symbolic sizes, a size (`SymDim`, or an int)
for a SymInt, or a plain value. `convert` makes parameters only of the tensors. A size among the placeholders is
computed from the shapes of the tensors: its value in the call need not be passed. Sizes among the outputs are in
`record.result.statics()` as `SymDim`s, to be computed by `meta.dim.evaluate`. For operators that the table lacks,
`fallback` maps the GraphNode (its `target` is torch's OpOverload) to a function of ATen's arguments, or to None;
`operators(graph)` lists them beforehand. A `fallback` may return an operator that it defines (`meta.define`) and that
calls torch.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import meta
from meta import dtype as dtypes
from meta import tracing
from meta.device import Device
from meta.dim import SymDim, names
from meta.errors import MetaError, NotSupportedError
from meta.frontend.torch.aliases import AliasedTensor, Storage, ViewStep, field_step, step_of
from meta.frontend.torch.control_flow import HIGHER_ORDER
from meta.frontend.torch.errors import TorchProgramError, UnsupportedError
from meta.frontend.torch.functions import Fallback, check_operators, check_pieces, find, is_check, is_write
from meta.frontend.torch.functions import OperatorUse as OperatorUse
from meta.frontend.torch.functions import operators as operators
from meta.frontend.torch.fx import placeholder_types as placeholder_types
from meta.frontend.torch.fx import read_graph as read_graph
from meta.frontend.torch.nodes import Graph, GraphNode, Placeholder, Ref, defined, references, substituted
from meta.ir.type import TensorType
from meta.modes import modes
from meta.schema._dsl import TensorLike

# What a row raises for arguments that ATen's operator never takes: a tuple for a number, a list that is too short.
# Programs may come from anywhere.
_MISFITS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


def convert(
    graph: Any, types: Sequence[Any] | None = None, *, device: Device | str | None = None,
    fallback: Fallback | None = None,
) -> tracing.Record:  # fmt: skip
    """A graph as a traced program, which `meta.vm.compile(record.module)` compiles.

    graph: an FX graph or GraphModule of ATen calls, or a Graph that `read_graph` gives.
    types: one for each placeholder, in place of the fake values' types: a TensorType, whose sizes may be symbolic; a
        size for a SymInt; or the plain value. A size needs a name that the shape of a tensor has.
    device: where all of the program runs, in place of the devices that the graph names.
    fallback: node -> a function of its arguments, for operators that the table lacks.
    The program's parameters are the tensors among the placeholders, in order, by their names; tensors of the graph
    itself are constants. `record.result` is the structure of the outputs, with sizes and plain values in it.

    Raises UnsupportedError with all operators that neither the table nor `fallback` has, before anything is converted,
    and TorchProgramError, with the node and the line of the user's code, for calls that do not fit."""
    source = graph if isinstance(graph, Graph) else read_graph(graph, device=device)
    kinds = list(types) if types is not None else [p.type for p in source.inputs]
    check_inputs(source.inputs, kinds)
    check_operators(source, fallback)
    tensors = [i for i, kind in enumerate(kinds) if isinstance(kind, TensorType)]

    def program(*args: Any) -> Any:
        values = list(kinds)
        for i, x in zip(tensors, args, strict=True):
            values[i] = x
        return run(source, values, fallback=fallback, checked=True)

    parameters = parameter_names([source.inputs[i].name for i in tensors])
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    program.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in parameters])
    return tracing.record(program, tuple(kinds[i] for i in tensors), {})


def parameter_names(names: Sequence[str]) -> list[str]:
    """Names of tensors as names of Python's parameters, each once."""
    uses: Counter[str] = Counter()
    out: list[str] = []
    for name in names:
        plain = name if name.isidentifier() and not inspect.iscode(name) else f"input_{len(out)}"
        uses[plain] += 1
        out.append(plain if uses[plain] == 1 else f"{plain}_{uses[plain]}")
    return out


def check_inputs(inputs: Sequence[Placeholder], types: Sequence[Any]) -> None:
    """Raise TorchProgramError unless there are as many types as placeholders, and for a size with names that
    no tensor has."""
    if len(types) != len(inputs):
        listed = ", ".join(p.name for p in inputs)
        raise TorchProgramError("torch", f"{len(types)} types for {len(inputs)} placeholders", f"one each: {listed}")
    size_names = {n for kind in types if isinstance(kind, TensorType) for dim in kind.shape for n in names(dim)}
    for each, kind in zip(inputs, types, strict=True):
        if isinstance(kind, SymDim) and not names(kind) <= size_names:
            raise UnsupportedError(
                "torch",
                f"placeholder '{each.name}' is the size {kind}, which no tensor has",
                "sizes of tensors among the placeholders",
                remedy="pass its value as the type",
            )


def run(graph: Graph, values: Sequence[Any], *, fallback: Fallback | None = None, checked: bool = False) -> Any:
    """The outputs of a graph for the values of its placeholders: arrays, symbols of a trace, sizes, plain values.

    Inputs that the graph writes in place are overwritten (`x.update`) when all else is computed.
    checked: whether `check_operators` has accepted the graph. Raises as `convert` does."""
    if not checked:
        check_operators(graph, fallback)
    if len(values) != len(graph.inputs):
        raise TorchProgramError("torch", f"{len(values)} values for {len(graph.inputs)} placeholders", "one for each")
    return _Run(graph, fallback).outputs(values)


class _Run:
    """One execution of a graph."""

    def __init__(self, graph: Graph, fallback: Fallback | None) -> None:
        self.graph = graph
        self.fallback = fallback
        self.values: dict[str, Any] = {}
        self.aliased = any(map(is_write, graph.nodes))
        self.aliases: dict[str, AliasedTensor] = {}
        self.pieces: dict[str, tuple[AliasedTensor, ViewStep, str, tuple[Any, ...], Mapping[str, Any]]] = {}
        self.as_captured = True

    def outputs(self, values: Sequence[Any]) -> Any:
        self.as_captured = not any(map(_has_other_dtype, values, self.graph.inputs))
        inputs = dict(zip([p.name for p in self.graph.inputs], values, strict=True))
        self.values.update(inputs)
        self.values.update({name: _constant(value) for name, value in self.graph.constants.items()})
        builder = getattr(modes.trace, "builder", None)
        before = getattr(builder, "span", None)
        try:
            for node, dead in _schedule(self.graph):
                if builder is not None:
                    builder.span = node.span or before
                self.step(node)
                for name in dead:
                    self.values.pop(name, None)
        finally:
            if builder is not None:
                builder.span = before
        result = substituted(self.graph.output, self.get)
        for name, value in inputs.items():
            alias = self.aliases.get(name)
            if alias is not None and alias.storage.version:
                value.update(alias.read())
        return result

    def get(self, name: str) -> Any:
        alias = self.aliases.get(name)
        if alias is not None:
            return alias.read()
        try:
            return self.values[name]
        except KeyError:
            raise TorchProgramError("torch", f"'{name}' has no value", "a graph in order of its uses") from None

    def step(self, node: GraphNode) -> None:
        try:
            self.call(node)
        except (TorchProgramError, UnsupportedError) as error:
            raise error if error.problem.startswith("node '") else _located(node, error) from error
        except MetaError as error:
            raise _located(node, error) from error
        except _MISFITS as error:
            problem = f"{node.operator}: its arguments do not fit together ({type(error).__name__}: {error})"
            raise _error(TorchProgramError, node, problem[:500], "arguments that ATen accepts") from error

    def call(self, node: GraphNode) -> None:
        args = tuple([substituted(arg, self.get) for arg in node.args])
        kwargs = {name: substituted(arg, self.get) for name, arg in node.kwargs.items()}
        if node.operator in HIGHER_ORDER:
            self.define(node, HIGHER_ORDER[node.operator](self.inner, *args, **kwargs))
            return
        function = find(node, self.fallback)
        if function is None:
            raise UnsupportedError("torch", "the operator is not supported", operators={node.operator: 1})
        check_pieces(node, args)
        result = function(*args, **kwargs)
        if is_write(node):
            self.write(node, result)
            return
        result = _in_declared_dtypes(node, result) if self.as_captured else result
        self.define(node, result)
        if self.aliased and node.namespace in ("aten", "operator"):
            self.view(node, function, args, kwargs, result)

    def define(self, node: GraphNode, result: Any) -> None:
        """Bind the names of a node to its results."""
        self.values[node.name] = result
        for i, ref in enumerate(node.results):
            if isinstance(ref, Ref):
                self.values[ref.name] = result[i]

    def inner(self, graph: Graph, values: Sequence[Any]) -> Any:
        """The outputs of a graph among the arguments of a node."""
        return _Run(graph, self.fallback).outputs(values)

    # --- writes in place ---------------------------------------------------------------------------------------------

    def alias(self, name: str) -> AliasedTensor:
        """The tensor that a name refers to."""
        alias = self.aliases.get(name)
        if alias is None:
            value = self.values[name]
            alias = self.aliases[name] = AliasedTensor(Storage(value), value=value)
        return alias

    def write(self, node: GraphNode, result: Any) -> None:
        target = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
        if not isinstance(target, Ref):
            raise TorchProgramError("torch", f"{node.operator} writes {target!r}", "a tensor")
        alias = self.alias(target.name)
        value = result if result.dtype == alias.value.dtype else result.cast(alias.value.dtype)
        alias.write(node.operator, value)
        for name in defined(node):
            self.aliases[name] = alias

    def view(
        self, node: GraphNode, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
        result: object,
    ) -> None:  # fmt: skip
        """Note whether the result of a node is a view of its first argument."""
        source = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
        if not isinstance(source, Ref):
            return
        if node.operator == "operator.getitem":
            if source.name in self.pieces:
                alias, step, base, rest, named = self.pieces[source.name]
                self.field(node.name, alias, field_step(base, step, node.args[1], rest, named), result)
            return
        whole, rest, named = (args[0], args[1:], kwargs) if node.args else _split_first(kwargs)
        if not isinstance(whole, TensorLike):
            return
        step = step_of(node.base, function, whole, result, rest, named)
        if step is None:
            return
        alias = self.alias(source.name)
        if isinstance(result, (tuple, list)):
            self.pieces[node.name] = alias, step, node.base, rest, named
            for i, ref in enumerate(node.results):
                if isinstance(ref, Ref):
                    self.field(ref.name, alias, field_step(node.base, step, i, rest, named), result[i])
            return
        self.field(node.name, alias, step, result)

    def field(self, name: str, alias: AliasedTensor, step: ViewStep | None, value: object) -> None:
        if step is not None:
            storage = alias.storage
            self.aliases[name] = AliasedTensor(storage, (*alias.steps, step), value, storage.version)


def _has_other_dtype(value: object, declared: Placeholder) -> bool:
    """Whether an input is a tensor of another dtype than in the capture, so that results also have other dtypes."""
    return isinstance(declared.type, TensorType) and _differs(value, declared.type.dtype)


def _in_declared_dtypes(node: GraphNode, result: object) -> Any:
    """The results of a node in the dtypes that the graph declares. Raises UnsupportedError for a result of another
    kind, such as an integer for a float."""
    is_single = not isinstance(result, (tuple, list))
    results: Any = (result,) if is_single else result
    if len(results) != len(node.dtypes):
        return result  # the graph does not say, or leaves results out
    pairs = list(zip(results, node.dtypes, strict=True))
    if not any(_differs(x, dtype) for x, dtype in pairs):
        return result
    converted = [_in_dtype(x, dtype) if dtype is not None and _differs(x, dtype) else x for x, dtype in pairs]
    return converted[0] if is_single else type(result)(converted)


def _differs(x: Any, dtype: str | None) -> bool:
    kind = getattr(x, "type", None) if isinstance(x, TensorLike) else None
    return dtype is not None and isinstance(kind, TensorType) and kind.dtype != dtype


def _in_dtype(x: Any, dtype: str) -> Any:
    if _kind(x.type.dtype) != _kind(dtype):
        raise UnsupportedError("torch", f"its result is {x.type.dtype} here, and {dtype} in the program", f"{dtype}")
    return meta.cast(x, dtype)


def _kind(dtype: str) -> str:
    return next(name for name, is_of in _KINDS.items() if is_of(dtype))


_KINDS: Mapping[str, Callable[[str], bool]] = {
    "float": dtypes.is_float, "complex": dtypes.is_complex, "bool": lambda dtype: dtype == "bool",
    "integer": lambda dtype: True,
}  # fmt: skip


def _split_first(kwargs: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """The first of the named arguments, which is the tensor that a view is of, and the others."""
    first, *others = kwargs.items()
    return first[1], (), dict(others)


def _schedule(graph: Graph) -> list[tuple[GraphNode, tuple[str, ...]]]:
    """The nodes that outputs and writes need, in order, each with the names that nothing reads after it."""
    needed = set(references(graph.output))
    steps: list[tuple[GraphNode, tuple[str, ...]]] = []
    has_writes = any(map(is_write, graph.nodes))
    for node in reversed(graph.nodes):
        if is_check(node) or not (is_write(node) or _has_effects(node) or any(n in needed for n in defined(node))):
            continue
        used = set(references((node.args, node.kwargs)))
        steps.append((node, () if has_writes else tuple(used - needed)))
        needed |= used
    return steps[::-1]


def _has_effects(node: GraphNode) -> bool:
    """Whether a node may write arguments that its name does not tell: running statistics."""
    return node.base in _STATISTICS


_STATISTICS = frozenset({
    "_batch_norm_with_update", "_native_batch_norm_legit", "batch_norm", "instance_norm", "native_batch_norm",
})  # fmt: skip


def _constant(value: Any) -> Any:
    """A tensor of a graph as a constant of the program."""
    if isinstance(value, TensorLike):
        x: Any = value
    else:
        x = meta.from_dlpack(value.detach() if hasattr(value, "detach") else value)
    if modes.trace is not None and isinstance(x, meta.NDArray):
        modes.trace.register_constant(x)
    return x


def _located(node: GraphNode, error: MetaError) -> TorchProgramError:
    """An error about the arguments of a node, with its name and the line of the user's code."""
    kind = UnsupportedError if isinstance(error, NotSupportedError) else TorchProgramError
    subject = f"[{error.subject}] " if error.subject not in ("", "torch", node.base) else ""
    return _error(kind, node, f"{node.operator}: {subject}{error.problem}", error.expected, error.remedy)


def _error(
    kind: type[TorchProgramError], node: GraphNode, problem: str, expected: str = "", remedy: str = ""
) -> TorchProgramError:
    return kind(
        "torch",
        f"node '{node.name}': {problem}",
        expected,
        remedy=remedy,
        location=str(node.span) if node.span else None,
    )
