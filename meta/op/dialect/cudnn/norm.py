"""Batch norm by the C API; layer norm by nvidia-cudnn-frontend."""

from __future__ import annotations

from typing import Any, Final

from meta._generated import limits
from meta.backend.cuda import driver as cuda
from meta.backend.cudnn import layer_norm, loader
from meta.backend.cudnn.descriptors import Descriptor, factor, tensor
from meta.backend.cudnn.handle import handle_getter
from meta.backend.cudnn.kernel import Run, around, constant_vector, unsupported_tensors
from meta.dtype import accumulation_dtype
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType
from meta.op.dialect.cudnn import DIALECT

_SPATIAL: Final = 1
"""The mode that adds in floating point. The "persistent" one is up to twice as fast but may add in integers, and then
overflows on values that are large but finite."""
_PARAMETERS: Final = ("running_mean", "running_var", "w", "b", "mean", "invstd")


def unsupported(call: CallInfo) -> str | None:
    """Why cuDNN's batch norm does not take the arguments, or None."""
    reason = unsupported_tensors(call)
    if reason:
        return reason
    args = call.bind()
    x: TensorType = args["x"]
    for name in _PARAMETERS:
        value = args.get(name)
        if isinstance(value, TensorType) and value.dtype != accumulation_dtype(x.dtype):
            return f"{name} is {value.dtype}: cuDNN takes {accumulation_dtype(x.dtype)} beside {x.dtype}"
    return None


def _describe(x: TensorType, axis: int) -> tuple[Descriptor, Descriptor]:
    """Descriptors of x and of a tensor with one element per channel. A matrix (rows, channels) is
    described as one image with channels last if it has many rows, else as images of one element: each is slow for the
    other."""
    before, channels, after = around(x.shape, axis)
    if after == 1 and before > limits.CHANNELS_LAST_NORM_ROWS:
        size = before * channels
        data = tensor(x.dtype, (1, channels, before, 1), (size, 1, channels, channels))
    else:
        data = tensor(x.dtype, (before, channels, after, 1))
    return data, tensor(accumulation_dtype(x.dtype), (1, channels, 1, 1))


class _ChannelParameters:
    """Parameters with one element per channel: tensors of the call, or constants in place of absent ones."""

    def __init__(self, call: CallInfo, names: tuple[str, ...]) -> None:
        args = call.bind()
        x: TensorType = args["x"]
        self.count = around(x.shape, args["axis"])[1]
        self.dtype = accumulation_dtype(x.dtype)
        self.device = call.device
        self.present = [isinstance(args[name], TensorType) for name in names]
        self.constants = [
            0 if is_present else self._constant(float(name == "w"))
            for name, is_present in zip(names, self.present, strict=True)
        ]

    def _constant(self, value: float) -> int:
        return constant_vector(value, self.count, self.dtype, self.device).data_ptr()

    def addresses(self, tensors: Any) -> list[int]:
        """The addresses of all parameters; `tensors` are the tensors of the call."""
        remaining = iter(tensors)
        return [
            next(remaining).data_ptr() if is_present else constant
            for is_present, constant in zip(self.present, self.constants, strict=True)
        ]


def _train(call: CallInfo) -> Run:
    x, _, _, _, _, momentum, eps, axis = call.args
    descriptors = _describe(x, axis)
    data, channel = (d.pointer for d in descriptors)
    one, zero = factor(1.0, x.dtype), factor(0.0, x.dtype)
    current = handle_getter(call.device)
    parameters = _ChannelParameters(call, ("running_mean", "running_var", "w", "b"))
    normalise = loader.functions().cudnnBatchNormalizationForwardTraining
    size = parameters.count * (8 if parameters.dtype == "float64" else 4)

    def run(x: Any, *rest: Any, _: Any = descriptors) -> None:
        handle = current()
        *tensors, y, new_mean, new_var, mean, invstd = rest
        old_mean, old_var, w, b = parameters.addresses(tensors)
        running_mean, running_var = new_mean.data_ptr(), new_var.data_ptr()
        # cuDNN updates running statistics in place; programs may allocate the new ones separately.
        if running_mean != old_mean:
            cuda.copy(running_mean, old_mean, size, handle.stream)
        if running_var != old_var:
            cuda.copy(running_var, old_var, size, handle.stream)
        normalise(
            handle.pointer, _SPATIAL, one, zero, data, x.data_ptr(), data, y.data_ptr(), channel, w, b,
            momentum, running_mean, running_var, eps, mean.data_ptr(), invstd.data_ptr(),
        )  # fmt: skip

    return run


def _infer(call: CallInfo) -> Run:
    x, _, _, _, _, eps, axis = call.args
    descriptors = _describe(x, axis)
    data, channel = (d.pointer for d in descriptors)
    one, zero = factor(1.0, x.dtype), factor(0.0, x.dtype)
    current = handle_getter(call.device)
    parameters = _ChannelParameters(call, ("running_mean", "running_var", "w", "b"))
    normalise = loader.functions().cudnnBatchNormalizationForwardInference

    def run(x: Any, *rest: Any, _: Any = descriptors) -> None:
        *tensors, y = rest
        mean, var, w, b = parameters.addresses(tensors)
        normalise(
            current().pointer, _SPATIAL, one, zero, data, x.data_ptr(), data, y.data_ptr(), channel, w, b, mean, var,
            eps,
        )  # fmt: skip

    return run


def _backward(call: CallInfo) -> Run:
    _, x, _, _, _, axis = call.args
    descriptors = _describe(x, axis)
    data, channel = (d.pointer for d in descriptors)
    one, zero = factor(1.0, x.dtype), factor(0.0, x.dtype)
    current, parameters = handle_getter(call.device), _ChannelParameters(call, ("w", "mean", "invstd"))
    back = loader.functions().cudnnBatchNormalizationBackward

    def run(dy: Any, x: Any, *rest: Any, _: Any = descriptors) -> None:
        *tensors, dx, dw, db = rest
        w, mean, invstd = parameters.addresses(tensors)
        # cuDNN checks eps but does not read it when mean and invstd are passed.
        back(
            current().pointer, _SPATIAL, one, zero, one, zero, data, x.data_ptr(), data, dy.data_ptr(), data,
            dx.data_ptr(), channel, w, dw.data_ptr(), db.data_ptr(), 1e-5, mean, invstd,
        )  # fmt: skip

    return run


DIALECT.implement("batch_norm_train", _train, accepts=unsupported)
DIALECT.implement("batch_norm_infer", _infer, accepts=unsupported, eager_only=True)
DIALECT.implement("batch_norm_train_dxwb", _backward, accepts=unsupported)
DIALECT.implement("layer_norm", layer_norm.forward, accepts=layer_norm.unsuited, confirm=layer_norm.without_plan)
DIALECT.implement("layer_norm_dx", layer_norm.dx, accepts=layer_norm.unsuited, confirm=layer_norm.without_plan)
DIALECT.implement("layer_norm_dwb", layer_norm.dwb, accepts=layer_norm.unsuited, confirm=layer_norm.without_plan)
DIALECT.implement("layer_norm_train", layer_norm.train, accepts=layer_norm.unsuited, confirm=layer_norm.without_plan)
DIALECT.implement(
    "layer_norm_train_dxwb", layer_norm.train_dxwb, accepts=layer_norm.unsuited_gradients,
    confirm=layer_norm.without_plan,
)  # fmt: skip
DIALECT.implement(
    "layer_norm_dxwb", layer_norm.dxwb, accepts=layer_norm.unsuited_gradients, confirm=layer_norm.without_plan
)
