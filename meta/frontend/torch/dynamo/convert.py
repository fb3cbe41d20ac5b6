"""A graph of ATen calls with fake tensors as a program of meta."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

import meta
from meta import tracing
from meta.dim import sym
from meta.dtype import is_float
from meta.errors import MetaError
from meta.frontend.torch.aten import storage as storage_rows
from meta.frontend.torch.aten.storage import BY_STRIDES
from meta.frontend.torch.control_flow import HIGHER_ORDER
from meta.frontend.torch.dynamo.foreign import (
    ArgumentLayout,
    ForeignResult,
    foreign_call,
    foreign_result,
    known_strides,
    operand_layouts,
)
from meta.frontend.torch.dynamo.memory import Input, Order, SavedPart, whole_inputs
from meta.frontend.torch.dynamo.report import RANDOM, Fallback
from meta.frontend.torch.dynamo.results import GraphResult, Output, ResultPlan, storage
from meta.frontend.torch.dynamo.shapes import (
    NeedsSizes,
    NeedsTorch,
    Sizes,
    dense_order,
    inverse,
    is_dense,
    same_type,
    symbols_of,
)
from meta.frontend.torch.dynamo.targets import declared, is_custom, is_random, reported_name, runnable, schema_name
from meta.frontend.torch.dynamo.writes import last_writes, live_nodes
from meta.frontend.torch.functions import find, is_check, is_write
from meta.frontend.torch.fx import operator_name, read_graph
from meta.frontend.torch.graph import run
from meta.frontend.torch.nodes import GraphNode
from meta.ir.type import TensorType, tensor_type
from meta.tracing.symbol import Symbol

READS_MEMORY = BY_STRIDES | {"resize", "resize_as"}
LACKING = "the table of ATen's operators lacks it"
TWINLESS = "no twin is registered (meta.frontend.torch.twin)"


@dataclass(frozen=True, slots=True)
class Converted:
    """A graph as a program.

    written: the indices of the inputs that the program overwrites: arguments, and results whose memory it takes.
    returned: the indices of the other results, whose memory it allocates.
    carried: the names of the sizes that further inputs have: tensors of the shape (size, 0).
    computed: the names of the nodes that the results are, and the order in which the program has their axes.
    rearranged: the names of results that are in other memory than torch says, and the order of their axes there.
    random: whether torch draws random numbers in it; the program then has one more result.
    arguments: the number of arguments of the graph.
    is_standard: whether the program has gone through the standard passes."""

    record: tracing.Record
    inputs: tuple[Input, ...]
    written: tuple[int, ...]
    returned: tuple[int, ...]
    carried: tuple[str, ...]
    results: tuple[GraphResult, ...]
    computed: tuple[tuple[str, Order], ...]
    outputs: tuple[Output, ...]
    rearranged: Mapping[str, Order]
    fallbacks: tuple[Fallback, ...]
    operators: int
    random: bool
    arguments: int
    is_standard: bool = False


def convert(
    module: GraphModule, sizes: Sizes, symbols: Sequence[str], rearranged: Mapping[str, Order],
    saved: Collection[str] = (), parts: Mapping[str, SavedPart] | None = None, *, known: Collection[str],
    takes_memory: bool,
) -> Converted:  # fmt: skip
    """The program of a graph. symbols: the names of the sizes that are open.

    rearranged: nodes that the graph takes or returns in other memory than torch says -> the order of their axes there.
    saved: the names of results that only the backward graph reads, which may get other memory as well.
    parts: nodes that the graph takes as parts of other tensors, which the program gets in their place.
    known: the names of the sizes that the arguments of a call have.
    takes_memory: whether the program gets the memory of its results as further inputs, where the sizes are known.
    Raises NeedsSizes where it can be converted only for given sizes, NeedsTorch where meta has no types for it."""
    return _GraphConverter(module, sizes, symbols, rearranged, saved, parts or {}, known, takes_memory).run()


@dataclass(slots=True)
class _GraphConverter:
    module: GraphModule
    sizes: Sizes
    symbols: Sequence[str]
    rearranged: Mapping[str, Order]
    saved: Collection[str]
    parts: Mapping[str, SavedPart]
    known: Collection[str]
    takes_memory: bool
    values: dict[Node, Any] = field(default_factory=dict[Node, Any])
    fallbacks: list[Fallback] = field(default_factory=list[Fallback])
    roots: dict[Any, Node] = field(default_factory=dict[Any, Node])
    """Storage -> the first node that has it."""
    token: Any = None
    operators: int = 0

    def run(self) -> Converted:
        nodes = list(self.module.graph.nodes)
        placeholders = [n for n in nodes if n.op == "placeholder"]
        written = last_writes(nodes)
        targets = {write: placeholder for placeholder, write in written.items()}
        for node in nodes:
            if isinstance(node.meta.get("val"), torch.Tensor) and node not in targets:
                self.roots.setdefault(storage(node.meta["val"]), node)
        results = _flat_results(nodes[-1])
        plan = ResultPlan(results, placeholders, self.roots, written, dict(self.rearranged), self.saved)
        outputs = plan.outputs()
        live = live_nodes(nodes, [*plan.results, *(write.args[1] for write in targets)])
        parts = {n: self.parts[n.name] for n in placeholders if n.name in self.parts}
        inputs = [
            Input(i, self._order(n))
            for i, n in enumerate(placeholders)
            if isinstance(n.meta["val"], torch.Tensor) and n not in parts and (n in written or n in live)
        ]
        wholes = whole_inputs(placeholders, parts, live)
        inputs += wholes.values()
        places = [placeholders[each.position] for each in inputs]
        types = [self._input_type(n.meta["val"], each) for n, each in zip(places, inputs, strict=True)]
        writes: list[tuple[int, Any, Order]] = [
            (i, written[node].args[1], inputs[i].order) for i, node in enumerate(places) if node in written
        ]
        returned: list[tuple[int, Node, Order]] = []
        for i, (node, result) in enumerate(plan.results.items()):
            value = node.meta["val"]
            if not self.takes_memory or symbols_of([value]) - set(self.known):
                returned.append((i, node, result.order))
                continue
            writes.append((len(inputs), node, result.order))
            inputs.append(Input(len(placeholders) + i, result.order))
            types.append(self._input_type(value, inputs[-1]))
        plain = {str(d) for t in types for d in t.shape}
        carried = tuple(name for name in self.symbols if name not in plain)
        device = types[0].device if types else "cpu"
        carriers = [tensor_type((sym(name), 0), "uint8", device) for name in carried]

        def program(*tensors: Any) -> list[Any]:
            for node in placeholders:
                if node in live and not isinstance(node.meta["val"], torch.Tensor):
                    self.values[node] = self.sizes.number(node.meta["val"])
            for node, each, x in zip(places, inputs, tensors, strict=False):
                self.values[node] = x if each.order is None else meta.transpose(x, inverse(each.order))
            for node, part in ((n, p) for n, p in parts.items() if p.group in wholes):
                self.values[node] = part.of(tensors[inputs.index(wholes[part.group])])
            for node in nodes:
                if node in live and node not in targets and node.op in ("call_function", "get_attr"):
                    self.values[node] = self._value(node)
            out = [_in_order(self.values[node], order) for _, node, order in returned]
            news = [_in_order(self.values[node], order) for _, node, order in writes]
            for (i, _, _), value in zip(writes, news, strict=True):
                tensors[i].update(value)
            return out if self.token is None else [*out, self.token]

        record = tracing.record(program, (*types, *carriers), {})
        return Converted(
            record, tuple(inputs), tuple(i for i, _, _ in writes), tuple(i for i, _, _ in returned), carried,
            tuple(plan.results.values()), tuple((node.name, result.order) for node, result in plan.results.items()),
            tuple(outputs), plan.rearranged, tuple(self.fallbacks), self.operators, self.token is not None,
            len(placeholders),
        )  # fmt: skip

    def _order(self, node: Node) -> tuple[int, ...] | None:
        """The order of axes in which the value of an input or result is contiguous; None as it is."""
        return self.rearranged[node.name] if node.name in self.rearranged else dense_order(node.meta["val"])

    def _input_type(self, value: torch.Tensor, each: Input) -> Any:
        kind = self.sizes.type(value)
        shape = kind.shape if each.order is None else tuple(kind.shape[axis] for axis in each.order)
        return kind.with_shape(shape if each.whole is None else each.whole.shape)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _value(self, node: Node) -> Any:
        if node.op == "get_attr":
            return self._attribute(node)
        expected = node.meta.get("val")
        if isinstance(expected, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.sizes.number(expected)
        if node.target is operator.getitem:
            value, index = map(self._argument, node.args)
            return value[index]
        if getattr(node.target, "__name__", "") == "with_effects":
            raise NeedsTorch("it has effects, such as checks that raise, in an order")
        call = GraphNode(node.name, operator_name(node.target), (), target=node.target)
        if is_check(call):
            return None
        if is_write(call):
            raise NeedsTorch(f"{call.operator} writes in place")
        self.operators += 1
        args = tuple(map(self._argument, node.args))
        kwargs = {name: self._argument(x) for name, x in node.kwargs.items()}
        if is_random(node, args, kwargs):
            return self._drawn(node, args, kwargs)
        if call.namespace == "aten" and call.base in READS_MEMORY:
            return self._of_memory(node, call.base, args, kwargs)
        function = _higher_order(call.operator, args) if call.operator in HIGHER_ORDER else find(call)
        return self._called(node, function, args, kwargs)

    def _argument(self, x: Any) -> Any:
        """An argument of a node with values in place of nodes, and with plain lists."""
        if isinstance(x, Node):
            return self.values[x]
        if isinstance(x, (list, tuple)):
            items = [self._argument(item) for item in x]
            return items if isinstance(x, list) else tuple(items)
        if isinstance(x, dict):
            return {key: self._argument(item) for key, item in x.items()}
        if isinstance(x, slice):
            return slice(*map(self._argument, (x.start, x.stop, x.step)))
        return self.sizes.number(x) if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)) else x

    def _attribute(self, node: Node) -> Any:
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            return value
        self.sizes.type(value)
        return meta.from_dlpack(value.detach(), copy=True)

    def _called(
        self, node: Node, function: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if function is None:
            is_aten = schema_name(node.target).startswith("aten::")
            return self._by_torch(node, args, kwargs, LACKING if is_aten else TWINLESS)
        try:
            value = _as_declared(function(*args, **kwargs), node.meta.get("val"))
            problem = self._mismatch(value, node.meta.get("val"), _used(node))
        except (MetaError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
            if self.symbols:
                raise NeedsSizes(f"{schema_name(node.target)}: {_reason(error)}") from error
            problem = _reason(error)
        return value if not problem else self._by_torch(node, args, kwargs, problem)  # pyright: ignore[reportPossiblyUnboundVariable]

    def _of_memory(self, node: Node, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operator that reads the memory of its first argument in order. Torch cannot run it inside of
        the program, where tensors are compact."""
        source: Any = node.args[0]
        root = self.roots[storage(source.meta["val"])]
        start = root.meta["val"].storage_offset()
        if not is_dense(root.meta["val"]) or root not in self.values:
            raise NeedsTorch(f"{reported_name(node)} reads memory between the elements of a tensor")
        flat = meta.reshape(_in_order(self.values[root], dense_order(root.meta["val"])), (-1,))
        own, declared = (self._place(x.meta["val"], start) for x in (source, node))
        try:
            if name.startswith("resize"):
                return storage_rows.resized(flat, *declared)
            *src, size, stride = args[1:4] if name == "as_strided_scatter" else args[1:3]
            offset = kwargs.get("storage_offset", args[3 + len(src)] if len(args) > 3 + len(src) else None)
            place = own[2] if offset is None else offset - self.sizes.dim(start)
            if isinstance(place, int) and place < 0:
                raise NeedsTorch(f"{reported_name(node)} reads memory before the elements of a tensor")
            if not src:
                return storage_rows.as_strided(flat, size, stride, place)
            return storage_rows.as_strided(storage_rows.as_strided_scatter(flat, src[0], size, stride, place), *own)
        except (MetaError, TypeError, ValueError) as error:
            raise NeedsSizes(f"{reported_name(node)}: {_reason(error)}") from error

    def _place(self, value: torch.Tensor, start: Any) -> tuple[list[Any], list[Any], Any]:
        """Sizes, strides and offset of a tensor in a memory that starts at an offset of the storage."""
        shape, strides = list(map(self.sizes.dim, value.shape)), list(map(self.sizes.dim, value.stride()))
        return shape, strides, self.sizes.dim(value.storage_offset() - start)

    def _mismatch(self, value: Any, expected: Any, used: Collection[int] | None) -> str:
        """How a result differs from torch's in type, "" if it does not. used: the positions that are read, None for
        all: torch's fake results have tensors where a mask of gradients says that there are none."""
        actual_leaves, expected_leaves = _leaves(value), _leaves(expected)
        if len(actual_leaves) != len(expected_leaves):
            return f"meta returns {len(actual_leaves)} values, torch {len(expected_leaves)}"
        for i, (x, fake) in enumerate(zip(actual_leaves, expected_leaves, strict=True)):
            if not isinstance(fake, torch.Tensor) or (used is not None and i not in used):
                continue
            kind, actual = self.sizes.type(fake), getattr(x, "type", None)
            if not isinstance(actual, TensorType) or not same_type(actual, kind):
                return f"meta returns {getattr(x, 'type', x)!r}, torch {kind!r}"
        return ""

    def _by_torch(
        self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any], reason: str, *, random: bool = False
    ) -> Any:
        """The results of a call that torch runs inside of the program."""
        name = reported_name(node)
        self.fallbacks.append(Fallback(name, reason))
        expected = declared(node)
        leaves, spec = pytree.tree_flatten(expected)
        results = {i: foreign_result(x, self.sizes) for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)}
        places = operand_layouts(node, self.sizes) if random or is_custom(node.target) else ()
        tensors = iter(self._library(name, runnable(node.target), args, kwargs, results, node, layouts=places,
                                     random=random))  # fmt: skip
        return pytree.tree_unflatten([next(tensors) if isinstance(x, torch.Tensor) else x for x in leaves], spec)

    def _library(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        results: Mapping[int, ForeignResult], node: Node, *, random: bool, layouts: Sequence[ArgumentLayout] = (),
    ) -> list[Any]:  # fmt: skip
        if not random:
            strides = known_strides(node)
            return foreign_call(name, function, args, kwargs, results, layouts=layouts, strides=strides)
        device = next(iter(results.values())).type.device
        token = meta.zeros((1,), "uint8", device) if self.token is None else self.token
        *values, self.token = foreign_call(name, function, args, kwargs, results, token, layouts)
        return values

    # --- random numbers ----------------------------------------------------------------------------------------------

    def _drawn(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results of a random operator. For dropout on the CPU, torch draws only the mask, as its kernel does."""
        if schema_name(node.target) != "aten::native_dropout" or kwargs or args[0].device.kind != "cpu":
            return self._by_torch(node, args, kwargs, RANDOM, random=True)
        x, p, _ = args
        self.fallbacks.append(Fallback("aten::bernoulli_", RANDOM))
        order = dense_order(node.meta["val"][1])  # torch draws in the order of memory
        shape = list(x.shape) if order is None else [x.shape[axis] for axis in order]
        kind = tensor_type(tuple(shape), "bool", x.device)
        drawn = {0: ForeignResult(kind)}
        (mask,) = self._library("aten::bernoulli_", _draw_mask, (shape, 1.0 - p), {}, drawn, node, random=True)
        mask = mask if order is None else meta.transpose(mask, inverse(order))
        mask_factor = meta.cast(mask, x.dtype)
        return meta.multiply(meta.multiply(x, mask_factor), 0.0 if p == 1 else 1.0 / (1.0 - p)), mask


def _draw_mask(shape: list[int], probability: float) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bool).bernoulli_(probability)


def _higher_order(operator: str, args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The function of a higher-order operator; None where its graphs draw random numbers, which are torch's."""
    modules = [m for graph in args if isinstance(graph, GraphModule) for m in graph.modules()]
    nodes = [node for m in modules if isinstance(m, GraphModule) for node in m.graph.nodes]
    if any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in nodes):
        return None
    return partial(HIGHER_ORDER[operator], lambda graph, values: run(read_graph(graph), values))


def _in_order(x: Any, order: Sequence[int] | None) -> Any:
    """The present value of a tensor with its axes in another order, which later writes leave alone."""
    value = x if order is None else meta.transpose(x, order)
    return Symbol(value.atom) if isinstance(value, Symbol) else value


def _used(node: Node) -> set[int] | None:
    """The positions of the results of a node that others read; None if they read all together."""
    if any(user.target is not operator.getitem for user in node.users):
        return None
    return {user.args[1] for user in node.users}  # type: ignore[misc]  # ints


def _flat_results(output: Node) -> list[Any]:
    value: Any = output.args[0]
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _leaves(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _as_declared(value: Any, expected: Any) -> Any:
    """Floating results in the dtype that the graph gives them. For mixed operands, torch's fake and real kernels differ
    in it, and the rest of the graph has the fake kernels' dtype."""
    if isinstance(value, (tuple, list)) and isinstance(expected, (tuple, list)):
        pairs = list(zip(value, expected, strict=False))
        return tuple(_as_declared(x, fake) for x, fake in pairs) if len(pairs) == len(value) else value
    x: Any = value
    kind = getattr(x, "type", None)
    if not isinstance(kind, TensorType) or not isinstance(expected, torch.Tensor):
        return x
    dtype = str(expected.dtype).removeprefix("torch.")
    floats = is_float(kind.dtype) and expected.is_floating_point()
    return meta.cast(x, dtype) if floats and kind.dtype != dtype else x


def _reason(error: BaseException) -> str:
    """One line of an error, without the place in the code."""
    if isinstance(error, MetaError):
        return f"{error.problem}; expected {error.expected}" if error.expected else error.problem
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
