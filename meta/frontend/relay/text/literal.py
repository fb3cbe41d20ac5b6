"""Literals of Relay text: numbers and strings, one token each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from meta.frontend.relay.dtypes import NUMPY_DTYPES
from meta.limits import MAX_DIGITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUMBER = re.compile(r"(-*)(\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)(bf|[fiu])?(\d*)")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_INTEGER_WIDTHS = {"i": ("8", "16", "32", "64"), "u": ("1", "8", "16", "32", "64")}
_FLOATS = ("float16", "float32", "float64", "bfloat16")


class LiteralError(ValueError):
    """A token that is not a valid literal; the reader adds its place."""


def number(text: str) -> tuple[int | float, str]:
    """Value and dtype of "1f", "-2", "3i64", "1e-05f16", "inff" and the like."""
    if len(text) > MAX_DIGITS:
        raise LiteralError(f"a number of {len(text)} characters; expected at most {MAX_DIGITS}")
    parts = _NUMBER.fullmatch(text)
    if parts is None:
        raise LiteralError(f"{text!r} is not a number")
    signs, digits, kind, width = parts.groups()
    sign = -1 if len(signs) % 2 else 1
    if kind in _INTEGER_WIDTHS:
        return _integer(text, digits, sign, kind, width)
    if kind is None and digits.isdecimal():
        value = sign * int(digits)
        return value, _checked_range(text, value, "int32" if -(2**31) <= value < 2**31 else "int64")
    dtype = f"{'bfloat' if kind == 'bf' else 'float'}{width or 32}"
    if dtype not in _FLOATS:
        raise LiteralError(f"the suffix of {text!r} is not a float type; expected f16, f, f64 or bf16")
    return sign * float(digits), dtype


def _integer(text: str, digits: str, sign: int, kind: str, width: str) -> tuple[int, str]:
    if not digits.isdecimal() or width not in _INTEGER_WIDTHS[kind]:
        raise LiteralError(f"{text!r} is not an integer; expected a suffix i8 to i64 or u8 to u64")
    value = sign * int(digits)
    return value, _checked_range(text, value, "bool" if width == "1" else f"{'int' if kind == 'i' else 'uint'}{width}")


def _checked_range(text: str, value: int, dtype: str) -> str:
    if dtype == "bool":
        low, high = 0, 1
    else:
        bits, unsigned = int(dtype.lstrip("uint")), dtype.startswith("u")
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not low <= value <= high:
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise LiteralError(f"{shown} does not fit {dtype}")
    return dtype


def scalar(value: float, dtype: str) -> NDArray[Any]:
    """The array without dimensions that holds `value` as Relay's `dtype`."""
    if dtype == "bfloat16":
        import ml_dtypes

        return np.asarray(np.frombuffer(np.asarray(value, ml_dtypes.bfloat16).tobytes(), "<u2")[0])
    with np.errstate(over="ignore"):
        return np.asarray(value, NUMPY_DTYPES[dtype])


def string(text: str) -> str:
    """The value of a string in quotes."""
    body = text[1:-1]
    return _ESCAPE.sub(_unescape, body) if "\\" in body else body


def _unescape(escape: re.Match[str]) -> str:
    octal, hexadecimal, other = escape.groups()
    if octal:
        return chr(int(octal, 8))
    if hexadecimal:
        return chr(int(hexadecimal, 16))
    return _ESCAPED.get(other, other)
