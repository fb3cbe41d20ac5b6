"""What sizes are made of besides names: quotients and minima, which are atoms of polynomials; and numbers that programs
compute of sizes."""

from __future__ import annotations

from functools import reduce
from numbers import Integral
from operator import mul
from typing import Any, ClassVar, NoReturn

from meta.errors import ArgumentError, NotSupportedError, SymbolicSizeError, TypeInferenceError
from meta.limits import MAX_FACTORS, MAX_QUOTIENT


class Count(int):
    """The number of elements of a tensor: an int that says, when it is called as in torch, what to use."""

    def __call__(self, *axis: object, **named: object) -> NoReturn:
        problem = "x.size is called; it is the number of elements, as in NumPy"
        given = [*axis, *named.values()]
        remedy = f"write x.shape[{given[0]}]" if given else "write x.shape for x.size(), x.shape[axis] for x.size(axis)"
        raise ArgumentError("size", problem, "x.size, x.shape or x.shape[axis]", remedy)


class SizePair:
    """A function of two sizes as an atom of a polynomial."""

    __slots__ = ("_text", "left", "right")
    form: ClassVar[str]

    def __init__(self, left: Any, right: Any) -> None:
        self.left = left
        self.right = right
        self._text = self.form.format(left, right)
        if len(self._text) > MAX_QUOTIENT:
            raise too_large(f"a part of {len(self._text)} characters", f"at most {MAX_QUOTIENT}")

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (other.left, other.right) == (self.left, self.right)

    def __repr__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[object, tuple[Any, Any]]:
        return type(self), (self.left, self.right)


class Quotient(SizePair):
    """`left // right`."""

    __slots__ = ()
    form = "(({})//({}))"


class Least(SizePair):
    """`min(left, right)`."""

    __slots__ = ()
    form = "min({}, {})"


def too_large(problem: str, expected: str) -> TypeInferenceError:
    return TypeInferenceError("shape", f"a symbolic size has {problem}", expected, "name the size: pass it as an input")


class Order:
    """The order of two symbolic sizes, which a program checks in calls where it is required. distance: the size that is
    0 or more if the order holds.

    Raises TypeInferenceError where Python asks whether it holds."""

    __slots__ = ("distance", "text")

    def __init__(self, distance: Any, text: str) -> None:
        self.distance = distance
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        raise TypeInferenceError(
            "shape",
            f"whether {self.text} is not known while tracing with symbolic sizes",
            "a comparison for equality, or one that holds for all sizes",
            "write meta.dim.minimum or maximum for the smaller or larger size, meta.cond(order, then, otherwise) for "
            "two ways, or trace with a static size here",
        )


class SizeNumber:
    """A real number that a program computes of sizes in float64, such as `n ** 0.5`: an operand beside tensors.

    function: the operator that computes it.  operands: numbers, sizes and others of these."""

    __slots__ = ("function", "operands")
    _MARKS: ClassVar[dict[str, str]] = {
        "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "mod": "%", "power": "**",
    }  # fmt: skip

    def __init__(self, function: str, *operands: Any) -> None:
        self.function = function
        self.operands = operands

    @property
    def is_integer(self) -> bool:
        """Whether Python would compute an int."""
        return self.function == "power" and isinstance(self.operands[-1], IntegerLike) and is_size(self.operands[0])

    def __repr__(self) -> str:
        return "(" + f" {self._MARKS[self.function]} ".join(map(str, self.operands)) + ")"

    def _unknown(self, *_: object) -> NoReturn:
        raise SymbolicSizeError(
            "shape", f"the value of {self} is needed while tracing with symbolic sizes", "an operand beside tensors",
            "divide sizes by //, or trace with static shapes",
        )  # fmt: skip

    def __floor__(self) -> Any:
        left, right = self.operands[0], self.operands[-1]
        return left // right if self.function == "divide" and is_size(left) and is_size(right) else self._unknown()

    def __ceil__(self) -> Any:
        return -SizeNumber(self.function, -self.operands[0], self.operands[-1]).__floor__()

    __float__ = __int__ = __bool__ = __index__ = __round__ = __trunc__ = _unknown
    __lt__ = __le__ = __gt__ = __ge__ = _unknown

    def __neg__(self) -> SizeNumber:
        return SizeNumber("multiply", -1.0, self)

    def __pos__(self) -> SizeNumber:
        return self


def _operation(function: str, *, swapped: bool = False) -> Any:
    """The method of SizeNumber for an operator, `swapped` for a number on its left."""

    def method(self: SizeNumber, other: Any) -> Any:
        if not is_number(other):
            return NotImplemented
        return SizeNumber(function, other, self) if swapped else SizeNumber(function, self, other)

    return method


class IntegerLike:
    """What ints have besides `+ - * //`, for sizes, which are not known: computed by these, or refused by name."""

    __slots__ = ()

    def __mod__(self: Any, other: Any) -> Any:
        return self - self // other * other if is_size(other) else real("mod", self, other)

    def __rmod__(self: Any, other: Any) -> Any:
        return other - other // self * self if is_size(other) else real("mod", other, self)

    def __divmod__(self: Any, other: Any) -> Any:
        return (self // other, self % other) if is_number(other) else NotImplemented

    def __rdivmod__(self: Any, other: Any) -> Any:
        return (other // self, other % self) if is_number(other) else NotImplemented

    def __pow__(self: Any, exponent: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return self**exponent % modulus
        if isinstance(exponent, int) and 0 <= exponent <= MAX_FACTORS:
            return reduce(mul, [self] * exponent, 1)
        return real("power", self, exponent)

    def __rpow__(self: Any, base: Any) -> Any:
        return real("power", base, self)

    def __truediv__(self: Any, other: Any) -> Any:
        return real("divide", self, other)

    def __rtruediv__(self: Any, other: Any) -> Any:
        return real("divide", other, self)

    def __lshift__(self: Any, bits: int) -> Any:
        return self * (1 << bits)

    def __rshift__(self: Any, bits: int) -> Any:
        return self // (1 << bits)

    def __invert__(self: Any) -> Any:
        return -self - 1

    def __and__(self: Any, mask: Any) -> Any:
        if isinstance(mask, int) and mask >= 0 and mask & (mask + 1) == 0:
            return self % (mask + 1)
        return self._bits(mask)

    def __pos__(self: Any) -> Any:
        return self

    def __round__(self: Any, digits: int | None = None) -> Any:
        return self if digits is None or digits >= 0 else self._bits(digits)

    def _bits(self: Any, *_: Any) -> Any:
        raise NotSupportedError(
            "shape",
            f"the digits of the symbolic size {self} are needed",
            "+, -, *, //, %, ** and / of sizes, and `size & (2**k - 1)`",
            "compute with them, or trace with a static size",
        )

    __rand__ = __and__
    __or__ = __ror__ = __xor__ = __rxor__ = __rlshift__ = __rrshift__ = bit_length = bit_count = to_bytes = _bits
    __floor__ = __ceil__ = __trunc__ = conjugate = __pos__
    real = numerator = property(__pos__)
    imag, denominator = 0, 1


def real(function: str, left: Any, right: Any) -> Any:
    """The float that a function computes from a size and another number; NotImplemented for other operands."""
    if isinstance(left, complex) or isinstance(right, complex):
        raise NotSupportedError(
            "shape", f"the symbolic size in {left} and {right} meets a complex number", "real numbers beside sizes",
            "multiply a tensor with each",
        )  # fmt: skip
    return SizeNumber(function, left, right) if is_number(left) and is_number(right) else NotImplemented


def is_size(value: object) -> bool:
    """Whether a value is a size, also one of NumPy's integers; tensors compute with sizes themselves."""
    return isinstance(value, (int, IntegerLike, Integral))


def is_number(value: object) -> bool:
    """Whether a value is a real number that sizes compute with."""
    return is_size(value) or isinstance(value, (float, SizeNumber))


for _function, _name in {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "floor_divide": "floordiv", "mod": "mod",
    "power": "pow",
}.items():  # fmt: skip
    setattr(SizeNumber, f"__{_name}__", _operation(_function))
    setattr(SizeNumber, f"__r{_name}__", _operation(_function, swapped=True))
