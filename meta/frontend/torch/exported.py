"""Exported programs as data: what an ExportedProgram and a `.pt2` file are read into."""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meta.dim import is_name
from meta.frontend.torch import aten
from meta.frontend.torch.errors import TorchProgramError, UnsupportedError
from meta.frontend.torch.fx import dtype_of as dtype_of
from meta.frontend.torch.fx import read_graph
from meta.frontend.torch.nodes import Graph
from meta.tree import Tree


@dataclass(frozen=True, slots=True)
class InputSpec:
    """The role of a placeholder of the graph.

    kind: "parameter", "buffer" (that a state dict has), "constant" (a tensor that it has not) or "user".
    target: the name of the state; "" for inputs of the user."""

    kind: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The role of an output of the graph: a result of the user (target ""), or the new value of a state or an input.

    target: the name of the state, or of the placeholder of a user's input."""

    kind: str
    target: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """An exported program.

    inputs, outputs: one for each placeholder and each output of the graph.
    values: tensors (of torch or NumPy) by the name of the state; those that share memory are equal in `shared`.
    shared: name -> a key, equal for names of one tensor.
    arguments: the structure of (args, kwargs).  names: of the parameters of forward, in the order of args, then kwargs.
    result: the structure of what it returns.
    bounds: name of a symbolic size -> its least and its greatest value, None for none."""

    graph: Graph
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    values: Mapping[str, Any]
    shared: Mapping[str, Any]
    arguments: Tree
    names: tuple[str, ...]
    result: Tree
    bounds: Mapping[str, tuple[int, int | None]]


def decomposed(program: Any) -> Any:
    """A program after torch's decompositions of what the table lacks, in which writes are results."""
    import warnings

    from torch.export import default_decompositions

    table = aten.without_rows(default_decompositions())
    with warnings.catch_warnings():  # of torch's own tracing, about nothing that the caller did
        warnings.simplefilter("ignore")
        return program.run_decompositions(table)


def is_dense(program: Any) -> bool:
    """Whether no tensor of a program is sparse. torch ends the process when it decomposes a sparse buffer."""
    import torch
    from torch.utils._pytree import tree_leaves

    values = [value for node in program.graph.nodes for value in tree_leaves(node.meta.get("val"))]
    return all(value.layout is torch.strided for value in values if isinstance(value, torch.Tensor))


def read_program(program: Any, device: Any) -> Exported:
    """A `torch.export.ExportedProgram` as data, with references to its tensors.

    Raises TorchProgramError for another object, UnsupportedError for what meta lacks (script objects, dtypes)."""
    signature = getattr(program, "graph_signature", None)
    if signature is None or not hasattr(program, "state_dict") or not hasattr(program, "call_spec"):
        raise TorchProgramError(
            "torch",
            f"the program is {type(program).__module__}.{type(program).__name__}",
            "a torch.export.ExportedProgram, or a path to a .pt2 file",
            "export it: torch.export.export(module, args)",
        )
    inputs = tuple(_input(spec) for spec in signature.input_specs)
    outputs = tuple(_output(spec) for spec in signature.output_specs)
    values: dict[str, Any] = {}
    for spec in inputs:
        if spec.target:
            is_state = spec.target in program.state_dict
            tensor = program.state_dict[spec.target] if is_state else program.constants[spec.target]
            _check_values(spec.target, tensor)
            values[spec.target] = tensor
    entry = program.module_call_graph[0].signature
    arguments = tree_of(program.call_spec.in_spec)
    names = _size_names(program)
    return Exported(
        read_graph(program.graph_module, device=device, names=names), inputs, outputs, values,
        {name: _memory(value) for name, value in values.items()}, arguments,
        argument_names(arguments, getattr(entry, "forward_arg_names", None)), tree_of(program.call_spec.out_spec),
        {names.get(str(symbol), str(symbol)): _range(bounds) for symbol, bounds in program.range_constraints.items()},
    )  # fmt: skip


_INPUT_KINDS = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "constant", "USER_INPUT": "user"}
_OUTPUT_KINDS = {
    "USER_OUTPUT": "user", "LOSS_OUTPUT": "user", "BUFFER_MUTATION": "state", "PARAMETER_MUTATION": "state",
    "USER_INPUT_MUTATION": "input",
}  # fmt: skip


def _input(spec: Any) -> InputSpec:
    kind = _INPUT_KINDS.get(spec.kind.name)
    if kind is None:
        raise unsupported_value("input", getattr(spec.arg, "name", "?"), spec.kind.name)
    if kind == "buffer" and spec.persistent is False:
        kind = "constant"
    return InputSpec(kind, spec.target or "" if kind != "user" else "")


def _output(spec: Any) -> OutputSpec:
    kind = _OUTPUT_KINDS.get(spec.kind.name)
    if kind is None:
        raise unsupported_value("output", getattr(spec.arg, "name", "?"), spec.kind.name)
    return OutputSpec(kind, "" if kind == "user" else str(spec.target))


def unsupported_value(what: str, name: str, kind: str) -> UnsupportedError:
    """The error of an input or output that is neither a tensor nor a plain value."""
    return UnsupportedError("torch", f"the {what} '{name}' is a {kind.lower()}", "tensors and plain values")


def _check_values(name: str, tensor: object) -> None:
    """Raise UnsupportedError for a tensor without values, as torch.export makes of some transforms of torch.func."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    core: Any = torch._C
    if isinstance(tensor, FakeTensor) or core._functorch.is_functorch_wrapped_tensor(tensor):
        raise UnsupportedError(
            "torch", f"the tensor '{name}' of the exported program has no values", "tensors with values",
            remedy="torch.export has lost them, as it does with torch.func.grad; torch.compile traces such functions",
        )  # fmt: skip


def _memory(tensor: Any) -> Any:
    """A key that tensors of one memory share."""
    if not tensor.numel():
        return id(tensor)
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype


def _size_names(program: Any) -> dict[str, str]:
    """Symbol -> the name that its `torch.export.Dim` has, where it has one that no other symbol has."""
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    environment = next((v.fake_mode.shape_env for v in values if getattr(v, "fake_mode", None) is not None), None)
    if environment is None:
        return {}
    given: dict[str, set[str]] = {}
    for symbol, sources in environment.var_to_sources.items():
        kept = str(environment.replacements.get(symbol, symbol))
        for source in sources:
            name = environment.source_name_to_debug_name.get(source.name, source.name)
            if is_name(name) and not name.startswith("L."):
                given.setdefault(kept, set()).add(name)
    uses = Counter(name for names in given.values() for name in names)
    symbols = set(map(str, program.range_constraints))
    return {
        symbol: min(names)
        for symbol, names in given.items()
        if symbol in symbols and uses[min(names)] == 1 and min(names) not in symbols
    }


def _range(bounds: Any) -> tuple[int, int | None]:
    lower, upper = (str(each) for each in (bounds.lower, bounds.upper))
    return int(lower) if lower.lstrip("-").isdigit() else 0, int(upper) if upper.isdigit() else None


def tree_of(spec: Any) -> Tree:
    """The structure of a TreeSpec of torch's pytrees. Classes that are registered there are built by torch."""
    if spec.type is None:
        return Tree("leaf")
    children = tuple(map(tree_of, spec.children()))
    if spec.type is tuple or spec.type is list:
        return Tree(spec.type.__name__, children)
    if spec.type is dict:
        return Tree("dict", children, tuple(spec.context))
    if hasattr(spec.context, "_fields"):
        return Tree("namedtuple", children, tuple(spec.context._fields), spec.context)
    return Tree("namedtuple", children, _keys(spec, len(children)), _rebuild(spec))


def _keys(spec: Any, count: int) -> tuple[Any, ...]:
    """The keys of a mapping of another class; positions for others."""
    for context in (spec.context, *_nested(spec.context)):
        if isinstance(context, (list, tuple)) and len(context) == count:
            return tuple(context)
    return tuple(range(count))


def _nested(context: Any) -> list[Any]:
    return list(context) if isinstance(context, (list, tuple)) else []


def _rebuild(spec: Any) -> Any:
    """A function from the items of a registered class to an instance."""
    from torch.utils._pytree import SUPPORTED_NODES

    node = SUPPORTED_NODES.get(spec.type)
    if node is None:
        raise UnsupportedError("torch", f"an argument or result is a {spec.type.__name__}", "registered pytrees")
    return lambda *items: node.unflatten_fn(list(items), spec.context)


def argument_names(arguments: Tree, names: Any) -> tuple[str, ...]:
    """Names of the parameters of forward: those that torch keeps, without them `arg0` and so on and the keywords.
    If a parameter cannot have the name of some keyword, all are numbered."""
    args, kwargs = arguments.children
    numbered = [f"arg{i}" for i in range(len(args.children) + len(kwargs.children))]
    keywords = [str(key) for key in kwargs.keys]
    for listed in ([str(name) for name in names or ()], [*numbered[: len(args.children)], *keywords]):
        if len(set(listed)) == len(listed) == len(numbered) and all(map(_is_parameter_name, listed)):
            return tuple(listed)
    return tuple(numbered)


def _is_parameter_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)
