"""Rows of the table, and the functions that they become."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, Literal

import meta
from meta import dtype as dtypes
from meta.errors import ArgumentError
from meta.frontend.rows import Function, RowTable
from meta.schema._dsl import TensorLike

RENAMES: Mapping[str, tuple[str, ...]] = {
    "self": ("x", "x1"), "input": ("x",), "other": ("x2", "like"), "dim": ("axis", "axes"), "dims": ("axis", "axes"),
    "keepdim": ("keepdims",), "tensors": ("xs",), "size": ("shape",), "exponent": ("x2",), "index": ("indices",),
    "weight": ("w",), "grad_output": ("dy",), "kernel_size": ("kernel",), "output_size": ("size",),
    "max_val": ("max",), "min_val": ("min",),
}  # fmt: skip
"""ATen's names of arguments, and names of the same arguments in meta: the first that the function has is meant."""

PLACEMENT = frozenset({"layout", "pin_memory", "memory_format", "non_blocking", "generator", "implicit"})
"""Arguments of ATen that choose memory and not values. meta's arrays are compact and draw from one generator."""


NUMBER_FIRST = frozenset({
    "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bucketize",
    "float_power", "isin", "pow", "remainder", "special_xlog1py", "special_xlogy", "special_zeta", "xlogy",
})  # fmt: skip
"""Operators that take a number as `self` if another operand is a tensor."""

TENSOR_PAIRS = frozenset({
    "allclose", "arctan2", "atan2", "complex", "dist", "equal", "fmax", "fmin", "gcd", "heaviside", "hypot", "igamma",
    "igammac", "inner", "isclose", "kron", "lcm", "ldexp", "logaddexp", "logaddexp2", "logical_and", "logical_or",
    "logical_xor", "maximum", "minimum", "nextafter", "polar", "special_gammainc", "special_gammaincc",
})  # fmt: skip
"""Operators whose first two operands are tensors."""

Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = ("none", "mean", "sum")
"""Names of the reductions of losses, in the order of ATen's numbers."""


def reduction_name(number: int) -> Reduction:
    """The name of a reduction of losses. Raises ArgumentError for a number that ATen does not define."""
    if number not in range(len(REDUCTIONS)):
        raise ArgumentError("aten", f"the reduction is {number!r}", "0 (none), 1 (mean) or 2 (sum)")
    return REDUCTIONS[number]


@dataclass(frozen=True, slots=True)
class Direct:
    """A public function of meta with ATen's order of arguments. An int for its `reduction` is ATen's number of one.

    function: its name below `meta`.  renames: ATen's names of arguments -> the function's, before RENAMES."""

    function: str
    renames: Mapping[str, str] = field(default_factory=dict[str, str])

    def resolve(self) -> Function:
        """The function. Raises AttributeError if it does not exist."""
        return reduce(getattr, self.function.split("."), meta)

    def rename(self, name: str) -> str:
        """The function's name of ATen's argument; the same name if it has none."""
        parameters = _signature(self.resolve()).parameters
        candidates = (*filter(None, (self.renames.get(name),)), name, *RENAMES.get(name, ()))
        return next((candidate for candidate in candidates if candidate in parameters), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self.resolve()
        keywords = {self.rename(name): value for name, value in kwargs.items()}
        if "reduction" not in _signature(function).parameters:
            return function(*args, **keywords)
        bound = _signature(function).bind(*args, **keywords)
        if isinstance(number := bound.arguments.get("reduction"), int):
            bound.arguments["reduction"] = reduction_name(number)
        return function(*bound.args, **bound.kwargs)


@dataclass(frozen=True, slots=True)
class AtenRow:
    """How an operator is computed.

    function: takes ATen's arguments.  whole: whether the operator stays whole where torch decomposes a program."""

    function: Function
    whole: bool = True


def direct(function: str, /, **renames: str) -> Direct:
    """A row of data with its own renames."""
    return Direct(function, renames)


def same(*names: str) -> dict[str, str]:
    """Rows of functions that have ATen's names in meta as well."""
    return {name: name for name in names}


table = RowTable("meta.frontend.torch.aten", lambda name, since, function, **options: AtenRow(function, **options))
"""Rows by ATen's base name. All overloads share one row."""
row = table.row


def rows(functions: Mapping[str, str | Function], *, whole: bool = True) -> None:
    """Enter a function for each operator; a name means the function of meta with ATen's order of arguments."""
    table.enter({name: Direct(f) if isinstance(f, str) else f for name, f in functions.items()}, whole=whole)


@cache
def _signature(function: Function) -> inspect.Signature:
    return inspect.signature(function)


def check_operands(name: str, operands: tuple[Any, ...]) -> None:
    """Raise ArgumentError for numbers where the operator's overloads have tensors."""
    if not operands or isinstance(operands[0], (TensorLike, list, tuple)):
        if name in TENSOR_PAIRS and len(operands) > 1 and isinstance(operands[1], (bool, int, float, complex)):
            raise ArgumentError(name, f"the second operand is {operands[1]!r}", "a tensor", "use meta.array(x)")
        return
    if not isinstance(operands[0], (bool, int, float, complex)):
        return
    if name not in NUMBER_FIRST or not any(isinstance(x, TensorLike) for x in operands[1:]):
        raise ArgumentError(name, f"the first operand is {operands[0]!r}", "a tensor", "use meta.array(x)")


def runnable(name: str, function: Function, strict: bool = False) -> Function:
    """A row's function for arguments of torch: placement is dropped; dtypes and devices of torch become meta's.

    strict: raise ArgumentError for a number where ATen's operator `name` takes tensors."""
    checked = strict and (isinstance(function, Direct) or next(iter(_signature(function).parameters), "") == "self")

    def run(*args: Any, **kwargs: Any) -> Any:
        if checked:
            check_operands(name, args)
        keywords = {name: _plain(value) for name, value in kwargs.items() if name not in PLACEMENT}
        return function(*map(_plain, args), **keywords)

    return run


def _plain(value: Any) -> Any:
    """`value`, or the name of a dtype or device of torch; sizes as a tuple."""
    kind = type(value)
    if not kind.__module__.startswith("torch"):
        return value
    if kind.__name__ == "dtype":
        return dtypes.canonical(value, "aten")
    if kind.__name__ == "device":
        return str(value)
    if isinstance(value, (tuple, list)):  # sizes, and the lists of graphs
        return [_plain(element) for element in value] if isinstance(value, list) else tuple(map(_plain, value))
    if kind.__name__ in ("layout", "memory_format"):
        return None
    raise ArgumentError("aten", f"an argument is a {kind.__module__}.{kind.__name__}", "arrays, numbers and dtypes")
