"""Data types: names, sizes, categories, promotion and conversion to NumPy.

A dtype is a string, its name ("float32"), so dtypes hash and compare as fast as strings. Promotion follows torch, and
NumPy for pairs of integer dtypes that torch refuses: a Python scalar changes the category of a tensor only if its
category is higher; a 0-d tensor counts as a tensor.
Categories are ordered bool < integer < float < complex.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from meta.errors import ArgumentError, did_you_mean, value_text
from meta.limits import MAX_DIMENSION, MAX_DIMENSIONS

if TYPE_CHECKING:
    import numpy as np

_BITS: dict[str, int] = {
    "bool": 8, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "int8": 8, "int16": 16, "int32": 32, "int64": 64,
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "complex64": 64, "complex128": 128,
}  # fmt: skip
ALL: tuple[str, ...] = tuple(_BITS)
FLOATS: tuple[str, ...] = ("float16", "bfloat16", "float32", "float64")
COMPLEX: tuple[str, ...] = ("complex64", "complex128")
INEXACT: tuple[str, ...] = (*FLOATS, *COMPLEX)
"""The dtypes that have gradients."""
UNSIGNED: tuple[str, ...] = ("uint8", "uint16", "uint32", "uint64")
INTS: tuple[str, ...] = (*UNSIGNED, "int8", "int16", "int32", "int64")
HALVES: tuple[str, ...] = ("float16", "bfloat16")
_ALIASES = {
    "float": "float32", "double": "float64", "half": "float16", "int": "int64", "long": "int64",
    "complex": "complex64", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip
_CATEGORY = {"bool": 0} | dict.fromkeys(INTS, 1) | dict.fromkeys(FLOATS, 2) | dict.fromkeys(COMPLEX, 3)
_DEFAULT = ("bool", "int64", "float32", "complex64")
"""The dtype of Python numbers, by category."""


def canonical(dtype: object, where: str = "dtype") -> str:
    """The name of `dtype`, which is a name or alias, a Python scalar type, or a dtype object of NumPy or torch.

    Raises ArgumentError for unsupported dtypes."""
    if isinstance(dtype, str) and dtype in _BITS:
        return dtype
    try:
        return _name_cache[dtype.__class__, dtype]
    except (KeyError, TypeError):  # not cached or not hashable
        pass
    name = _canonical_name(dtype, where)
    if dtype.__class__.__hash__ is not None:
        _name_cache[dtype.__class__, dtype] = name
    return name


_name_cache: dict[tuple[type, object], str] = {}
"""Names of the dtype objects of other libraries, whose conversion to text is slow."""


def _canonical_name(dtype: object, where: str) -> str:
    if isinstance(dtype, type) and dtype in (bool, int, float, complex):
        return {bool: "bool", int: "int64", float: "float32", complex: "complex64"}[dtype]
    if isinstance(dtype, int):
        name = value_text(dtype)
    else:
        name = str(dtype) if not isinstance(dtype, type) else getattr(dtype, "__name__", str(dtype))
    name = name.rsplit(".", 1)[-1].strip("'>")
    name = {"bool_": "bool"}.get(name, _ALIASES.get(name, name))
    if name in _BITS:
        return name
    raise ArgumentError(where, f"{value_text(dtype)} is not a dtype", f"{', '.join(ALL)}", did_you_mean(name, ALL))


def itemsize(dtype: str) -> int:
    """Size of one element in bytes."""
    return _BITS[dtype] // 8


def is_float(dtype: str) -> bool:
    return _CATEGORY[dtype] == 2


def is_complex(dtype: str) -> bool:
    return dtype in COMPLEX


def is_inexact(dtype: str) -> bool:
    """Whether a dtype is floating or complex."""
    return _CATEGORY[dtype] >= 2


def real_dtype(dtype: str) -> str:
    """The dtype of the real and imaginary parts of a complex dtype; any other dtype itself."""
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def complex_dtype(dtype: str) -> str:
    """The complex dtype of numbers whose parts are of `dtype`: complex128 for float64, else complex64."""
    return "complex128" if dtype in ("float64", "complex128") else "complex64"


def is_int(dtype: str) -> bool:
    return _CATEGORY[dtype] == 1


def is_unsigned(dtype: str) -> bool:
    """Whether a dtype is an unsigned integer dtype."""
    return dtype in UNSIGNED


def category(dtype: str) -> int:
    """The category of a dtype: 0 for bool, 1 for integers, 2 for floats, 3 for complex dtypes."""
    return _CATEGORY[dtype]


@cache
def promote(a: str, b: str) -> str:
    """The common dtype of two tensors of dtypes `a` and `b`, as in torch.promote_types, or as in numpy.promote_types
    where torch has none.

    An unsigned and a signed dtype give the smallest signed dtype that holds both, uint64 and a signed dtype float64;
    float16 and bfloat16 give float32; an integer or bool and a float give the float; a complex dtype and any other one
    give the complex dtype that holds both."""
    if a == b:
        return a
    if 3 in (_CATEGORY[a], _CATEGORY[b]):
        return "complex128" if "complex128" in (complex_dtype(a), complex_dtype(b)) else "complex64"
    if _CATEGORY[a] != _CATEGORY[b]:
        return a if _CATEGORY[a] > _CATEGORY[b] else b
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if is_unsigned(a) == is_unsigned(b):
        return a if _BITS[a] >= _BITS[b] else b
    unsigned, signed = (a, b) if is_unsigned(a) else (b, a)
    if _BITS[unsigned] < _BITS[signed]:
        return signed
    return {"uint8": "int16", "uint16": "int32", "uint32": "int64", "uint64": "float64"}[unsigned]


Number = bool | int | float | complex
"""A Python scalar."""


def scalar_category(value: Number) -> int:
    """The category of a Python scalar."""
    return 0 if isinstance(value, bool) else 1 if isinstance(value, int) else 3 if isinstance(value, complex) else 2


def scalar_dtype(*values: Number) -> str:
    """The default dtype of Python scalars: bool, int64, float32 or complex64."""
    return _DEFAULT[max(map(scalar_category, values))]


def promote_scalar(tensor: str, value: Number) -> str:
    """The result dtype of an operator on a tensor of dtype `tensor` and a Python scalar: the tensor's dtype, or the
    default of the scalar's category if that is higher; complex128 for float64 and a complex number."""
    scalar = scalar_category(value)
    if scalar <= _CATEGORY[tensor]:
        return tensor
    return complex_dtype(tensor) if scalar == 3 else _DEFAULT[scalar]


def to_numpy(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype; for bfloat16 the dtype of ml_dtypes."""
    import numpy as np

    if dtype == "bfloat16":
        ml_dtypes: Any = import_module("ml_dtypes")
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def accumulation_dtype(dtype: str) -> str:
    """The dtype in which values of `dtype` are added up and transcendental functions computed: float32 for halves."""
    return "float32" if dtype in HALVES else dtype


_SIGNIFICAND_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def significand_bits(dtype: str) -> int:
    """Bits of a floating dtype's significand: integers of so many bits are exact."""
    return _SIGNIFICAND_BITS[dtype]


_LARGEST = {
    "float16": 65504.0,
    "bfloat16": 255 * 2.0**120,
    "float32": (2**24 - 1) * 2.0**104,
    "float64": sys.float_info.max,
}


def largest(dtype: str) -> float:
    """The largest finite value of a floating dtype."""
    return _LARGEST[dtype]


_SMALLEST_NORMAL = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": sys.float_info.min}


def smallest_normal(dtype: str) -> float:
    """The smallest positive value of a floating dtype with all its significand bits."""
    return _SMALLEST_NORMAL[dtype]


def int_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer or bool dtype."""
    if dtype == "bool":
        return 0, 1
    bits = _BITS[dtype]
    return (0, 2**bits - 1) if is_unsigned(dtype) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def array_bytes(shape: Sequence[object], itemsize: int) -> int | None:
    """The bytes of an array; None for shapes that NumPy cannot hold: of sizes that are not ints or negative, of more
    than 64 dimensions, or of more than 2**63 - 1 bytes where sizes of 0 count as 1."""
    if len(shape) > MAX_DIMENSIONS:
        return None
    sizes = [size for size in shape if type(size) is int and 0 <= size <= MAX_DIMENSION]
    if len(sizes) != len(shape) or math.prod(size or 1 for size in sizes) * itemsize > MAX_DIMENSION:
        return None
    return math.prod(sizes) * itemsize
