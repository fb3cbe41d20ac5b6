"""The TVM dialect: TE computes, schedules by pattern, and kernels compiled (and cached on disk) as they are needed.

Each family registers its computes:

    compute = Registrar(__file__).compute

    @compute("softmax")
    def softmax(x, axis):
        return topi.nn.softmax(x, axis)

Everything that they share and that needs no operator is in meta.backend.tvm. Elementwise operators without a compute
have the formula of their decomposition.

Kernels of the families are cached by the sources of the families, so that a cached one runs without TVM's compiler.
Computes that other code registers are cached by what they compute: their closures, globals and helper modules may
change between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from meta.backend.tvm.compute import Compute, TEImplementation
from meta.ir.expr import CallInfo
from meta.op.decomposition import decompositions
from meta.op.dispatch import Checker, Dialect, Implementation, Kernel
from meta.op.dispatch import implementation as implementation_of
from meta.op.registry import get
from meta.records import record


def _probe() -> str | None:
    return None if find_spec("tvm") else "apache-tvm is not installed"


def _kernel_of(implementation: Implementation, call: CallInfo) -> Kernel:
    from meta.backend.tvm.shape_generic import kernel

    payload = implementation.payload
    most = getattr(payload, "most_joined", 0)
    if 0 < most < len(call.args[0]):
        from meta.op.joins import join_in_parts

        return join_in_parts(call, most, _tvm_kernel)
    return kernel(payload, call)


def _tvm_kernel(call: CallInfo) -> Kernel:
    chosen = implementation_of(call.op, "tvm")
    assert chosen is not None
    return _kernel_of(chosen, call)


def _derived(family: str) -> dict[str, TEImplementation]:
    """Computes of elementwise operators by their decompositions."""
    names = [name for name in decompositions(family) if get(name).pattern in ("elemwise", "broadcast")]
    if not names:
        return {}
    from meta.op import formulas

    return {name: TEImplementation(formulas.compute(name), source=formulas.SOURCES) for name in names}


DIALECT = Dialect("tvm", frozenset({"cpu", "cuda"}), 10, _probe, _kernel_of, derived=_derived)


@record
class Registrar:
    """Registers TE computes. source: the file of a family here, whose contents identify its kernels on disk; "" for
    computes from elsewhere."""

    source: str = ""

    def compute(
        self, op: str, *, plevel: int | None = None, accepts: Checker | None = None,
        prefers_channels_last: Callable[[CallInfo], bool] | None = None, **facts: Any,
    ) -> Callable[[Compute], Compute]:  # fmt: skip
        """Register the decorated function as the TE compute of `op`; `facts` are fields of TEImplementation."""

        def register(function: Compute) -> Compute:
            payload = TEImplementation(function, source=self.source, **facts)
            DIALECT.implement(op, payload, plevel=plevel, accepts=accepts, prefers_channels_last=prefers_channels_last)
            return function

        return register

    def elementwise(
        self, table: Mapping[str, Callable[..., Any]], *, constants: tuple[float, ...] = (), bounds: bool = False
    ) -> None:
        """Register `function(*operands, *attributes)` for each operator: operands are expressions of one dtype, the
        common one of the arguments (float32 for halves; the result's where that is floating and they are not),
        attributes follow as they are, with `bounds` rounded to the dtype of the first operand. The expression that
        comes back is cast to the dtype of the result."""
        from meta.op.formulas import PerElement

        for name, function in table.items():
            are_tensors = tuple(arg.is_tensor for arg in get(name).schema.args)
            self.compute(name, constants=constants)(PerElement(name, function, are_tensors, bounds))


compute = Registrar().compute
elementwise = Registrar().elementwise
