"""Softmax and its relatives by the C API: what sums to one is a row where the axis is the last one, else channels.
Dropout (`_dropout`) by nvidia-cudnn-frontend."""

from __future__ import annotations

from typing import Any, Final

from meta.backend.cudnn import library
from meta.backend.cudnn.descriptors import Descriptor, factor, tensor
from meta.backend.cudnn.handle import handles
from meta.backend.cudnn.kernel import Maker, Run, around, unfit
from meta.ir.type import TensorType
from meta.op.dialect.cudnn import DIALECT, _dropout
from meta.op.dispatch import CallInfo

_ACCURATE: Final = 1
_LOG: Final = 2
_INSTANCE: Final = 0
_CHANNEL: Final = 1


def _described(t: TensorType, axis: int) -> tuple[Descriptor, int]:
    """The descriptor of a tensor, and the mode: "channel" is up to 1000 times slower for rows."""
    sizes = around(t.shape, axis)
    return tensor(t.dtype, sizes), _INSTANCE if sizes[2] == 1 else _CHANNEL


def _forward(algorithm: int) -> Maker:
    def make(call: CallInfo) -> Run:
        x, axis = call.args
        described, mode = _described(x, axis)
        one, zero = factor(1.0, x.dtype), factor(0.0, x.dtype)
        current, softmax, d = handles(call.device), library.functions().cudnnSoftmaxForward, described.pointer

        def run(x: Any, out: Any, _: Any = described) -> None:
            handle = current().pointer
            softmax(handle, algorithm, mode, one, d, x.data_ptr(), zero, d, out.data_ptr())

        return run

    return make


def _backward(algorithm: int) -> Maker:
    def make(call: CallInfo) -> Run:
        y, _, axis = call.args
        described, mode = _described(y, axis)
        one, zero = factor(1.0, y.dtype), factor(0.0, y.dtype)
        current, softmax, d = handles(call.device), library.functions().cudnnSoftmaxBackward, described.pointer

        def run(y: Any, dy: Any, out: Any, _: Any = described) -> None:
            handle = current().pointer
            softmax(handle, algorithm, mode, one, d, y.data_ptr(), d, dy.data_ptr(), zero, d, out.data_ptr())

        return run

    return make


for _name, _algorithm in (("softmax", _ACCURATE), ("log_softmax", _LOG)):
    DIALECT.implement(_name, _forward(_algorithm), accepts=unfit)
    DIALECT.implement(f"{_name}_dx", _backward(_algorithm), accepts=unfit)

__all__ = ["_dropout"]
