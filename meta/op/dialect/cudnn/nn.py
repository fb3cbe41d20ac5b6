"""softmax, log_softmax and their gradients by the C API: over rows if the axis is the last one, else over channels."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from meta.backend.cudnn import loader
from meta.backend.cudnn.descriptors import Descriptor, factor, tensor
from meta.backend.cudnn.handle import handle_getter
from meta.backend.cudnn.kernel import Payload, Run, around, unsupported_tensors
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType
from meta.op.dialect.cudnn import DIALECT


class _Algorithm(IntEnum):
    """cudnnSoftmaxAlgorithm_t."""

    ACCURATE = 1
    LOG = 2


class _Mode(IntEnum):
    """cudnnSoftmaxMode_t."""

    INSTANCE = 0
    CHANNEL = 1


def _describe(t: TensorType, axis: int) -> tuple[Descriptor, int]:
    """The descriptor of a tensor, and the mode. (Mode "channel" is up to 1000 times slower for rows.)"""
    sizes = around(t.shape, axis)
    return tensor(t.dtype, sizes), _Mode.INSTANCE if sizes[2] == 1 else _Mode.CHANNEL


def _forward(algorithm: int) -> Payload:
    def make(call: CallInfo) -> Run:
        x, axis = call.args
        descriptor, mode = _describe(x, axis)
        one, zero = factor(1.0, x.dtype), factor(0.0, x.dtype)
        current, softmax, d = handle_getter(call.device), loader.functions().cudnnSoftmaxForward, descriptor.pointer

        def run(x: Any, out: Any, _: Any = descriptor) -> None:
            handle = current().pointer
            softmax(handle, algorithm, mode, one, d, x.data_ptr(), zero, d, out.data_ptr())

        return run

    return make


def _backward(algorithm: int) -> Payload:
    def make(call: CallInfo) -> Run:
        y, _, axis = call.args
        descriptor, mode = _describe(y, axis)
        one, zero = factor(1.0, y.dtype), factor(0.0, y.dtype)
        current, softmax, d = handle_getter(call.device), loader.functions().cudnnSoftmaxBackward, descriptor.pointer

        def run(y: Any, dy: Any, out: Any, _: Any = descriptor) -> None:
            handle = current().pointer
            softmax(handle, algorithm, mode, one, d, y.data_ptr(), d, dy.data_ptr(), zero, d, out.data_ptr())

        return run

    return make


for _name, _algorithm in (("softmax", _Algorithm.ACCURATE), ("log_softmax", _Algorithm.LOG)):
    DIALECT.implement(_name, _forward(_algorithm), accepts=unsupported_tensors)
    DIALECT.implement(f"{_name}_dx", _backward(_algorithm), accepts=unsupported_tensors)
