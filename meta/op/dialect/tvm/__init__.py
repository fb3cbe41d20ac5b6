"""The TVM dialect: TE computes, schedules by pattern, and kernels compiled (and cached on disk) as they are needed."""

from __future__ import annotations

from importlib.util import find_spec

from meta.op.dispatch import CallInfo, Dialect, Implementation, Kernel


def _probe() -> str | None:
    return None if find_spec("tvm") else "apache-tvm is not installed"


def _kernel_of(implementation: Implementation, call: CallInfo) -> Kernel:
    from meta.op.dialect.tvm._generic import kernel

    return kernel(implementation, call)


DIALECT = Dialect("tvm", frozenset({"cpu", "cuda"}), 10, _probe, _kernel_of)
