"""Decompositions: composite operators as functions of smaller ones, one module a family in meta/op/decompose.

    @decomposition("hardswish_dx")
    def hardswish_dx(x: Any, dy: Any) -> Any:
        return meta.where(x <= -3, 0, meta.where(x < 3, dy * (x / 3 + 0.5), dy))

A function receives the arguments of a call in the order of the schema and returns its results, or None for arguments
that it does not cover. It calls operators by their public names: it runs on arrays, in traces, and on the symbols that
a pass or an exporter records. The table is read by the reference dialect, for operators that it has no function for, by
the TVM dialect, for elementwise operators without a compute, and by the ONNX exporter, for operators that ONNX has no
node for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from meta.records import record

Function = Callable[..., Any]


@record
class Decomposition:
    """How an operator is computed by others.

    function: see the module docstring.
    wide: whether kernels compute it in float32 for half precisions: readers that want their digits cast the operands,
        and the results back. Otherwise it selects elements, or casts by itself.
    bounds: whether kernels round its attributes to the dtype of the operands, which they are compared with.
    """

    function: Function
    wide: bool = True
    bounds: bool = False


_PACKAGE: Final = "meta.op.decompose"
_families: dict[str, dict[str, Decomposition]] = {}


def decomposition(*names: str, wide: bool = True, bounds: bool = False) -> Callable[[Function], Function]:
    """Enter the decorated function for the operators called `names`, which have the family of its module."""

    def enter(function: Function) -> Function:
        decompose(dict.fromkeys(names, function), wide=wide, bounds=bounds)
        return function

    return enter


def decompose(functions: Mapping[str, Function], *, wide: bool = True, bounds: bool = False) -> None:
    """Enter a function for each operator, of the family that is the basename of the functions' module."""
    for name, function in functions.items():
        family = _families.setdefault(function.__module__.rsplit(".", 1)[-1], {})
        assert name not in family, name
        family[name] = Decomposition(function, wide, bounds)


@cache
def decompositions(family: str) -> Mapping[str, Decomposition]:
    """The decompositions of a family of operators by name; the first call imports their module, if there is one."""
    if family in families():
        import_module(f"{_PACKAGE}.{family}")
    return _families.get(family, {})


def all_decompositions() -> Mapping[str, Decomposition]:
    """The decompositions of all families."""
    return {name: each for family in families() for name, each in decompositions(family).items()}


@cache
def families() -> frozenset[str]:
    """The families that have decompositions."""
    modules = iter_modules(import_module(_PACKAGE).__path__)
    return frozenset(module.name for module in modules if not module.name.startswith("_"))
