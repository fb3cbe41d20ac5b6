"""The program in a `.pt2` file: JSON of the classes in torch's `_export/serde/schema.py`, version 8.

A union is an object whose one field is its tag. Names of tensors and sizes come from the FX graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meta.device import Device
from meta.dim import Dim
from meta.errors import DeviceError, MetaError, TypeInferenceError
from meta.frontend.torch.errors import TorchProgramError, UnsupportedError
from meta.frontend.torch.exported import Exported, InputSpec, OutputSpec, argument_names, unsupported_value
from meta.frontend.torch.fields import bad_file, fields, integer, list_of, text, union
from meta.frontend.torch.fx import user_line
from meta.frontend.torch.nodes import Graph, GraphNode, Placeholder, Ref, defined, references
from meta.frontend.torch.size_text import parse_size
from meta.frontend.torch.tree_text import parse_tree
from meta.ir.type import TensorType, tensor_type
from meta.limits import MAX_DEPTH

MAJOR = 8
"""The version of the schema; torch changes it when old readers misread new files."""

DTYPES: Mapping[int, str] = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16",
}  # fmt: skip
"""torch's numbers of dtypes in files; those that meta lacks are left out."""


def read_exported(
    program: object, values: Mapping[str, Any], shared: Mapping[str, Any], source: str, device: Device | None
) -> Exported:
    """The program, with tensors by name. source: the name of the file.  device: where all of it runs.

    Raises TorchProgramError, with the node, for what is invalid or contradictory, UnsupportedError for what meta
    lacks."""
    top = fields(program, source)
    version = fields(top.get("schema_version"), source).get("major")
    if version != MAJOR:
        raise UnsupportedError("torch", f"{source}: version {version!r} of the schema"[:200], f"version {MAJOR}",
                               "save it by torch 2.7 or newer")  # fmt: skip
    module = fields(top.get("graph_module"), source)
    signature = fields(module.get("signature"), source)
    specs = [_input(*union(each, source), source) for each in list_of(signature.get("input_specs"), source)]
    outputs = tuple(_output(*union(each, source), source) for each in list_of(signature.get("output_specs"), source))
    names = [name for _, name in specs]
    graph = _SchemaReader(source, device).graph(module.get("graph"), names)
    inputs = tuple(spec for spec, _ in specs)
    if not isinstance(graph.output, tuple) or len(graph.output) != len(outputs):
        raise bad_file(source, f"{len(outputs)} output specs", "one for each output")
    _check_state(inputs, outputs, graph, values, source)
    entry = _call_signature(module, source)
    arguments = parse_tree(entry.get("in_spec"), source)
    result = parse_tree(entry.get("out_spec"), source)
    users = sum(spec.kind == "user" for spec in inputs)
    results = sum(spec.kind == "user" for spec in outputs)
    parts = [part.kind for part in arguments.children]
    if parts != ["tuple", "dict"] or arguments.count() != users or result.count() != results:
        raise bad_file(source, f"a signature of {arguments.count()} inputs and {result.count()} results",
                       f"{users} and {results}, which the graph has")  # fmt: skip
    listed_names = entry.get("forward_arg_names")
    listed = argument_names(arguments, listed_names if isinstance(listed_names, list) else None)
    return Exported(graph, inputs, outputs, values, shared, arguments, listed, result, _bounds(top, source))


def _check_state(
    inputs: tuple[InputSpec, ...], outputs: tuple[OutputSpec, ...], graph: Graph, values: Mapping[str, Any], source: str
) -> None:
    targets: set[str] = set()
    for spec, placeholder in zip(inputs, graph.inputs, strict=True):
        if spec.kind == "user":
            continue
        where = f"{source}, input '{placeholder.name}'"
        value = values.get(spec.target)
        if value is None:
            raise bad_file(where, f"there is no tensor {spec.target!r}"[:200])
        kind = placeholder.type
        if not isinstance(kind, TensorType) or kind.shape != value.shape or kind.dtype != str(value.dtype):
            raise bad_file(where, f"{spec.target!r} is {value.dtype} of shape {value.shape}"[:200], f"{kind!r}")
        targets.add(spec.target)
    placeholders = {p.name for p in graph.inputs}
    for spec in outputs:
        if spec.kind != "user" and spec.target not in (targets if spec.kind == "state" else placeholders):
            raise bad_file(source, f"an output is the new value of {spec.target!r}"[:200], "a state or an input")


def _call_signature(module: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    for each in list_of(module.get("module_call_graph"), source):
        entry = fields(each, source)
        if entry.get("fqn") == "":
            return fields(entry.get("signature"), source)
    raise bad_file(source, "the module's signature is missing")


def _bounds(top: Mapping[str, Any], source: str) -> dict[str, tuple[int, int | None]]:
    bounds: dict[str, tuple[int, int | None]] = {}
    for name, each in fields(top.get("range_constraints"), source).items():
        limits = fields(each, source)
        least, greatest = limits.get("min_val"), limits.get("max_val")
        bounds[name] = (
            0 if least is None else integer(least, source), None if greatest is None else integer(greatest, source)
        )  # fmt: skip
    return bounds


# --- the signature ---------------------------------------------------------------------------------------------------

_STATE = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}


def _input(kind: str, spec: object, source: str) -> tuple[InputSpec, str]:
    """The role of an input, and its name."""
    each = fields(spec, source)
    if kind in _STATE:
        target = text(each.get(_STATE[kind]), source)
        constant = kind == "tensor_constant" or (kind == "buffer" and each.get("persistent") is False)
        return InputSpec("constant" if constant else kind, target), _tensor_name(each.get("arg"), source)
    if kind == "constant_input":
        return InputSpec("user"), text(each.get("name"), source)
    if kind != "user_input":
        raise unsupported_value("input", str(each.get("custom_obj_name", "?"))[:80], kind)
    tag, value = union(each.get("arg"), source)
    if tag == "as_tensor":
        return InputSpec("user"), _tensor_name(value, source)
    return InputSpec("user"), text(fields(value, source).get("as_name"), source) if tag.startswith("as_sym") else ""


def _output(kind: str, spec: object, source: str) -> OutputSpec:
    each = fields(spec, source)
    if kind in ("user_output", "loss_output"):
        return OutputSpec("user")
    if kind in ("buffer_mutation", "parameter_mutation"):
        return OutputSpec("state", text(each.get(f"{kind.partition('_')[0]}_name"), source))
    if kind == "user_input_mutation":
        return OutputSpec("input", text(each.get("user_input_name"), source))
    raise unsupported_value("output", "?", kind)


def _tensor_name(value: object, where: str) -> str:
    return text(fields(value, where).get("name"), where)


# --- graphs ----------------------------------------------------------------------------------------------------------


class _SchemaReader:
    """Reads a graph and those inside of its higher-order operators."""

    def __init__(self, source: str, device: Device | None, depth: int = 0) -> None:
        self.source = source
        self.device = device
        self.depth = depth
        if depth > MAX_DEPTH:
            raise bad_file(source, f"graphs nest deeper than {MAX_DEPTH}")

    def graph(self, value: object, names: list[str] | None = None) -> Graph:
        """A graph. names: of its inputs, "" for plain values."""
        each = fields(value, self.source)
        self.tensors = fields(each.get("tensor_values"), self.source)
        self.sizes = fields(each.get("sym_int_values"), self.source)
        input_fields = list_of(each.get("inputs"), self.source)
        if names is not None and len(names) != len(input_fields):
            raise bad_file(self.source, f"{len(names)} input specs and {len(input_fields)} inputs", "one for each")
        inputs = tuple(self.placeholder(i, arg, names[i] if names else "") for i, arg in enumerate(input_fields))
        nodes = tuple(self.node(i, node) for i, node in enumerate(list_of(each.get("nodes"), self.source)))
        output = tuple(
            self.argument(arg, f"{self.source}, an output") for arg in list_of(each.get("outputs"), self.source)
        )
        single = each.get("is_single_tensor_return") is True and len(output) == 1
        graph = Graph(inputs, nodes, output[0] if single else output)
        self.check_order(graph)
        return graph

    def check_order(self, graph: Graph) -> None:
        """Raise TorchProgramError for a name that is defined twice, or read before it is defined."""
        values: set[str] = set()
        for placeholder in graph.inputs:
            if placeholder.name in values:
                raise bad_file(self.source, f"two inputs '{placeholder.name}'"[:200])
            values.add(placeholder.name)
        for node in graph.nodes:
            for name in references((node.args, node.kwargs)):
                if name not in values:
                    raise bad_file(f"{self.source}, node '{node.name[:100]}'", f"'{name[:100]}' has no value there")
            for name in defined(node):
                if name in values:
                    raise bad_file(self.source, f"'{name[:100]}' is defined twice")
                values.add(name)
        for name in references(graph.output):
            if name not in values:
                raise bad_file(self.source, f"the output '{name[:100]}' has no value")

    def placeholder(self, position: int, arg: object, name: str) -> Placeholder:
        where = f"{self.source}, input {position}"
        tag, value = union(arg, where)
        if tag == "as_tensor":
            own = _tensor_name(value, where)
            return Placeholder(own, self.tensor_type(own))
        if tag == "as_sym_int":
            own = text(fields(value, where).get("as_name"), where)
            return Placeholder(own, self.size(self.sizes.get(own), where))
        return Placeholder(name or f"input{position}", self.argument(arg, where))

    def tensor_type(self, name: str) -> TensorType:
        where = f"{self.source}, tensor '{name[:100]}'"
        each = fields(self.tensors.get(name), where)
        dtype = DTYPES.get(integer(each.get("dtype"), where))
        if dtype is None or each.get("layout") != 7:
            what = f"dtype number {each.get('dtype')} and layout number {each.get('layout')!r}"[:100]
            raise UnsupportedError("torch", f"{where}: {what}", "dense tensors of meta's dtypes")
        shape = tuple(self.size(size, where) for size in list_of(each.get("sizes"), where))
        try:
            return tensor_type(shape, dtype, self.device or self.named_device(each.get("device"), where))
        except (DeviceError, TypeInferenceError) as error:
            raise bad_file(where, error.problem, error.expected) from error

    def named_device(self, value: object, where: str) -> str:
        each = fields(value, where)
        index = each.get("index")
        return str(
            self.device or text(each.get("type"), where) + ("" if index is None else f":{integer(index, where)}")
        )

    def size(self, value: object, where: str) -> Dim:
        tag, inner = union(value, where)
        if tag == "as_int":
            size = integer(inner, where)
        elif tag == "as_expr":
            size = parse_size(text(fields(inner, where).get("expr_str"), where), where)
        else:
            raise bad_file(where, f"a size is a {tag[:80]}", "an int or an expression")
        if isinstance(size, int) and size < 0:
            raise bad_file(where, f"a size is {size}", "0 and up")
        return size

    # --- nodes -------------------------------------------------------------------------------------------------------

    def node(self, position: int, value: object) -> GraphNode:
        each = fields(value, f"{self.source}, node {position}")
        label = str(each.get("name") or position)[:100]
        where = f"{self.source}, node '{label}'"
        metadata = fields(each.get("metadata", {}), where)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for input_field in list_of(each.get("inputs"), where):
            argument = fields(input_field, where)
            converted = self.argument(argument.get("arg"), where)
            if argument.get("kind") == 2:
                kwargs[text(argument.get("name"), where)] = converted
            else:
                args.append(converted)
        outputs = [self.output(arg, where) for arg in list_of(each.get("outputs"), where)]
        single = len(outputs) == 1
        first = outputs[0] if single else None
        results: tuple[Any, ...] = ()
        name = str(each.get("name") or f"node{position}")
        operator = _operator(text(each.get("target"), where))
        if isinstance(first, Ref) and not (operator.startswith("higher_order.") and not _returns_one(each)):
            name = first.name
        else:
            results = tuple(first) if isinstance(first, list) else tuple(outputs)
            name = f"{name}*"  # a name that no reference has: the results have their own
        trace = metadata.get("stack_trace")
        span = user_line(trace if isinstance(trace, str) else None)
        dtypes = tuple(map(self.dtype, results or (first,)))
        return GraphNode(name, operator, tuple(args), kwargs, span, None, results, dtypes)

    def dtype(self, result: object) -> str | None:
        """The dtype of a node's result, None for a result other than a tensor."""
        described = self.tensors.get(result.name) if isinstance(result, Ref) else None
        number = described.get("dtype") if isinstance(described, dict) else None
        return DTYPES.get(number) if isinstance(number, int) else None

    def output(self, value: object, where: str) -> Any:
        """The definition of a node: a Ref, a list of them, or None."""
        tag, inner = union(value, where)
        if tag == "as_tensor":
            return Ref(_tensor_name(inner, where))
        if tag == "as_tensors":
            return [Ref(_tensor_name(each, where)) for each in list_of(inner, where)]
        if tag in ("as_sym_int", "as_sym_bool", "as_sym_float"):
            return Ref(text(fields(inner, where).get("as_name"), where))
        if tag == "as_optional_tensor":
            return self.output(inner, where)
        if tag == "as_none":
            return None
        raise UnsupportedError("torch", f"{where}: a result is a {tag[:80]}", "tensors and sizes")

    def argument(self, value: object, where: str) -> Any:
        """A nest of Refs, Graphs and plain values."""
        tag, inner = union(value, where)
        convert = _ARGUMENTS.get(tag)
        if convert is None:
            raise UnsupportedError("torch", f"{where}: an argument is a {tag[:80]}", "tensors, numbers, sizes, dtypes")
        try:
            return convert(self, inner, where)
        except MetaError as error:
            if isinstance(error, TorchProgramError):
                raise
            raise bad_file(where, error.problem, error.expected) from error


def _returns_one(node: Mapping[str, Any]) -> bool:
    return node.get("is_hop_single_tensor_return") is True


def _operator(target: str) -> str:
    return target.removeprefix("torch.ops.").removeprefix("_") if not target.startswith("torch.ops.") else target[10:]


def _bool(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise bad_file(where, f"a value is {repr(value)[:80]}", "true or false")
    return value


_SPECIAL = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


def _float(value: object, where: str) -> float:
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1.8e308:
        raise bad_file(where, f"a value is {repr(value)[:80]}", "a number")
    return float(value)


def _symbolic(reader: _SchemaReader, value: object, where: str) -> Any:
    tag, inner = union(value, where)
    if tag == "as_name":
        return Ref(text(inner, where))
    return reader.argument({tag: inner}, where)


def _dtype(value: object, where: str) -> str:
    dtype = DTYPES.get(integer(value, where))
    if dtype is None:
        raise UnsupportedError("torch", f"{where}: the dtype number {value} is not supported", "dtypes of meta")
    return dtype


def _graph(reader: _SchemaReader, value: object, where: str) -> Graph:
    return _SchemaReader(reader.source, reader.device, reader.depth + 1).graph(fields(value, where).get("graph"))


def _complex(value: object, where: str) -> complex:
    parts = fields(value, where)
    return complex(_float(parts.get("real"), where), _float(parts.get("imag"), where))


_Item = Callable[[_SchemaReader, Any, str], Any]


def _plain(item: Callable[[Any, str], Any]) -> _Item:
    return lambda _, value, where: item(value, where)


def _many(item: _Item) -> _Item:
    return lambda reader, value, where: [item(reader, each, where) for each in list_of(value, where)]


_TENSOR = _plain(lambda value, where: Ref(_tensor_name(value, where)))
_INT, _FLOAT, _BOOL, _STRING = map(_plain, (integer, _float, _bool, text))
_NONE = _plain(lambda value, where: None)

_ARGUMENTS: Mapping[str, _Item] = {
    "as_none": _NONE, "as_tensor": _TENSOR, "as_tensors": _many(_TENSOR), "as_int": _INT, "as_ints": _many(_INT),
    "as_float": _FLOAT, "as_floats": _many(_FLOAT), "as_string": _STRING, "as_strings": _many(_STRING),
    "as_sym_int": _symbolic, "as_sym_ints": _many(_symbolic), "as_scalar_type": _plain(_dtype),
    "as_memory_format": _NONE, "as_layout": _NONE, "as_device": _SchemaReader.named_device, "as_bool": _BOOL,
    "as_bools": _many(_BOOL), "as_sym_bool": _symbolic, "as_sym_bools": _many(_symbolic), "as_sym_float": _symbolic,
    "as_sym_floats": _many(_symbolic), "as_optional_tensor": _SchemaReader.argument,
    "as_optional_tensors": _many(_SchemaReader.argument), "as_graph": _graph, "as_complex": _plain(_complex),
    "as_nested_tensors": _many(_many(_TENSOR)), "as_int_lists": _many(_many(_INT)),
    "as_float_lists": _many(_many(_FLOAT)),
}  # fmt: skip
"""Tags of arguments -> (reader, value, where) -> the argument."""
