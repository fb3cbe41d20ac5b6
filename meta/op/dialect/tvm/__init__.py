"""The TVM dialect: TE computes, schedules by pattern, and kernels compiled (and cached on disk) as they are needed.

The families register their computes:

    @compute("softmax")
    def softmax(x, axis):
        return topi.nn.softmax(x, axis)

Everything that they share and that needs no operator is in meta.backend.tvm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from meta.backend.tvm.compute import Compute, TEImplementation
from meta.op.dispatch import CallInfo, Checker, Dialect, Implementation, Kernel
from meta.op.registry import get


def _probe() -> str | None:
    return None if find_spec("tvm") else "apache-tvm is not installed"


def _kernel_of(implementation: Implementation, call: CallInfo) -> Kernel:
    from meta.backend.tvm.shape_generic import kernel

    return kernel(implementation.payload, call)


DIALECT = Dialect("tvm", frozenset({"cpu", "cuda"}), 10, _probe, _kernel_of)


def compute(
    op: str, *, plevel: int | None = None, accepts: Checker | None = None, **facts: Any
) -> Callable[[Compute], Compute]:
    """Register the decorated function as the TE compute of `op`; `facts` are fields of TEImplementation."""

    def register(function: Compute) -> Compute:
        implementation = TEImplementation(function, source=_source(op, function), **facts)
        DIALECT.implement(op, implementation, plevel=plevel, accepts=accepts)
        return function

    return register


def _source(op: str, function: Compute) -> str:
    """The file that decides what the compute is: that of the operator's family here, else that of the function."""
    family = Path(__file__).with_name(f"{get(op).family}.py")
    return str(family) if family.is_file() else getattr(getattr(function, "__code__", None), "co_filename", "")


def elementwise(table: Mapping[str, Callable[..., Any]], *, constants: tuple[float, ...] = ()) -> None:
    """Register `function(*operands, *attributes)` for each operator: operands are expressions of one dtype, the common
    one of the arguments (float32 for halves; the result's where that is floating and they are not), attributes follow
    as they are. The expression that comes back is cast to the dtype of the result."""
    from meta.backend.tvm.te.elementwise import per_element

    for name, function in table.items():
        tensors = [arg.is_tensor for arg in get(name).schema.args]
        compute(name, constants=constants)(per_element(name, function, tensors))
