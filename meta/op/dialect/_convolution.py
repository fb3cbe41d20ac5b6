"""How much work a convolution is, and from how much on calling a library for it pays."""

from __future__ import annotations

from math import prod
from typing import Any, Final

from meta.op.dispatch import CallInfo, too_small

_KERNEL_AND_RESULT: Final = {"": (1, 2), "dx": (0, 1), "dw": (2, 1), "transpose": (1, 0)}
"""Which of the operands and the result are kernel and result of the convolution, by the end of the operator's name."""
_WORTH: Final = {"": 2_500_000, "dx": 1_000_000, "dw": 100_000, "transpose": 1_000_000}
"""Multiplications below which TVM's kernels cost less on CUDA: 12 us, where a call of cuDNN takes 18 and one of torch
50. Its gradients by the kernel (dw) add over the batch in one thread."""


def too_little(call: CallInfo) -> str | None:
    """Why a convolution is not worth calling a library.

    On the CPU it always is: TVM's kernels are faster on small problems, too, but built for each shape, which takes as
    long as ten thousand calls of torch."""
    suffix = call.op.name.partition("_")[2]
    tensors = (*call.tensors(), *call.outputs())
    if call.device.kind == "cpu" or not all(t.is_static for t in tensors):
        return None
    kernel, result = _KERNEL_AND_RESULT[suffix]
    size: Any = tensors[result].size
    window: Any = prod(tensors[kernel].shape[1:])  # type: ignore[arg-type]
    return too_small(size * window, _WORTH[suffix], "multiplications")
