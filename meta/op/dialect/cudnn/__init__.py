"""The cuDNN dialect: NVIDIA's kernels for networks, through its C library and nvidia-cudnn-frontend. Optional.

Nothing of cuDNN is loaded before an operator meets a tensor on a GPU. `settings` has what users may choose.
"""

from __future__ import annotations

from types import ModuleType

from meta._lazy import submodule
from meta.op.dispatch import CallInfo, Dialect, Implementation, Kernel

BELOW_TVM = 8
"""The plevel of operators for which TVM's kernels measured faster, or join others in programs (docs/gpu.md)."""


def _probe() -> str | None:
    from meta.op.dialect.cudnn._library import probe

    return probe()


def _made(implementation: Implementation, call: CallInfo) -> Kernel:
    from meta.op.dialect.cudnn._kernel import kernel

    return kernel(implementation, call)


DIALECT = Dialect("cudnn", frozenset({"cuda"}), 15, _probe, _made)


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
