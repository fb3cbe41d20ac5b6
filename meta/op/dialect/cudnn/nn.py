"""Softmax and its relatives by the C API: channels are the axis that sums to one."""

from __future__ import annotations

from typing import Any, Final

from meta.op.dialect.cudnn import BELOW_TVM, DIALECT, _library
from meta.op.dialect.cudnn._descriptors import factor, tensor
from meta.op.dialect.cudnn._handle import handles
from meta.op.dialect.cudnn._kernel import Maker, Run, around, unfit
from meta.op.dispatch import CallInfo

_ACCURATE: Final = 1
_LOG: Final = 2
_CHANNEL: Final = 1


def _forward(algorithm: int) -> Maker:
    def make(call: CallInfo) -> Run:
        x, axis = call.args
        described = tensor(x.dtype, around(x.shape, axis))
        one, zero = factor(1.0, x.dtype), factor(0.0, x.dtype)
        current, softmax, d = handles(call.device), _library.functions().cudnnSoftmaxForward, described.pointer

        def run(x: Any, out: Any, _: Any = described) -> None:
            handle = current().pointer
            softmax(handle, algorithm, _CHANNEL, one, d, x.data_ptr(), zero, d, out.data_ptr())

        return run

    return make


def _backward(algorithm: int) -> Maker:
    def make(call: CallInfo) -> Run:
        y, _, axis = call.args
        described = tensor(y.dtype, around(y.shape, axis))
        one, zero = factor(1.0, y.dtype), factor(0.0, y.dtype)
        current, softmax, d = handles(call.device), _library.functions().cudnnSoftmaxBackward, described.pointer

        def run(y: Any, dy: Any, out: Any, _: Any = described) -> None:
            handle = current().pointer
            softmax(handle, algorithm, _CHANNEL, one, d, y.data_ptr(), d, dy.data_ptr(), zero, d, out.data_ptr())

        return run

    return make


for _name, _algorithm in (("softmax", _ACCURATE), ("log_softmax", _LOG)):
    DIALECT.implement(_name, _forward(_algorithm), plevel=BELOW_TVM, accepts=unfit)
    DIALECT.implement(f"{_name}_dx", _backward(_algorithm), plevel=BELOW_TVM, accepts=unfit)
