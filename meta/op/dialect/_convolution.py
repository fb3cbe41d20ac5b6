"""How much work a convolution is, and from how much on calling a library for it pays."""

from __future__ import annotations

from math import prod
from typing import Any, Final

from meta.op.dispatch import CallInfo, too_small

_KERNEL_AND_RESULT: Final = {"": (1, 2), "dx": (0, 1), "dw": (2, 1), "transpose": (1, 0)}
"""Which of the operands and the result are kernel and result of the convolution, by the end of the operator's name."""
_WORTH: Final = {
    "cpu": {"": 1_000_000, "dx": 1_000_000, "dw": 200_000, "transpose": 1_000_000},
    "cuda": {"": 2_500_000, "dx": 1_000_000, "dw": 100_000, "transpose": 1_000_000},
}
"""Multiplications below which TVM's kernels cost less, by kind of device. On the CPU torch takes 3 to 9 times as long
for the result and its gradient by the input. On CUDA TVM takes 12 us, a call of cuDNN 18 and one of torch 50. TVM's
gradients by the kernel (dw) add over the batch in one thread."""


def too_little(call: CallInfo) -> str | None:
    """Why a convolution is not worth calling a library."""
    suffix = call.op.name.partition("_")[2]
    tensors = (*call.tensors(), *call.outputs())
    if not all(t.is_static for t in tensors):
        return None
    kernel, result = _KERNEL_AND_RESULT[suffix]
    size: Any = tensors[result].size
    window: Any = prod(tensors[kernel].shape[1:])  # type: ignore[arg-type]
    return too_small(size * window, _WORTH[call.device.kind][suffix], "multiplications")
