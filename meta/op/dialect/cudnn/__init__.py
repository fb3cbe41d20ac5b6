"""The cuDNN dialect: NVIDIA's kernels for networks, through its C library and nvidia-cudnn-frontend. Optional.

cuDNN is loaded when an operator first runs on a GPU. `settings` holds the options of users.
"""

from __future__ import annotations

from meta.backend.cudnn import settings as settings
from meta.ir.expr import CallInfo
from meta.op.dispatch import Dialect, Implementation, Kernel


def _probe() -> str | None:
    from meta.backend.cuda import driver

    reason = driver.probe()
    if reason:
        return reason
    from meta.backend.cudnn import loader  # machines without CUDA do without it

    return loader.probe()


def _kernel(implementation: Implementation, call: CallInfo) -> Kernel:
    from meta.backend.cudnn.kernel import kernel

    return kernel(implementation.payload, call)


DIALECT = Dialect("cudnn", frozenset({"cuda"}), 15, _probe, _kernel)
