"""The cuDNN dialect: NVIDIA's kernels for networks, through its C library and nvidia-cudnn-frontend. Optional.

Nothing of cuDNN is loaded before an operator meets a tensor on a GPU. `settings` has what users may choose.
"""

from __future__ import annotations

from meta.backend.cudnn import settings as settings
from meta.op.dispatch import CallInfo, Dialect, Implementation, Kernel

BELOW_TVM = 8
"""The plevel of operators for which TVM's kernels measured faster, or join others in programs (docs/gpu.md)."""


def _probe() -> str | None:
    from meta.backend.cudnn.library import probe

    return probe()


def _made(implementation: Implementation, call: CallInfo) -> Kernel:
    from meta.backend.cudnn.kernel import kernel

    return kernel(implementation.payload, call)


DIALECT = Dialect("cudnn", frozenset({"cuda"}), 15, _probe, _made)
