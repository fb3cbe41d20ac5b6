"""Data types, as strings: names, sizes, categories, promotion, and NumPy's view of them.

A dtype is its name ("float32"); nothing here is a class, so types hash and compare as fast as strings do.
The promotion rule is torch's: a Python scalar never changes the category of a tensor unless its own is higher, and
a 0-d tensor counts as a tensor. Categories are ordered bool < integer < float.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from meta.errors import ArgumentError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

_BITS: dict[str, int] = {
    "bool": 8, "uint8": 8, "int8": 8, "int16": 16, "int32": 32, "int64": 64,
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64,
}  # fmt: skip
ALL: tuple[str, ...] = tuple(_BITS)
FLOATS: tuple[str, ...] = ("float16", "bfloat16", "float32", "float64")
INTS: tuple[str, ...] = ("uint8", "int8", "int16", "int32", "int64")
HALVES: tuple[str, ...] = ("float16", "bfloat16")
_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "int": "int64", "long": "int64"}
_CATEGORY = {"bool": 0} | dict.fromkeys(INTS, 1) | dict.fromkeys(FLOATS, 2)


def canonical(dtype: object, where: str = "dtype") -> str:
    """The name of `dtype`: a name or alias, a Python scalar type, or any object that NumPy or torch prints as a dtype.

    Raises ArgumentError when it names no supported dtype."""
    if isinstance(dtype, str) and dtype in _BITS:
        return dtype
    try:
        return _known[dtype.__class__, dtype]
    except (KeyError, TypeError):  # met for the first time, or not hashable
        pass
    found = _named(dtype, where)
    if dtype.__class__.__hash__ is not None:
        _known[dtype.__class__, dtype] = found
    return found


_known: dict[tuple[type, object], str] = {}
"""Names of dtype objects of other libraries, which are slow to print."""


def _named(dtype: object, where: str) -> str:
    if isinstance(dtype, type) and dtype in (bool, int, float):
        return {bool: "bool", int: "int64", float: "float32"}[dtype]  # type: ignore[index]
    name = str(dtype) if not isinstance(dtype, type) else getattr(dtype, "__name__", str(dtype))
    name = name.rsplit(".", 1)[-1].strip("'>")
    name = {"bool_": "bool"}.get(name, _ALIASES.get(name, name))
    if name in _BITS:
        return name
    raise ArgumentError(where, f"{dtype!r} is not a dtype", f"{', '.join(ALL)}", did_you_mean(name, ALL))


def itemsize(dtype: str) -> int:
    """Bytes of one element."""
    return _BITS[dtype] // 8


def is_float(dtype: str) -> bool:
    return _CATEGORY[dtype] == 2


def is_int(dtype: str) -> bool:
    return _CATEGORY[dtype] == 1


def category(dtype: str) -> int:
    """0 bool, 1 integer, 2 floating."""
    return _CATEGORY[dtype]


@cache
def promote(a: str, b: str) -> str:
    """The dtype in which two tensors of dtypes `a` and `b` meet (torch.promote_types' table).

    uint8 with a signed type takes the next wider signed type; float16 with bfloat16 gives float32; an integer or bool
    with a float gives the float."""
    if a == b:
        return a
    if _CATEGORY[a] != _CATEGORY[b]:
        return a if _CATEGORY[a] > _CATEGORY[b] else b
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if {a, b} == {"uint8", "int8"}:
        return "int16"
    return a if _BITS[a] >= _BITS[b] and a != "uint8" else b


def scalar_category(value: bool | int | float) -> int:
    """The category of a Python scalar."""
    return 0 if isinstance(value, bool) else 1 if isinstance(value, int) else 2


def promote_scalar(tensor: str, value: bool | int | float) -> str:
    """The dtype of `tensor_of(dtype) op value`: the tensor's, unless the scalar's category is higher, when it is the
    default of that category (int64, float32)."""
    kind = scalar_category(value)
    if kind <= _CATEGORY[tensor]:
        return tensor
    return "int64" if kind == 1 else "float32"


def to_numpy(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype; bfloat16 is ml_dtypes.bfloat16."""
    import numpy as np

    if dtype == "bfloat16":
        ml_dtypes: Any = import_module("ml_dtypes")
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def int_range(dtype: str) -> tuple[int, int]:
    """Least and greatest value of an integer (or bool) dtype."""
    if dtype == "bool":
        return 0, 1
    bits = _BITS[dtype]
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
