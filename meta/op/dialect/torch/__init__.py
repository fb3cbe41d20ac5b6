"""The torch dialect: ATen kernels through DLPack, for the operators where MKL, oneDNN or cuBLAS win. Optional."""

from __future__ import annotations

from importlib.util import find_spec

from meta.op.dispatch import CallInfo, Dialect, Implementation, Kernel


def _probe() -> str | None:
    return None if find_spec("torch") else "torch is not installed"


def _kernel(implementation: Implementation, call: CallInfo) -> Kernel:
    from meta.op.dialect.torch._bridge import kernel

    return kernel(implementation, call)


DIALECT = Dialect("torch", frozenset({"cpu", "cuda"}), 12, _probe, _kernel)
