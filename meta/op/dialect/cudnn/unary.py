"""Activations by the C API."""

from __future__ import annotations

from typing import Any, Final

from meta.backend.cudnn import library
from meta.backend.cudnn.descriptors import activation, factor, tensor
from meta.backend.cudnn.handle import handles
from meta.backend.cudnn.kernel import Maker, Run, product, unfit
from meta.op.dialect.cudnn import BELOW_TVM, DIALECT
from meta.op.dispatch import CallInfo

_MODES: Final = {"sigmoid": 0, "relu": 1, "tanh": 2}
"""cudnnActivationMode_t by operator."""


def _forward(mode: int) -> Maker:
    def make(call: CallInfo) -> Run:
        (x,) = call.args
        described, kind = tensor(x.dtype, (1, 1, 1, product(x.shape))), activation(mode)
        one, zero = factor(1.0, x.dtype), factor(0.0, x.dtype)
        current, activate, d = handles(call.device), library.functions().cudnnActivationForward, described.pointer

        def run(x: Any, out: Any, _: Any = described) -> None:
            activate(current().pointer, kind.pointer, one, d, x.data_ptr(), zero, d, out.data_ptr())

        return run

    return make


def _backward(mode: int) -> Maker:
    def make(call: CallInfo) -> Run:
        y, _ = call.args
        described, kind = tensor(y.dtype, (1, 1, 1, product(y.shape))), activation(mode)
        one, zero = factor(1.0, y.dtype), factor(0.0, y.dtype)
        current, activate, d = handles(call.device), library.functions().cudnnActivationBackward, described.pointer

        def run(y: Any, dy: Any, out: Any, _: Any = described) -> None:
            # x decides nothing that y does not: where relu is 0, sigmoid and tanh by y alone.
            at = y.data_ptr()
            activate(
                current().pointer, kind.pointer, one, d, at, d, dy.data_ptr(), d, at, zero, d, out.data_ptr()
            )  # fmt: skip

        return run

    return make


for _name, _mode in _MODES.items():
    DIALECT.implement(_name, _forward(_mode), plevel=BELOW_TVM, accepts=unfit)
    DIALECT.implement(f"{_name}_dx", _backward(_mode), plevel=BELOW_TVM, accepts=unfit)
