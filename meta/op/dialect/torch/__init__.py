"""The torch dialect: ATen kernels through DLPack, for operators where MKL, oneDNN or cuBLAS are faster. Optional."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from meta.backend.functions import Specialised, take_inputs
from meta.device import Device
from meta.errors import KernelError, MetaError, install_hint, raised
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType, flat_types, promoted_dtype
from meta.op.dispatch import Dialect, Implementation, Kernel
from meta.op.implementation import refuse_real


def _probe() -> str | None:
    return None if find_spec("torch") else f"torch is not installed; install it: {install_hint('torch')}"


def _kernel(implementation: Implementation, call: CallInfo) -> Kernel:
    from meta.backend.torch.bridge import kernel

    return kernel(implementation.payload, call)


def _private_memory(on: Device) -> Callable[[], AbstractContextManager[Any]]:
    from meta.backend.torch.bridge import private_memory

    return private_memory(on)


DIALECT = Dialect("torch", frozenset({"cpu", "cuda"}), 12, _probe, _kernel, _private_memory, complex=True)


Function = Callable[..., Any]
"""Takes the arguments of an operator in schema order, tensors as torch's, and returns the result."""


def complex_only(table: Mapping[str, str | Callable[[Any], Function]], *, promote: bool = False) -> None:
    """Implement operators for complex calls, for which TVM has no kernels: by the name of a function of torch, or by
    `torch -> function`, which is called for the first such call. Real calls do not import torch.

    promote: whether operands are cast to their common dtype first, as numbers of meta promote."""
    for name, source in table.items():
        DIALECT.implement(name, Specialised(_returning(source, promote)), accepts=refuse_real)


def vectorised(
    table: Mapping[str, str | Callable[[Any], Function]], *, takes_complex: bool = False, promote: bool = False
) -> None:
    """Implement elementwise operators by functions of torch with `out` whose kernels for the CPU have vector
    instructions, where TVM's kernels call the C library number by number: for float32 and float64, from the size on
    that meta.op.work has. Functions are given as for `complex_only`.

    takes_complex: also complex calls, on any device.  promote: as for `complex_only`."""
    accepts = _refuse_scalar_real if takes_complex else _refuse_scalar
    for name, source in table.items():
        DIALECT.implement(name, Specialised(_vectorised(source, promote)), accepts=accepts)


def _vectorised(source: str | Callable[[Any], Function], promote: bool) -> Callable[[CallInfo], Callable[..., None]]:
    def build(call: CallInfo) -> Callable[..., None]:
        if call.complex_dtype():
            return _returning(source, promote)(call)
        function = _function(import_module("torch"), source)
        return lambda *tensors: function(*tensors[:-1], out=tensors[-1])

    return build


def _refuse_scalar_real(call: CallInfo) -> str | None:
    return None if call.complex_dtype() else _refuse_scalar(call)


def _refuse_scalar(call: CallInfo) -> str | None:
    types = [*call.args, *call.outputs()]
    if call.device.kind != "cpu":
        return "for the CPU: TVM's kernels for GPUs call fast functions"
    if not all(isinstance(t, TensorType) and t.is_static and t.dtype in _VECTORS for t in types):
        return f"for tensors of known sizes of {' and '.join(_VECTORS)}"
    return "for operands of one dtype" if len({t.dtype for t in types}) > 1 else None


_VECTORS = ("float32", "float64")


def _returning(source: str | Callable[[Any], Function], promote: bool) -> Callable[[CallInfo], Callable[..., None]]:
    def build(call: CallInfo) -> Callable[..., None]:
        torch: Any = import_module("torch")
        function = _function(torch, source)
        counts = [_tensor_count(arg) for arg in call.args]
        # torch subtracts no bool.
        args = [int(arg) if promote and isinstance(arg, bool) else arg for arg in call.args]
        casts = _casts(torch, call) if promote else None
        inputs_count = sum(counts)

        def run(*tensors: Any) -> None:
            inputs = iter(tensors[:inputs_count])
            if casts is not None:
                inputs = (x if to is None else x.to(to) for x, to in zip(inputs, casts, strict=True))
            try:
                result = function(*[take_inputs(arg, n, inputs) for arg, n in zip(args, counts, strict=True)])
            except MetaError:
                raise
            except Exception as error:
                raise raised(KernelError, call.op.name, "its torch implementation", error) from error
            results = result if isinstance(result, (tuple, list)) else (result,)
            for out, value in zip(tensors[inputs_count:], results, strict=True):
                out.copy_(value)

        return run

    return build


def _function(torch: Any, source: str | Callable[[Any], Function]) -> Function:
    if not isinstance(source, str):
        return source(torch)
    for name in source.split("."):
        torch = getattr(torch, name)
    return torch


def _tensor_count(arg: Any) -> int:
    return len(flat_types((arg,)))


def _casts(torch: Any, call: CallInfo) -> list[Any]:
    """For each operand the dtype of torch that it is cast to, None if it has it."""
    operands = [arg for arg, declared in zip(call.args, call.op.schema.args, strict=True) if declared.is_tensor]
    common = promoted_dtype(*operands)
    return [None if t.dtype == common else getattr(torch, common) for t in call.tensors()]
