"""Reading of FX graphs. Their objects are recognised by their attributes, so that torch is not imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from meta import dtype as dtypes
from meta.device import Device
from meta.errors import ArgumentError, MetaError
from meta.frontend.torch.aten.storage import BY_STRIDES
from meta.frontend.torch.errors import TorchProgramError, UnsupportedError
from meta.frontend.torch.nodes import Graph, GraphNode, Placeholder, Ref
from meta.frontend.torch.sizes import dim_of
from meta.ir.expr import Span
from meta.ir.type import TensorType, tensor_type

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')


def read_graph(
    graph: Any, module: Any = None, device: Device | str | None = None, names: Mapping[str, str] = MappingProxyType({})
) -> Graph:
    """An FX graph, or GraphModule, as data.

    module: the GraphModule that `get_attr` nodes refer to, by default the graph's owner.
    device: where all of the program runs, in place of the devices that the graph names; None keeps those.
    names: of symbolic sizes, in place of torch's.
    Placeholders have the types of their fake values (`node.meta["val"]`), None where there are none.

    Raises UnsupportedError for values of dtypes and sizes that meta lacks, TorchProgramError for nodes that are no
    calls of functions (a graph that Dynamo captured, before AOTAutograd or export)."""
    reader = _FxReader(module if module is not None else _owner(graph), device, names)
    return reader.graph(getattr(graph, "graph", graph))


def _owner(graph: Any) -> Any:
    return graph if hasattr(graph, "graph") else getattr(graph, "owning_module", None)


class _FxReader:
    def __init__(self, module: Any, device: Device | str | None, names: Mapping[str, str]) -> None:
        self.module = module
        self.device = device
        self.names = names
        self.constants: dict[str, Any] = {}
        self.subgraphs: dict[str, Graph] = {}

    def graph(self, graph: Any) -> Graph:
        inputs: list[Placeholder] = []
        nodes: list[GraphNode] = []
        output: Any = None
        for node in graph.nodes:
            if node.op == "placeholder":
                value = node.meta.get("val")
                inputs.append(Placeholder(node.name, self.located(node, value_type, value, self.device, self.names)))
            elif node.op == "call_function":
                nodes.append(self.located(node, self.call, node))
            elif node.op == "get_attr":
                self.attribute(node)
            elif node.op == "output":
                output = self.argument(node.args[0])
            else:
                raise TorchProgramError(
                    "torch",
                    f"node '{node.name}' is a {node.op} of {node.target}",
                    "a graph of ATen calls",
                    "capture it by torch.export.export, or through torch.compile",
                )
        return Graph(tuple(inputs), tuple(nodes), output, self.constants)

    def located(self, node: Any, read: Any, *args: Any) -> Any:
        """`read(*args)`, with the node's name and line in its errors."""
        try:
            return read(*args)
        except MetaError as error:
            span = user_line(node.meta.get("stack_trace"))
            kind = TorchProgramError if type(error) is TorchProgramError else UnsupportedError
            raise kind(
                "torch",
                f"node '{node.name}': {error.problem}",
                error.expected,
                remedy=error.remedy,
                location=str(span or ""),
            ) from error

    def call(self, node: Any) -> GraphNode:
        kwargs = {name: self.argument(value) for name, value in node.kwargs.items()}
        args = tuple(self.argument(value) for value in node.args)
        span = user_line(node.meta.get("stack_trace"))
        name = operator_name(node.target)
        call = GraphNode(node.name, name, args, kwargs, span, node.target, dtypes=_dtypes(node.meta.get("val")))
        if call.namespace == "aten" and call.base in BY_STRIDES:
            _check_memory(node)
        return call

    def attribute(self, node: Any) -> None:
        """A tensor of the module, or a graph of a higher-order operator."""
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part, None)
        if hasattr(value, "graph"):
            self.subgraphs[node.name] = _FxReader(value, self.device, self.names).graph(value.graph)
        elif hasattr(value, "__dlpack__"):
            self.constants[node.name] = value
        else:
            raise UnsupportedError("torch", f"node '{node.name}' reads {node.target}, a {type(value).__name__}",
                                   "tensors and graphs")  # fmt: skip

    def argument(self, value: Any) -> Any:
        """An argument as a nest of Refs, Graphs and plain values."""
        kind = type(value)
        if kind in (int, float, bool, str, complex, type(None)):
            return value
        if isinstance(value, slice):
            return slice(*(self.argument(v) for v in (value.start, value.stop, value.step)))
        if isinstance(value, (tuple, list)):
            items = [self.argument(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, Mapping):
            return {key: self.argument(item) for key, item in value.items()}
        if kind.__name__ == "Node":
            return self.subgraphs.get(value.name) or Ref(value.name)
        if kind.__name__ == "SymInt":
            return dim_of(value, self.names)
        return plain_value(value, self.device)


def _dtypes(value: object) -> tuple[str | None, ...]:
    """The dtype of each tensor among the fake results of a node; None for others, and for dtypes that meta lacks."""
    results: Any = value if isinstance(value, (tuple, list)) else (value,)
    names: list[str | None] = []
    for each in results:
        dtype = getattr(each, "dtype", None)
        try:
            names.append(None if dtype is None else dtype_of(dtype))
        except UnsupportedError:
            names.append(None)
    return tuple(names)


def _check_memory(node: Any) -> None:
    """Raise UnsupportedError unless the tensor whose memory a node reads is known to be compact."""
    source = node.args[0] if node.args else node.kwargs.get("self")
    value = getattr(source, "meta", {}).get("val")
    if value is None or not value.is_contiguous() or value.storage_offset() != 0:
        strides = "unknown strides" if value is None else f"strides {tuple(value.stride())}"
        raise UnsupportedError("torch", f"the memory of a tensor with {strides} is read", "contiguous tensors",
                               "call x.contiguous() before x.as_strided(...)")  # fmt: skip


def plain_value(value: object, device: Device | str | None = None) -> Any:
    """An object of torch among the arguments as a plain value: a dtype or a device by name, None for a layout.

    Raises UnsupportedError for other objects and for dtypes that meta lacks."""
    name = type(value).__name__
    if name == "dtype":
        return dtype_of(value)
    if name == "device":
        return str(device) if device is not None else str(value)
    if name in ("layout", "memory_format"):
        return None
    raise UnsupportedError("torch", f"an argument is a {type(value).__module__}.{name}", "tensors, numbers and dtypes")


def dtype_of(dtype: Any) -> str:
    """The name of a dtype of torch. Raises UnsupportedError for one that meta lacks."""
    try:
        return dtypes.canonical(dtype, "torch")
    except ArgumentError as error:
        raise UnsupportedError("torch", f"the dtype {dtype} is not supported", error.expected) from None


def value_type(value: Any, device: Device | str | None = None, names: Mapping[str, str] = MappingProxyType({})) -> Any:
    """The type of a fake tensor, a size, or the plain value itself.

    device: in place of the tensor's own.  names: of symbolic sizes, in place of torch's.
    Raises UnsupportedError for dtypes, sizes and layouts that meta lacks."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        if str(getattr(value, "layout", "torch.strided")) != "torch.strided":
            raise UnsupportedError("torch", f"a tensor has the layout {value.layout}", "dense tensors")
        shape = tuple(dim_of(size, names) for size in value.shape)
        return tensor_type(shape, dtype_of(value.dtype), device if device is not None else str(value.device))
    if type(value).__name__ in ("SymInt", "SymFloat", "SymBool"):
        return dim_of(value, names)
    return value


def placeholder_types(graph: Any, device: Device | str | None = None) -> list[TensorType | Any]:
    """The type of each placeholder of an FX graph, by `value_type` of its fake value."""
    nodes = getattr(graph, "graph", graph).nodes
    return [value_type(node.meta.get("val"), device) for node in nodes if node.op == "placeholder"]


def operator_name(target: Any) -> str:
    """The full name of what a node calls: "aten.add.Tensor", "higher_order.cond", "operator.mul", "math.floor"."""
    namespace = getattr(target, "namespace", None)
    if namespace is not None and hasattr(target, "_overloadname"):
        return f"{namespace}.{target._opname}.{target._overloadname}"
    if namespace == "higher_order" or type(target).__module__.startswith("torch._higher_order_ops"):
        return f"higher_order.{target.name() if callable(getattr(target, 'name', None)) else target.__name__}"
    module = str(getattr(target, "__module__", "")).lstrip("_")
    return f"{module}.{getattr(target, '__name__', type(target).__name__)}"


def user_line(stack_trace: str | None) -> Span | None:
    """The innermost line of a stack trace of torch that is not in torch itself, None if there is none."""
    frames = [(m[1], int(m[2])) for m in _FRAME.finditer(stack_trace or "")]
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    return Span(*(own or frames)[-1]) if frames else None


_LIBRARY = re.compile(r"(^|[/\\])torch[/\\](nn|fx|export|_[a-z]+|functional|utils|autograd)\b")
