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
from meta.frontend.torch.control_flow import HIGHER_ORDER
from meta.frontend.torch.dynamo.foreign import foreign_call
from meta.frontend.torch.dynamo.layouts import last_channels
from meta.frontend.torch.dynamo.report import RANDOM, Fallback
from meta.frontend.torch.dynamo.shapes import NeedsSizes, NeedsTorch, Sizes, dense_order, inverse, same_type
from meta.frontend.torch.dynamo.targets import declared, is_random, reported_name, runnable, schema_name
from meta.frontend.torch.fx import operator_name, read_graph
from meta.frontend.torch.graph import run
from meta.frontend.torch.nodes import GraphNode
from meta.frontend.torch.operators import find, is_check, is_write
from meta.ir.type import TensorType, tensor_type
from meta.tracing.symbol import Symbol

LACKING = "the table of ATen's operators lacks it"
TWINLESS = "no twin is registered (meta.frontend.torch.twin)"


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a program: the placeholder at a position.

    order: of its axes, in which it is contiguous; None as it is."""

    position: int
    order: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Output:
    """A result of a graph: the placeholder at a position, a result of the program, or a number.

    order: the order that undoes the one in which the result is contiguous; None where it is so as it is.
    is_view: whether torch's result shares the memory of an input."""

    placeholder: int | None = None
    result: int | None = None
    number: Any = None
    order: tuple[int, ...] | None = None
    is_view: bool = False


@dataclass(frozen=True, slots=True)
class Converted:
    """A graph as a program.

    written: the indices of the inputs that the program overwrites.
    carried: the names of the sizes that further inputs have: tensors of the shape (size, 0).
    random: whether torch draws random numbers in it; the program then has one more result."""

    record: tracing.Record
    inputs: tuple[Input, ...]
    written: tuple[int, ...]
    carried: tuple[str, ...]
    outputs: tuple[Output, ...]
    fallbacks: tuple[Fallback, ...]
    operators: int
    random: bool


def convert(
    module: GraphModule, sizes: Sizes, symbols: Sequence[str], channels_last: Collection[str] = ()
) -> Converted:
    """The program of a graph. symbols: the names of the sizes that are open.  channels_last: the names of nodes whose
    values have their channels last in memory, where the graph takes or returns them.

    Raises NeedsSizes where it can be converted only for given sizes, NeedsTorch where meta has no types for it."""
    return _GraphConverter(module, sizes, symbols, channels_last).run()


@dataclass(slots=True)
class _GraphConverter:
    module: GraphModule
    sizes: Sizes
    symbols: Sequence[str]
    channels_last: Collection[str]
    values: dict[Node, Any] = field(default_factory=dict[Node, Any])
    fallbacks: list[Fallback] = field(default_factory=list[Fallback])
    written: dict[Node, Node] = field(default_factory=dict[Node, Node])
    """Placeholder -> the write in place that gives it its last value."""
    token: Any = None
    operators: int = 0

    def run(self) -> Converted:
        nodes = list(self.module.graph.nodes)
        placeholders = [n for n in nodes if n.op == "placeholder"]
        self.written = _last_writes(nodes)
        targets = {write: placeholder for placeholder, write in self.written.items()}
        results = _flat_results(nodes[-1])
        returned: dict[Node, int] = {}
        for r in results:
            is_tensor = isinstance(r, Node) and isinstance(r.meta["val"], torch.Tensor)
            is_held = r in targets or (r in placeholders and r not in self.written)
            if is_tensor and not is_held:  # of a written argument its old value, for the backward pass
                returned.setdefault(r, len(returned))
        inputs = [
            Input(i, self._order(n))
            for i, n in enumerate(placeholders)
            if isinstance(n.meta["val"], torch.Tensor)
            and (n in self.written or any(user.op != "output" for user in n.users))
        ]
        types = [self._input_type(placeholders[i.position].meta["val"], i.order) for i in inputs]
        plain = {str(d) for t in types for d in t.shape}
        carried = tuple(name for name in self.symbols if name not in plain)
        device = types[0].device if types else "cpu"
        carriers = [tensor_type((sym(name), 0), "uint8", device) for name in carried]
        orders = {node: self._order(node) for node in returned}
        places = [placeholders[each.position] for each in inputs]
        writes = [(i, node) for i, node in enumerate(places) if node in self.written]

        def program(*tensors: Any) -> list[Any]:
            for node in placeholders:
                self.values[node] = self._number(node.meta["val"])
            for each, x in zip(inputs, tensors, strict=False):
                value = x if each.order is None else meta.transpose(x, inverse(each.order))
                self.values[placeholders[each.position]] = value
            for node in nodes:
                if node in targets:
                    self.values[node] = self._argument(node.args[1])
                elif node.op in ("call_function", "get_attr"):
                    self.values[node] = self._value(node)
            out = [_in_order(self.values[n], orders[n]) for n in returned]
            news = [_in_order(self.values[self.written[n]], inputs[i].order) for i, n in writes]
            for (i, _), value in zip(writes, news, strict=True):
                tensors[i].update(value)
            return out if self.token is None else [*out, self.token]

        record = tracing.record(program, (*types, *carriers), {})
        position = {node: i for i, node in enumerate(placeholders)}
        outputs = tuple(self._output(targets.get(r, r), r in targets, position, returned, orders) for r in results)
        return Converted(
            record, tuple(inputs), tuple(i for i, _ in writes), carried, outputs, tuple(self.fallbacks),
            self.operators, self.token is not None,
        )  # fmt: skip

    def _order(self, node: Node) -> tuple[int, ...] | None:
        """The order of axes in which the value of an input or result is contiguous; None as it is."""
        value = node.meta["val"]
        return last_channels(value.ndim) if node.name in self.channels_last else dense_order(value)

    def _input_type(self, value: torch.Tensor, order: tuple[int, ...] | None) -> Any:
        kind = self.sizes.type(value)
        return kind if order is None else kind.with_shape(tuple(kind.shape[axis] for axis in order))

    def _number(self, value: Any) -> Any:
        return None if isinstance(value, torch.Tensor) else self.sizes.number(value)

    def _output(
        self, r: Any, is_new: bool, position: Mapping[Node, int], returned: Mapping[Node, int],
        orders: Mapping[Node, Any],
    ) -> Output:  # fmt: skip
        """The output of a node or a number. is_new: the new value of an argument that the program writes."""
        if not isinstance(r, Node):
            return Output(number=r)
        if r in position and isinstance(r.meta["val"], torch.Tensor) and (is_new or r not in returned):
            return Output(placeholder=position[r])
        if r not in returned:
            return Output(number=self.values[r])
        order = orders[r]
        return Output(result=returned[r], order=None if order is None else inverse(order), is_view=_views_input(r))

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
        types = {i: self.sizes.type(x) for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)}
        orders = _orders(node) if random else ()
        tensors = iter(self._library(name, runnable(node.target), args, kwargs, types, random=random, orders=orders))
        return pytree.tree_unflatten([next(tensors) if isinstance(x, torch.Tensor) else x for x in leaves], spec)

    def _library(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        types: Mapping[int, TensorType], *, random: bool, orders: Sequence[tuple[int, ...] | None] = (),
    ) -> list[Any]:  # fmt: skip
        if not random:
            return foreign_call(name, function, args, kwargs, types)
        device = next(iter(types.values())).device
        token = meta.zeros((1,), "uint8", device) if self.token is None else self.token
        *values, self.token = foreign_call(name, function, args, kwargs, types, token, orders)
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
        (mask,) = self._library("aten::bernoulli_", _draw_mask, (shape, 1.0 - p), {}, {0: kind}, random=True)
        mask = mask if order is None else meta.transpose(mask, inverse(order))
        mask_factor = meta.cast(mask, x.dtype)
        return meta.multiply(meta.multiply(x, mask_factor), 0.0 if p == 1 else 1.0 / (1.0 - p)), mask


def _orders(node: Node) -> list[tuple[int, ...] | None]:
    """The order of memory of each tensor among the arguments of a node."""
    leaves = pytree.tree_leaves((node.args, node.kwargs))
    values = [x.meta.get("val") for x in leaves if isinstance(x, Node)]
    return [dense_order(value) for value in values if isinstance(value, torch.Tensor)]


def _draw_mask(shape: list[int], probability: float) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bool).bernoulli_(probability)


def _higher_order(operator: str, args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The function of a higher-order operator; None where its graphs draw random numbers, which are torch's."""
    modules = [m for graph in args if isinstance(graph, GraphModule) for m in graph.modules()]
    nodes = [node for m in modules if isinstance(m, GraphModule) for node in m.graph.nodes]
    if any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in nodes):
        return None
    return partial(HIGHER_ORDER[operator], lambda graph, values: run(read_graph(graph), values))


def _last_writes(nodes: Sequence[Node]) -> dict[Node, Node]:
    """Placeholder -> the `copy_` to it that ends a graph: AOTAutograd writes each input once, after all that reads it.
    Other writes in place are not among them."""
    writes: dict[Node, Node] = {}
    for node in nodes:
        if node.target is torch.ops.aten.copy_.default and len(node.args) == 2:
            target, value = node.args
            if isinstance(target, Node) and isinstance(value, Node) and _is_last_write(node, target, value):
                writes[target] = node
    return writes


def _is_last_write(write: Node, target: Node, value: Node) -> bool:
    new, old = value.meta.get("val"), target.meta.get("val")
    if not isinstance(new, torch.Tensor) or not isinstance(old, torch.Tensor) or target.op != "placeholder":
        return False
    alike = new.dtype == old.dtype and new.shape == old.shape and new.device == old.device
    readers = [user for user in target.users if user is not write and user.op != "output"]
    returned = all(user.op == "output" for user in write.users)
    return alike and returned and all(user < write for user in readers)


def _in_order(x: Any, order: Sequence[int] | None) -> Any:
    """The present value of a tensor with its axes in another order, which later writes leave alone."""
    value = x if order is None else meta.transpose(x, order)
    return Symbol(value.atom) if isinstance(value, Symbol) else value


def _used(node: Node) -> set[int] | None:
    """The positions of the results of a node that others read; None if they read all together."""
    if any(user.target is not operator.getitem for user in node.users):
        return None
    return {user.args[1] for user in node.users}  # type: ignore[misc]  # ints


def _views_input(node: Node) -> bool:
    """Whether torch's result shares the memory of an input."""
    while node.op == "call_function" and getattr(node.target, "is_view", False) and isinstance(node.args[0], Node):
        node = node.args[0]
    return node.op == "placeholder"


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
