"""Functions of other packages, called by destination passing without Python.

A function that follows tvm-ffi's ABI takes tensors and plain values in some order. bound.ll makes a function of the
inputs and outputs of a kernel from it, which eager calls and compiled programs call alike. What it raises becomes a
KernelError, and so does a value that it returns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from meta.backend.tvm import library, runtime
from meta.errors import KernelError
from meta.records import record


@record
class Position:
    """The place of a tensor among the inputs and outputs of a kernel."""

    index: int


def is_function(value: object) -> bool:
    """Whether a value is a function that follows tvm-ffi's ABI."""
    return isinstance(value, runtime.ffi().Function)


def bind(function: Any, arguments: Sequence[Any], operator: str, what: str) -> Any:
    """`function` as a kernel: `kernel(*inputs, *outputs)` on raw tensors.

    arguments: in the order of `function`: a `Position` for each tensor, other values as they are, texts included.
    what: the function in error texts ("its hub implementation")."""
    convert = runtime.ffi().convert
    values = [ctypes.c_void_p(a.index) if isinstance(a, Position) else convert(a) for a in arguments]
    return _module()["bind"](function, convert(f"{operator}\n{what}"), *values)


def fixed(function: Any, arguments: Sequence[Any]) -> Any:
    """`function` of no arguments, which calls it with these and returns what it returns. Python converts no argument
    then, which takes 40 ns of an allocation."""
    try:
        return _module()["bind"](function, None, *arguments)
    except OSError:  # there is no space for its code
        return partial(function, *arguments)


@cache
def _module() -> Any:
    runtime.load()
    runtime.ffi().register_error("meta.KernelError", _Raised)
    return library.functions()


class _Raised:
    """Makes the KernelError of an error that bound.ll set: tvm-ffi calls a class with the message."""

    def __new__(cls, message: str) -> KernelError:
        operator, _, problem = message.partition("\n")
        return KernelError(operator, problem)
