"""Dtypes, which are strings, and inspection of the namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import count, takewhile
from typing import Any

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor
from meta.backend.tvm import devices
from meta.device import CPU, Device, device
from meta.errors import ArgumentError
from meta.tree import is_tuple

KINDS: Mapping[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": tuple(name for name in dtypes.INTS if name.startswith("i")),
    "unsigned integer": tuple(name for name in dtypes.INTS if name.startswith("u")),
    "integral": dtypes.INTS,
    "real floating": dtypes.FLOATS,
    "complex floating": dtypes.COMPLEX,
    "numeric": (*dtypes.INTS, *dtypes.INEXACT),
}
"""The dtypes of each kind of the standard."""

EXTRA = ("float16", "bfloat16")
"""Dtypes that the standard does not have."""


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """x in another dtype, on `device`; x itself if nothing changes and `copy` is False."""
    out = x.to(device=device, dtype=dtype)
    return meta.copy(x) if copy and out is x else out


def can_cast(from_: object, to: object, /) -> bool:
    """Whether promotion of a dtype (or of a tensor's dtype) with `to` gives `to`. Categories do not mix."""
    source, target = _dtype(from_), dtypes.canonical(to)
    return dtypes.category(source) == dtypes.category(target) and dtypes.promote(source, target) == target


def isdtype(dtype: object, kind: object) -> bool:
    """Whether a dtype is `kind`: a dtype, the name of a kind ("real floating"), or one of a tuple of these."""
    if is_tuple(kind):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str) and kind in KINDS:
        return dtypes.canonical(dtype) in KINDS[kind]
    return dtypes.canonical(dtype) == dtypes.canonical(kind, "isdtype")


def result_type(*arrays_and_dtypes: Any) -> str:
    """The dtype that tensors, dtypes and Python numbers promote to. Raises ArgumentError without a tensor or dtype."""
    numbers = [x for x in arrays_and_dtypes if isinstance(x, (bool, int, float, complex))]
    names = [_dtype(x) for x in arrays_and_dtypes if not isinstance(x, (bool, int, float, complex))]
    if not names:
        raise ArgumentError("result_type", "no dtypes", "at least one tensor or dtype")
    out = names[0]
    for name in names[1:]:
        out = dtypes.promote(out, name)
    for number in numbers:
        out = dtypes.promote_scalar(out, number)
    return out


def _dtype(x: object) -> str:
    return x.dtype if isinstance(x, Tensor) else dtypes.canonical(x)


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """Facts of a floating dtype, or of the parts of a complex one: bits, machine epsilon, range, smallest positive
    normal number."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: str


@dataclass(frozen=True, slots=True)
class IntInfo:
    """Facts of an integer dtype: bits and range."""

    bits: int
    max: int
    min: int
    dtype: str


def finfo(type: Any, /) -> FloatInfo:
    """Facts of a floating dtype, of the parts of a complex one, or of a tensor's dtype. Raises ArgumentError for
    others."""
    name = dtypes.real_dtype(_dtype(type))
    if not dtypes.is_float(name):
        raise ArgumentError("finfo", f"the dtype is {name}", ", ".join(dtypes.INEXACT), "use iinfo")
    ml_dtypes: Any = import_module("ml_dtypes")
    info = ml_dtypes.finfo(dtypes.to_numpy(name))
    return FloatInfo(info.bits, float(info.eps), float(info.max), float(info.min), float(info.smallest_normal), name)


def iinfo(type: Any, /) -> IntInfo:
    """Facts of an integer dtype, or of a tensor's dtype. Raises ArgumentError for others."""
    name = _dtype(type)
    if not dtypes.is_int(name):
        raise ArgumentError("iinfo", f"the dtype is {name}", ", ".join(dtypes.INTS), "use finfo")
    low, high = dtypes.int_range(name)
    return IntInfo(dtypes.itemsize(name) * 8, high, low, name)


class NamespaceInfo:
    """The capabilities of the namespace, and its defaults."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """Indexing by masks and results whose shapes depend on values, outside of traced functions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Device:
        return CPU

    def default_dtypes(self, *, device: object = None) -> dict[str, str]:
        return {"real floating": "float32", "complex floating": "complex64", "integral": "int64", "indexing": "int64"}

    def devices(self) -> list[Device]:
        """The CPU and the GPUs of this machine."""
        gpus = (device(f"cuda:{index}") for index in count())
        return [CPU, *takewhile(devices.exists, gpus)]

    def dtypes(self, *, device: object = None, kind: object = None) -> dict[str, str]:
        """The dtypes of the standard by name; with `kind`, only the dtypes of one kind or of a tuple of kinds."""
        names = (name for name in dtypes.ALL if name not in EXTRA)
        return {name: name for name in names if kind is None or isdtype(name, kind)}


def __array_namespace_info__() -> NamespaceInfo:
    """Inspection of the namespace."""
    return NamespaceInfo()
