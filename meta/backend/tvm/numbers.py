"""Numbers that a kernel takes at run time, so that one kernel serves all their values.

A compute receives a `Number` in place of such an attribute. It calculates with it as with a Python number; each result
that enters an expression of TVM becomes a scalar parameter of the kernel. The parameters of a call are calculated in
Python when it is bound, as the compute would have calculated them, and so have the bits of literals.

A value that a compute treats apart, as in `if p == 0`, is compiled in, and the kernel of the others is built in the
knowledge that they differ from it. Where a compute needs the value itself, as in `math.sqrt(p)`, every value is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from meta import dtype as dtypes
from meta.backend.tvm import adapter as tvm
from meta.records import record

Expression = Any
"""How a number follows from the arguments: a number, ("arg", position), or the name of an operation with operands."""

_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "abs": operator.abs,
    "log": math.log,
    "max": max,
    "trunc": math.trunc,
}


@record
class NumberSpec:
    """An attribute that a kernel takes at run time.

    is_float: its values are floats, else ints.  excluded: values that other kernels serve, in which they are compiled
        in: the compute may compare the attribute with them.
    """

    is_float: bool
    excluded: tuple[float, ...] = ()


@record
class Parameter:
    """A scalar parameter of a kernel: how it follows from the arguments, and the dtype to which it is rounded."""

    expression: Expression
    dtype: str

    def value(self, args: Sequence[Any]) -> float:
        """The parameter for these arguments; of uint64 the int64 of the same bits.

        Raises ArithmeticError for values without one, such as the logarithm of a negative number."""
        try:
            value = rounded(_evaluate(self.expression, args), self.dtype)
        except ValueError as error:
            raise ArithmeticError(*error.args) from error
        return value - (1 << 64) if self.dtype == "uint64" and value >= 1 << 63 else value


class NeedsValueError(Exception):
    """A compute needs the values of the attributes at `positions`, or only to know whether the one is `constant`."""

    def __init__(self, positions: frozenset[int], constant: float | None = None) -> None:
        super().__init__(f"the values of the arguments {sorted(positions)}")
        self.positions = positions
        self.constant = constant


class Parameters:
    """The scalar parameters of a kernel, collected while its compute runs. dtype: the dtype of a number where an
    expression of TVM does not say one: "float32", as for literals, or "float64"."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self._variables: dict[Parameter, Any] = {}

    def argument(self, position: int, spec: NumberSpec) -> Number:
        """The Number that replaces an argument."""
        return Number(self, ("arg", position), frozenset((position,)), spec.is_float, spec.excluded)

    def variable(self, expression: Expression, dtype: str) -> Any:
        """The parameter as a variable: of float32 for halves, of int64 for integers and booleans."""
        kind = dtype if dtype in ("float32", "float64") else "float32" if dtype in dtypes.HALVES else "int64"
        name = f"number{len(self._variables)}"
        return self._variables.setdefault(Parameter(expression, dtype), tvm.te.var(name, kind))

    @property
    def variables(self) -> list[Any]:
        return list(self._variables.values())

    @property
    def all(self) -> tuple[Parameter, ...]:
        return tuple(self._variables)


class Number:
    """A number whose value a kernel gets at run time.

    Sums, differences, products and quotients with Python numbers are Numbers; with expressions of TVM they are
    expressions. What depends on the value (comparisons with numbers other than the excluded ones, conversions, text)
    raises NeedsValueError."""

    __slots__ = ("_excluded", "_expression", "_parameters", "_positions", "is_float")

    def __init__(
        self,
        parameters: Parameters,
        expression: Expression,
        positions: frozenset[int],
        is_float: bool,
        excluded: tuple[float, ...] | None = None,
    ) -> None:
        self._parameters, self._expression, self._positions = parameters, expression, positions
        self._excluded = excluded  # None: it follows from arguments by an operation
        self.is_float = is_float

    def astype(self, dtype: Any) -> Any:
        """The number as an expression of `dtype`, rounded as a literal."""
        dtype = str(dtype)
        if not self.is_float and dtype in dtypes.FLOATS:
            return Number(self._parameters, self._expression, self._positions, True).astype(dtype)
        variable = self._parameters.variable(self._expression, dtype)
        return variable if str(variable.ty.dtype) == dtype else variable.astype(dtype)

    def __tvm_ffi_object__(self) -> Any:
        return self.astype(self._parameters.dtype if self.is_float else "int64")

    def _operate(self, name: str, *operands: Any) -> Number:
        numbers = [o for o in operands if isinstance(o, Number)]
        expressions = [o._expression if isinstance(o, Number) else o for o in operands]
        is_float = name in ("div", "log") or any(getattr(o, "is_float", isinstance(o, float)) for o in operands)
        is_float = is_float and name != "trunc"
        positions = frozenset[int]().union(*(o._positions for o in numbers))
        return Number(self._parameters, (name, *expressions), positions, is_float)

    def log(self) -> Number:
        """The natural logarithm."""
        return self._operate("log", self)

    def at_least(self, least: float) -> Number:
        """The larger of this number and another."""
        return self._operate("max", self, least)

    def rounded(self, dtype: str) -> Number:
        """The number rounded to a floating dtype."""
        return Number(self._parameters, ("round", self._expression, dtype), self._positions, True)

    def __trunc__(self) -> Number:
        return self._operate("trunc", self)

    def __neg__(self) -> Number:
        return self._operate("neg", self)

    def __abs__(self) -> Number:
        return self._operate("abs", self)

    def __add__(self, other: Any) -> Any:
        return self._operate("add", self, other) if _is_plain(other) else self.__tvm_ffi_object__() + other

    def __radd__(self, other: Any) -> Any:
        return self._operate("add", other, self) if _is_plain(other) else other + self.__tvm_ffi_object__()

    def __sub__(self, other: Any) -> Any:
        return self._operate("sub", self, other) if _is_plain(other) else self.__tvm_ffi_object__() - other

    def __rsub__(self, other: Any) -> Any:
        return self._operate("sub", other, self) if _is_plain(other) else other - self.__tvm_ffi_object__()

    def __mul__(self, other: Any) -> Any:
        return self._operate("mul", self, other) if _is_plain(other) else self.__tvm_ffi_object__() * other

    def __rmul__(self, other: Any) -> Any:
        return self._operate("mul", other, self) if _is_plain(other) else other * self.__tvm_ffi_object__()

    def __truediv__(self, other: Any) -> Any:
        return self._operate("div", self, other) if _is_plain(other) else self.__tvm_ffi_object__() / other

    def __rtruediv__(self, other: Any) -> Any:
        return self._operate("div", other, self) if _is_plain(other) else other / self.__tvm_ffi_object__()

    def __lt__(self, other: Any) -> Any:
        return self._needed() if _is_plain(other) else self.__tvm_ffi_object__() < other

    def __le__(self, other: Any) -> Any:
        return self._needed() if _is_plain(other) else self.__tvm_ffi_object__() <= other

    def __gt__(self, other: Any) -> Any:
        return self._needed() if _is_plain(other) else self.__tvm_ffi_object__() > other

    def __ge__(self, other: Any) -> Any:
        return self._needed() if _is_plain(other) else self.__tvm_ffi_object__() >= other

    def __eq__(self, other: Any) -> Any:
        if not _is_plain(other):
            return self.__tvm_ffi_object__() == other
        if isinstance(other, Number) or self._excluded is None:
            self._needed()
        if other in self._excluded:
            return False
        raise NeedsValueError(self._positions, other)

    def __ne__(self, other: Any) -> Any:
        return not self == other if _is_plain(other) else self.__tvm_ffi_object__() != other

    def __bool__(self) -> bool:
        return self != 0

    def _needed(self, *_: Any) -> NoReturn:
        raise NeedsValueError(self._positions)

    __float__ = __int__ = __index__ = __complex__ = __hash__ = __str__ = __format__ = _needed
    __floor__ = __ceil__ = __round__ = _needed
    __pow__ = __rpow__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __divmod__ = _needed
    __array__ = _needed


def log(value: float | Number) -> Any:
    """The natural logarithm of a number that is compiled in, or taken at run time."""
    return value.log() if isinstance(value, Number) else math.log(value)


def at_least(value: Any, least: float) -> Any:
    """The larger of two numbers, the first compiled in, taken at run time, or an expression of a size."""
    if isinstance(value, Number):
        return value.at_least(least)
    return max(value, least) if isinstance(value, (int, float)) else tvm.tirx.max(value, least)


def is_float(value: Any) -> bool:
    """Whether a number, compiled in or taken at run time, is a float."""
    return value.is_float if isinstance(value, Number) else isinstance(value, float)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, Number))


def _evaluate(expression: Expression, args: Sequence[Any]) -> Any:
    if isinstance(expression, (int, float)):
        return expression
    name, *operands = expression
    if name == "arg":
        return args[operands[0]]
    if name == "round":
        return rounded(_evaluate(operands[0], args), operands[1])
    return _OPERATIONS[name](*(_evaluate(operand, args) for operand in operands))


def number_in(value: float | Number, dtype: str) -> Any:
    """A number, compiled in or taken at run time, rounded to a floating dtype."""
    return value.rounded(dtype) if isinstance(value, Number) else rounded(value, dtype)


def held(value: float, dtype: str) -> float:
    """A number, or the infinity that rounding to a floating dtype makes of it."""
    infinite = rounded(value, dtype)
    return infinite if math.isinf(infinite) else value


def rounded(value: float, dtype: str) -> float:
    """A number rounded to a dtype; raises OverflowError for one that an integer dtype does not hold."""
    if dtype == "bool":
        return int(value != 0)
    if dtype not in dtypes.FLOATS:
        low, high = dtypes.int_range(dtype)
        if not low <= int(value) <= high:
            raise OverflowError(f"{value} exceeds {dtype}")
        return int(value)
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        return float(np.asarray(value, "float64").astype(dtypes.to_numpy(dtype)))
