"""The functions that the calls of a graph compute: rows of the ATen table, arithmetic of sizes, operators of a user's
package."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import meta
from meta.dim import Dim, SymDim, product
from meta.errors import RegistryError
from meta.frontend.examination import OperatorUse, operator_uses
from meta.frontend.reader import Reader
from meta.frontend.torch import aten
from meta.frontend.torch.aten._values import in_dtype
from meta.frontend.torch.aten.indexing import fill_diagonal
from meta.frontend.torch.aten.storage import BY_STRIDES
from meta.frontend.torch.control_flow import HIGHER_ORDER
from meta.frontend.torch.errors import TorchProgramError, UnsupportedError
from meta.frontend.torch.nodes import Graph, GraphNode, subgraphs
from meta.frontend.torch.quantized import QUANTIZED
from meta.frontend.torch.sizes import modulo, power
from meta.frontend.torch.twins import find_twin
from meta.limits import MAX_DIMENSION
from meta.schema._dsl import TensorLike
from meta.tree import leaves_of

Function = Callable[..., Any]
Fallback = Callable[[GraphNode], Function | None]
"""GraphNode -> a function of its arguments for an operator that the table lacks, None if there is none."""

CHECKS = frozenset({
    "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_functional_assert_async",
    "_functional_assert_scalar", "_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size",
    "sym_constrain_range", "sym_constrain_range_for_size",
})  # fmt: skip
"""Operators of ATen that compute nothing: the types of the program's inputs decide what they check."""

_SPELLINGS = {"__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
              "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift"}  # fmt: skip

_METADATA = frozenset({
    "as_strided_", "resize_", "resize_as_", "set_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_",
    "unsqueeze_",
})  # fmt: skip
"""Operators that change the shape of a tensor in place, which other names of it would see."""


def is_check(node: GraphNode) -> bool:
    """Whether a node only checks its arguments."""
    return node.namespace == "aten" and node.base in CHECKS


def is_write(node: GraphNode) -> bool:
    """Whether a node writes its first argument in place: `add_`, `copy_`."""
    return node.namespace == "aten" and node.base.endswith("_") and not node.base.endswith("__")


def find(node: GraphNode, fallback: Fallback | None = None) -> Function | None:
    """The function of a node's arguments; for a write, the function that computes the new value. None if meta lacks
    the operator."""
    function = _function(node)
    return fallback(node) if function is None and fallback is not None else function


def _function(node: GraphNode) -> Function | None:
    if node.namespace == "aten":
        return _of_aten(node)
    if node.operator == "operator.getitem":
        return operator.getitem
    if node.namespace == "quantized_decomposed":
        return QUANTIZED.get(node.base)
    if node.namespace == "prims":
        return PRIMS.get(node.base)
    if node.operator in PYTHON:
        return _on_numbers(PYTHON[node.operator])
    if node.overload:
        name = f"{node.namespace}::{node.base}"
        return find_twin(name, node.overload) or _of_meta(name, node.overload) or _of_package(node.namespace, node.base)
    return None


def _of_meta(name: str, overload: str) -> Function | None:
    """The function of an operator that `meta.torch.register` made, which only a process that did so calls."""
    registration = sys.modules.get("meta.frontend.torch.operators.registration")
    return None if registration is None else registration.find_twin(name, overload)


def _of_aten(node: GraphNode) -> Function | None:
    name = node.base
    if name in BY_STRIDES and node.target is None:
        return None  # a file does not tell the strides of tensors here
    if node.overload == "out" or node.overload.endswith("_out") or name in _METADATA:
        return None
    if name in SIZES:
        return SIZES[name]
    if f"{name}.{node.overload}" in OVERLOADS:
        return OVERLOADS[f"{name}.{node.overload}"]
    if is_write(node):
        name = name[:-1]
        if name in WRITES:
            return WRITES[name]
    return aten.find(name) or aten.find(_SPELLINGS.get(name, name))


MAX_PIECES = 100_000
"""Results of one `split`, `unbind` or `chunk`: sizes may come from anywhere."""


def check_pieces(node: GraphNode, args: Sequence[Any]) -> None:
    """Raise UnsupportedError for a node that cuts a tensor into more than MAX_PIECES."""
    if node.base not in _CUTS or not args or not isinstance(args[0], TensorLike):
        return
    x: Any = args[0]
    largest = max((size for size in x.shape if isinstance(size, int)), default=0)
    size = args[1] if len(args) > 1 and node.base.startswith("split") else 1
    if isinstance(size, int) and largest // max(size, 1) > MAX_PIECES:
        raise UnsupportedError("torch", f"a tensor of shape {x.shape} is cut into more than {MAX_PIECES} pieces",
                               "fewer pieces")  # fmt: skip


_CUTS = frozenset({"split", "split_copy", "unbind", "unbind_copy"})


def _of_package(package: str, name: str) -> Function | None:
    """The operator `package::name` of meta, which a custom operator of torch has as its twin."""
    from meta.op.registry import get

    try:
        get(f"{package}::{name}")
    except RegistryError:
        return None
    return getattr(getattr(meta.ops, package), name)


# --- sizes -----------------------------------------------------------------------------------------------------------


def _stride(x: Any, dim: int) -> Dim:
    return product(x.shape[dim % x.ndim + 1 :])


SIZES: Mapping[str, Function] = {
    "sym_size": lambda x, dim=None: tuple(x.shape) if dim is None else x.shape[dim],
    "sym_numel": lambda x: product(x.shape),
    "sym_stride": lambda x, dim=None: tuple(_stride(x, d) for d in range(x.ndim)) if dim is None else _stride(x, dim),
    "sym_storage_offset": lambda _: 0,
    "sym_is_contiguous": lambda *_, **__: True,
}
"""Operators of ATen with sizes as results. Tensors are compact."""


def _modulo(a: Any, b: Any) -> Any:
    return modulo(a, b) if isinstance(a, SymDim) or isinstance(b, SymDim) else a % b


def _power(a: Any, b: Any) -> Any:
    result = a**b if isinstance(a, float) or isinstance(b, float) else power(a, b)
    if result is None:
        raise UnsupportedError("torch", f"the size {a} to the power {b}", "small non-negative ints")
    return result


def _ratio(a: Any, b: Any) -> Any:
    """A quotient of sizes; a symbolic one where it has no remainder."""
    if not isinstance(a, SymDim) and not isinstance(b, SymDim):
        return a / b
    quotient = a // b
    if quotient * b != a:
        raise UnsupportedError("torch", f"the quotient of the sizes {a} and {b} is not an integer", "sizes that divide",
                               remedy="export with static sizes there")  # fmt: skip
    return quotient


def _truncated(a: Any) -> Any:
    return a if isinstance(a, SymDim) else math.trunc(a)


PYTHON: Mapping[str, Function] = {
    **{f"operator.{name}": getattr(operator, name) for name in (
        "add", "and_", "eq", "floordiv", "ge", "gt", "le", "lt", "mul", "ne", "neg", "not_", "or_", "sub",
    )},
    "operator.mod": _modulo, "operator.pow": _power, "operator.truediv": _ratio,
    "math.trunc": _truncated, "math.floor": lambda a: a if isinstance(a, SymDim) else math.floor(a),
    "math.ceil": lambda a: a if isinstance(a, SymDim) else math.ceil(a),
    "torch.sym_float": lambda a: a if isinstance(a, SymDim) else float(a), "torch.sym_int": _truncated,
    "torch.sym_max": max, "torch.sym_min": min, "torch.sym_not": operator.not_,
    "torch.sym_sum": lambda terms: sum(terms),
}  # fmt: skip
"""Functions of Python and torch on sizes."""


PRIMS: Mapping[str, Function] = {"fma": lambda x, y, z: x * y + z}
"""Torch's primitives, in which its decompositions of optimizers end."""


def _on_numbers(function: Function) -> Function:
    """A function of sizes for arguments from anywhere, whose cost and results are bounded. Raises UnsupportedError."""

    def run(*args: object) -> Any:
        for value in leaves_of(args):
            if not isinstance(value, (bool, int, float, SymDim)):
                raise UnsupportedError("torch", f"arithmetic of a {type(value).__name__}", "sizes and numbers")
        result = function(*args)
        if isinstance(result, int) and abs(result) > MAX_DIMENSION:
            raise UnsupportedError("torch", "arithmetic of sizes exceeds 64 bits", "smaller sizes")
        return result

    return run


# --- writes ----------------------------------------------------------------------------------------------------------


def _copied(self: Any, src: Any, non_blocking: bool = False) -> Any:
    del non_blocking
    value = in_dtype(src if src.device is self.device else src.to(device=self.device), self.dtype)
    return value if value.shape == self.shape else meta.broadcast_to(value, self.shape)


def _row(name: str) -> Function:
    row = aten.find(name)
    assert row is not None
    return row


WRITES: Mapping[str, Function] = {
    "bernoulli": lambda self, p=0.5, generator=None: _row("bernoulli")(self, p), "copy": _copied,
    "fill_diagonal": fill_diagonal,
    "normal": lambda self, mean=0.0, std=1.0, generator=None: _row("normal_functional")(self, mean, std),
}  # fmt: skip
"""Operators in place whose row computes something else out of place, or that have none."""


# --- overloads -------------------------------------------------------------------------------------------------------


OVERLOADS: Mapping[str, Function] = {
    "to.device": lambda self, device, dtype=None, non_blocking=False, copy=False, memory_format=None:
        _row("to")(self, dtype=dtype, device=device, copy=copy),
    "to.dtype": lambda self, dtype, non_blocking=False, copy=False, memory_format=None:
        _row("to")(self, dtype=dtype, copy=copy),
    "to.other": lambda self, other, non_blocking=False, copy=False, memory_format=None:
        _row("to")(self, dtype=other.dtype, device=other.device, copy=copy),
}  # fmt: skip
"""Overloads whose positions mean different arguments, so that a row for all of them cannot tell."""


# --- support ---------------------------------------------------------------------------------------------------------


READER = Reader(
    "torch", TorchProgramError, UnsupportedError, "calls",
    "give a custom operator of torch a twin: meta.frontend.torch.twin",
)  # fmt: skip


def operators(graph: Graph, fallback: Fallback | None = None) -> tuple[OperatorUse, ...]:
    """The operators that a graph and its subgraphs call, by name, with the lines of the user's code, as `file:line`, or
    the names of nodes where there is none. Nothing is converted."""
    places: dict[str, list[int | str]] = {}
    missing: set[str] = set()
    for node in _all_nodes(graph):
        if is_check(node) or node.operator == "operator.getitem":
            continue
        places.setdefault(node.operator, []).append(str(node.span or node.name))
        if node.operator not in HIGHER_ORDER and find(node, fallback) is None:
            missing.add(node.operator)
    return operator_uses(places, places.keys() - missing)


def _all_nodes(graph: Graph) -> Sequence[GraphNode]:
    nodes: list[GraphNode] = []
    pending = [graph]
    while pending:
        for node in pending.pop().nodes:
            nodes.append(node)
            pending += subgraphs(node)
    return nodes


def check_operators(graph: Graph, fallback: Fallback | None = None) -> None:
    """Raise UnsupportedError with every operator of a graph that meta lacks."""
    READER.check_supported(operators(graph, fallback), ())
