"""The types of operator arguments, each with its normal form.

An argument type normalises a Python value or rejects it with a description of the accepted values. Tensors are
instances of `TensorLike`, so that schemas depend neither on arrays nor on traced symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from meta import dtype as dtypes
from meta.device import Device as DeviceObject
from meta.device import device as parse_device
from meta.dim import SymDim
from meta.errors import MetaError, did_you_mean
from meta.records import record

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


def Optional(arg_type: ArgType) -> ArgType:
    """`arg_type`, or None."""
    inner = arg_type.normalize
    return replace(
        arg_type,
        name=f"{arg_type.name}?",
        annotation=f"{arg_type.annotation} | None",
        allowed=f"{arg_type.allowed}, or None",
        normalize=lambda value: None if value is None else inner(value),  # pyright: ignore[reportUnknownLambdaType]
        optional=True,
    )


def Choice(*options: str) -> ArgType:
    """One of the strings `options`."""

    def normalize(value: Any) -> str:
        if isinstance(value, str) and value in options:
            return value
        raise Reject

    text = ", ".join(map(repr, options))
    return ArgType("Choice", f"Literal[{text}]", "attr", f"one of {text}", normalize)


def _tensor(value: Any) -> Any:
    if isinstance(value, TensorLike):
        return value
    if hasattr(value, "__array__") or isinstance(value, (list, tuple)):
        raise Reject("wrap it: meta.array(...)")
    raise Reject


def _tensors(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise Reject
    for i, item in enumerate(value):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if not isinstance(item, TensorLike):
            raise Reject(f"item {i} is {type(item).__name__}; wrap arrays and numbers: meta.array(...)")  # pyright: ignore[reportUnknownArgumentType]
    return tuple(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


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


def is_numpy_scalar(value: Any) -> bool:
    return getattr(value, "ndim", None) == 0 and hasattr(value, "item") and not isinstance(value, TensorLike)


def _scalar(value: Any) -> Any:
    if isinstance(value, (TensorLike, bool, int, float, complex, SymDim)):
        return value
    if is_numpy_scalar(value) and isinstance(value.item(), (bool, int, float, complex)):
        return value.item()
    return _tensor(value)


def _number(value: Any) -> Any:
    if isinstance(value, SymDim):
        raise Reject("trace with a static size here")
    return _number_or_size(value)


def _number_or_size(value: Any) -> Any:
    number = _fill_value(value)
    if isinstance(number, complex):
        raise Reject("use a real number")
    return number


def _fill_value(value: Any) -> Any:
    if isinstance(value, TensorLike):
        raise Reject
    if isinstance(value, int) and value.bit_length() >= 1024:
        raise Reject("use one up to 1.8e308")
    return _scalar(value)


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if type(value).__name__ in ("bool_", "bool") and is_numpy_scalar(value):
        return bool(value)
    raise Reject


def _str(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise Reject


def _int_tuple(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_int(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    if hasattr(value, "__array__") and getattr(value, "ndim", 0):
        raise Reject("convert it: tuple(map(int, ...))")
    return (_int(value),)


def _int_pairs(value: Any) -> Any:
    """Pairs (before, after), nested or flat, as a flat tuple."""
    if not isinstance(value, (list, tuple)):
        raise Reject
    flat: list[Any] = []
    for item in value:  # pyright: ignore[reportUnknownVariableType]
        flat.extend(_int_tuple(item))
    if len(flat) % 2:
        raise Reject("an even number of them: (before, after) for each axis")
    return tuple(flat)


def _sections(value: Any) -> Any:
    return _int_tuple(value) if isinstance(value, (list, tuple)) else _int(value)


def _dtype(value: Any) -> str:
    try:
        return dtypes.canonical(value)
    except MetaError:
        raise Reject(did_you_mean(value, dtypes.ALL) if isinstance(value, str) else "") from None


def _device(value: Any) -> DeviceObject:
    if not isinstance(value, (str, DeviceObject)):
        raise Reject
    try:
        return parse_device(value)
    except MetaError:
        raise Reject from None


Tensor = ArgType("Tensor", "Tensor", "tensor", "a tensor", _tensor)
OptionalTensor = Optional(Tensor)
TensorList = ArgType("TensorList", "Sequence[Tensor]", "tensors", "a list or tuple of tensors", _tensors)
Scalar = ArgType("Scalar", "Tensor | Number", "scalar", "a tensor or a number", _scalar, key="class")
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
