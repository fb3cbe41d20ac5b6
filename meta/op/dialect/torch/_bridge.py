"""Kernels from functions on torch tensors.

A payload is `function(*args in schema order, *, out)`: it gets torch tensors that share memory with the operands and
writes its results into `out` (a torch tensor, or a tuple of them).
"""

from __future__ import annotations

from typing import Any

import torch

from meta.op.dispatch import CallInfo, Implementation, Kernel, flat_types


def kernel(implementation: Implementation, call: CallInfo) -> Kernel:
    """The payload as `kernel(*inputs, *outputs)` on raw tensors."""
    function = implementation.payload
    count = len(call.tensors())
    counts = [len(flat_types((arg,))) if isinstance(arg, tuple) else int(bool(flat_types((arg,)))) for arg in call.args]
    attributes = call.args

    def run(*raw: Any) -> None:
        tensors = [torch.from_dlpack(x) for x in raw]
        inputs = iter(tensors[:count])
        args = [_fill(a, n, inputs) for a, n in zip(attributes, counts, strict=True)]
        outs = tensors[count:]
        with torch.inference_mode():
            function(*args, out=outs[0] if len(outs) == 1 else tuple(outs))

    return run


def _fill(arg: Any, count: int, inputs: Any) -> Any:
    if not count:
        return arg
    return [next(inputs) for _ in range(count)] if isinstance(arg, tuple) else next(inputs)
