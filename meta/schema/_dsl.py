"""`Schema` and `Arg`, which declare the arguments of operators, and the types of arguments, each with its normal form.

softmax = Schema("softmax", Arg("x", Tensor, doc="Input of any shape."), Arg("axis", Int, -1, doc="..."))

An argument type normalises a Python value or rejects it with a description of the accepted values. Tensors are
instances of `TensorLike`, so that schemas depend neither on arrays nor on traced symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from keyword import iskeyword
from typing import Any, Final, Literal

from meta import dtype as dtypes
from meta import spellings
from meta.device import Device as DeviceObject
from meta.device import device as parse_device
from meta.dim import SymDim
from meta.dim_expressions import SizeNumber
from meta.errors import ArgumentError, MetaError, did_you_mean, value_text
from meta.records import record
from meta.tree import is_sequence

Role = Literal["tensor", "tensors", "scalar", "attr"]


class TensorLike:
    """Base class of the tensors that operators take: eager arrays and traced symbols."""

    __slots__ = ()


class Reject(Exception):
    """Rejects a value; the message adds a remedy that `allowed` does not contain."""


@record
class ArgType:
    """The type of an argument.

    name: its name in error texts and documentation.  annotation: its Python annotation in generated code.
    role: "tensor", "tensors" (a list of tensors), "scalar" (a tensor or a Python number) or "attr" (a plain value).
    allowed: the noun phrase after "expected" in error texts.  normalize: value -> normal form, or raises Reject.
    key: how cache keys tell apart values that compare equal: "value" does not, "class" keeps 1, 1.0 and True apart,
        "float" 0.0 and -0.0 too, "items" also the items of tuples.
    """

    name: str
    annotation: str
    role: Role
    allowed: str
    normalize: Callable[[Any], Any]
    optional: bool = False
    key: Literal["value", "class", "float", "items"] = "value"

    def __repr__(self) -> str:
        return self.name

    def remedy(self, value: object) -> str:
        """What to do about a value that the type rejects."""
        try:
            self.normalize(value)
        except Reject as hint:
            return str(hint)
        return ""


def Optional(arg_type: ArgType) -> ArgType:
    """`arg_type`, or None."""
    inner, allowed = arg_type.normalize, f"{arg_type.allowed}, or None"
    return ArgType(f"{arg_type.name}?", f"{arg_type.annotation} | None", arg_type.role, allowed,
                   lambda value: None if value is None else inner(value), optional=True, key=arg_type.key)  # fmt: skip


def Choice(*options: str) -> ArgType:
    """One of the strings `options`."""

    def normalize(value: object) -> str:
        if isinstance(value, str) and value in options:
            return value
        raise Reject

    text = ", ".join(map(repr, options))
    return ArgType("Choice", f"Literal[{text}]", "attr", f"one of {text}", normalize)


def _tensor(value: object) -> Any:
    if isinstance(value, TensorLike):
        return value
    if is_sequence(value) and any(isinstance(item, TensorLike) for item in value):
        raise Reject("stack it: meta.stack(...), or pass its items as arguments: *...")
    if hasattr(value, "__array__") or is_sequence(value) or isinstance(value, (int, float, complex)):
        raise Reject("wrap it: meta.array(...)")
    raise Reject


def _key(value: object) -> Any:
    if isinstance(value, TensorLike):
        return value
    raise Reject


def _tensors(value: object) -> Any:
    if not is_sequence(value):
        raise Reject("write a list: [x, ...]" if isinstance(value, TensorLike) else "")
    for i, item in enumerate(value):
        if not isinstance(item, TensorLike):
            raise Reject(f"item {i} is {type(item).__name__}; wrap arrays and numbers: meta.array(...)")
    return tuple(value)


def _int(value: Any) -> Any:
    if isinstance(value, (bool, float)):
        raise Reject
    if isinstance(value, SymDim):
        return value
    if isinstance(value, int):
        return _held_int(value if type(value) is int else int(value))
    if hasattr(value, "__index__") and not isinstance(value, TensorLike):
        with suppress(TypeError):  # arrays of several numbers also have __index__
            return _held_int(int(value.__index__()))
    raise Reject


def _held_int(value: int) -> int:
    if -(1 << 63) <= value < 1 << 63:
        return value
    raise Reject("use one of at most 64 bits")


def _float(value: Any) -> float:
    if isinstance(value, (bool, TensorLike)):
        raise Reject
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            raise Reject("use one up to 1.8e308") from None
    if is_numpy_scalar(value):
        return float(value)
    raise Reject


def is_numpy_scalar(value: object) -> bool:
    if isinstance(value, TensorLike) or not hasattr(type(value), "ndim"):
        return False
    return getattr(value, "ndim", None) == 0 and hasattr(value, "item")


def _scalar(value: Any) -> Any:
    if isinstance(value, (TensorLike, bool, int, float, complex, SymDim, SizeNumber)):
        return value
    if is_numpy_scalar(value) and isinstance(value.item(), (bool, int, float, complex)):
        return value.item()
    return _tensor(value)


def _number(value: object) -> Any:
    if isinstance(value, SymDim):
        raise Reject("trace with a static size here")
    return _number_or_size(value)


def _number_or_size(value: object) -> Any:
    number = _fill_value(value)
    if isinstance(number, complex):
        raise Reject("use a real number")
    return number


def _fill_value(value: object) -> Any:
    if isinstance(value, TensorLike):
        raise Reject
    if isinstance(value, SizeNumber):
        raise Reject("multiply it with a tensor: meta.ones(...) * value")
    if isinstance(value, int) and value.bit_length() >= 1024:
        raise Reject("use one up to 1.8e308")
    return _scalar(value)


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if type(value).__name__ in ("bool_", "bool") and is_numpy_scalar(value):
        return bool(value)
    raise Reject


def _str(value: object) -> str:
    if isinstance(value, str):
        return value
    raise Reject


def _int_tuple(value: object) -> Any:
    if is_sequence(value):
        return tuple(_int(item) for item in value)
    if isinstance(value, str) and value in ("same", "valid"):
        raise Reject('"valid" is 0; "same" is kernel_size // 2, for odd sizes and a stride of 1')
    if hasattr(value, "__array__") and getattr(value, "ndim", 0):
        raise Reject("convert it: tuple(map(int, ...))")
    return (_int(value),)


def _int_pairs(value: object) -> Any:
    """Pairs (before, after), nested or flat, as a flat tuple."""
    if not is_sequence(value):
        raise Reject
    flat: list[Any] = []
    for item in value:
        flat.extend(_int_tuple(item))
    if len(flat) % 2:
        raise Reject("an even number of them: (before, after) for each axis")
    return tuple(flat)


def _sections(value: object) -> Any:
    return _int_tuple(value) if is_sequence(value) else _int(value)


def _dtype(value: object) -> str:
    try:
        return dtypes.canonical(value)
    except MetaError:
        raise Reject(did_you_mean(value, dtypes.ALL) if isinstance(value, str) else "") from None


def _device(value: Any) -> DeviceObject:
    try:
        return parse_device(value)  # a device of torch has the same text
    except MetaError as error:
        raise Reject(error.remedy) from None


Tensor = ArgType("Tensor", "Tensor", "tensor", "a tensor", _tensor)
OptionalTensor = Optional(Tensor)
Key = ArgType("Tensor", "Tensor", "tensor", "a tensor", _key)
TensorList = ArgType("TensorList", "Sequence[Tensor]", "tensors", "a list or tuple of tensors", _tensors)
Scalar = ArgType("Scalar", "Tensor | Number | Dim", "scalar", "a tensor or a number", _scalar, key="class")
OptionalScalar = Optional(Scalar)
Number = ArgType("Number", "float", "attr", "a number", _number, key="float")
NumberOrSize = ArgType("NumberOrSize", "float | Dim", "attr", "a number or a size", _number_or_size, key="float")
FillValue = ArgType("FillValue", "Number | Dim", "attr", "a number or a size", _fill_value, key="float")
Int = ArgType("Int", "int", "attr", "an int", _int, key="class")
Float = ArgType("Float", "float", "attr", "a float or an int", _float, key="float")
Bool = ArgType("Bool", "bool", "attr", "True or False", _bool, key="class")
Str = ArgType("Str", "str", "attr", "a string", _str)
IntTuple = ArgType("IntTuple", "int | Sequence[Dim]", "attr", "an int or a tuple of ints", _int_tuple, key="items")
IntPairs = ArgType("IntPairs", "Sequence[int] | Sequence[Sequence[int]]", "attr", "(before, after) ints for each axis",
                   _int_pairs, key="items")  # fmt: skip
Sections = ArgType("Sections", "int | Sequence[int]", "attr", "a number of sections or a tuple of positions", _sections,
                   key="items")  # fmt: skip
DType = ArgType("DType", "DTypeLike", "attr", "one of " + ", ".join(dtypes.ALL), _dtype)
Device = ArgType("Device", "DeviceLike", "attr", '"cpu", "cuda" or "cuda(N)"', _device)


# Schemas.


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


@record
class Arg:
    """One argument: its name, type, default (REQUIRED without one) and one sentence of documentation."""

    name: str
    type: ArgType
    default: Any = REQUIRED
    doc: str = ""

    @property
    def is_tensor(self) -> bool:
        """Whether the argument takes tensors."""
        return self.type.role != "attr"

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def normalize(self, op: str, value: object) -> Any:
        """The normal form of `value`. Raises an ArgumentError that names `op` and this argument."""
        try:
            return self.type.normalize(value)
        except Reject as hint:
            problem = f"argument '{self.name}' is {type(value).__name__} {value_text(value)}"
            raise ArgumentError(op, problem, self.type.allowed, str(hint)) from None


class Schema:
    """The arguments of one or more operators, in call order."""

    __slots__ = ("args", "index", "name", "names", "tensor_positions")

    def __init__(self, name: str, *args: Arg) -> None:
        for arg in args:
            if not isinstance(getattr(arg, "type", None), ArgType):
                remedy = f"write Arg({str(getattr(arg, 'name', arg))!r}, Tensor)"
                raise ArgumentError("Schema", f"an argument is {value_text(arg)}", "an Arg", remedy)
        self.name = name
        self.args = args
        self.names: tuple[str, ...] = tuple(arg.name for arg in args)
        self.index: Mapping[str, int] = {arg.name: i for i, arg in enumerate(args)}
        self.tensor_positions: tuple[int, ...] = tuple(i for i, arg in enumerate(args) if arg.is_tensor)
        _check_schema(self)

    def __repr__(self) -> str:
        return self.signature(self.name)

    def signature(self, op: str) -> str:
        """The arguments as text, for an operator that has this schema."""
        return f"{op}({', '.join(map(_arg_text, self.args))})"

    def bind(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Positional and keyword arguments of a call of `op` -> normalised values in schema order.

        Raises ArgumentError for surplus, unknown, duplicate or missing arguments and for values of the wrong type."""
        if len(args) > len(self.args):
            problem, expected = f"{len(args)} arguments given", f"at most {len(self.args)}: {self.signature(op)}"
            fitting = spellings.call_text(spellings.operator_path(op), self.names, args[: len(self.args)], kwargs)
            raise ArgumentError(op, problem, expected, self._one_by_one(args, len(self.args)) or fitting)
        values: list[Any] = list(args) + [REQUIRED] * (len(self.args) - len(args))
        if kwargs:
            spellings.refuse_unknown(op, kwargs, self.names, self.signature(op))
        for name, value in kwargs.items():
            position = self.index[name]
            if values[position] is not REQUIRED:
                problem = f"argument '{name}' given twice"
                raise ArgumentError(op, problem, self.signature(op), self._one_by_one(args, position))
            values[position] = value
        out: list[Any] = []
        for arg, value in zip(self.args, values, strict=True):
            try:
                out.append(self._value(op, arg, value))
            except ArgumentError as error:
                if arg.type.normalize is _key:
                    error.remedy = spellings.keyed_call_text(op, self.args, args, kwargs, len(out))
                error.remedy = self._one_by_one(args, len(out)) or error.remedy
                raise
        return tuple(out)

    def _one_by_one(self, args: Sequence[Any], wrong: int) -> str:
        """How to write ints that were passed one by one where an argument takes a tuple of them. wrong: the position of
        the first one that does not fit."""
        for position, arg in enumerate(self.args[: len(args)]):
            first: Any = args[position]
            first = first[0] if is_sequence(first) and len(first) == 1 else first  # functions make one int a tuple
            ints: list[int] = list(takewhile(_is_int, (first, *args[position + 1 :])))
            if arg.type.name.startswith("IntTuple") and position < wrong < position + len(ints):
                swaps = arg.name == "axes" and len(ints) == 2  # in torch, `transpose(x, 0, 1)` swaps two axes
                return "write x.swap_axis({}, {})".format(*ints) if swaps else f"write {arg.name}={tuple(ints)}"
        return ""

    def _value(self, op: str, arg: Arg, value: object) -> Any:
        if value is REQUIRED and arg.required:
            remedy = arg.type.remedy(REQUIRED) or f"add {arg.name}=..."
            raise ArgumentError(op, f"argument '{arg.name}' is missing", self.signature(op), remedy)
        return arg.normalize(op, arg.default if value is REQUIRED else value)


def _is_int(value: object) -> bool:
    return type(value) is int and value.bit_length() < 64


def _arg_text(arg: Arg) -> str:
    return f"{arg.name}: {arg.type}" + ("" if arg.required else f" = {arg.default!r}")


def _check_schema(schema: Schema) -> None:
    """Check names, order and defaults of the arguments when the schema is built; raises ValueError."""
    seen_default = False
    for arg in schema.args:
        if not arg.name.isidentifier() or iskeyword(arg.name):
            raise ValueError(f"schema {schema.name}: an argument cannot be called '{arg.name}'")
        if arg.required and seen_default:
            raise ValueError(f"schema {schema.name}: required '{arg.name}' follows an argument with a default")
        seen_default = seen_default or not arg.required
        if not arg.required:
            arg.normalize(schema.name, arg.default)
    if len(schema.index) != len(schema.args):
        raise ValueError(f"schema {schema.name}: an argument name occurs twice")


DY = Arg("dy", Tensor, doc="Gradient of the result.")
