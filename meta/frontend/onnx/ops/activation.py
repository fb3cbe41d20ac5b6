"""Activations and dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.frontend.onnx.ops._row import Node, refuse, row, rows
from meta.frontend.onnx.ops._values import axis_of, number

rows({
    "Elu": lambda node, X, *, alpha=1.0: meta.elu(X, alpha),
    "LeakyRelu": lambda node, X, *, alpha=0.01: meta.leaky_relu(X, alpha),
})  # fmt: skip
row("ThresholdedRelu", since=10)(lambda node, X, *, alpha=1.0: meta.threshold(X, alpha, 0.0))
row("Celu", since=12)(lambda node, X, *, alpha=1.0: meta.celu(X, alpha))


@row("Gelu", since=20)
def gelu(node: Node, X: Any, *, approximate: Any = "none") -> Any:
    return meta.gelu(X, approximate)


_SELU = (1.67326319217681884765625, 1.05070102214813232421875)


@row("Selu")
def selu(node: Node, X: Tensor, *, alpha: float = _SELU[0], gamma: float = _SELU[1]) -> Any:
    """gamma * (x where x > 0, otherwise alpha * (exp(x) - 1)). The defaults before opset 6 were rounded further."""
    if math.isclose(alpha, _SELU[0], rel_tol=1e-7) and math.isclose(gamma, _SELU[1], rel_tol=1e-7):
        return meta.selu(X)
    return meta.multiply(meta.elu(X, alpha), gamma)


@row("HardSigmoid")
def hard_sigmoid(node: Node, X: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    if math.isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5:
        return meta.hardsigmoid(X)
    return meta.clip(meta.add(meta.multiply(X, alpha), beta), 0.0, 1.0)


# --- along an axis ---------------------------------------------------------------------------------------------------


def _flattened(function: Callable[..., Any], x: Tensor, axis: int) -> Any:
    """A function along all axes from `axis` on, as operators before opset 13 apply it."""
    axis = axis % x.ndim if x.ndim and axis != x.ndim else axis
    if axis == x.ndim - 1:
        return function(x, axis)
    rows = math.prod(x.shape[:axis])
    return meta.reshape(function(meta.reshape(x, (rows, math.prod(x.shape[axis:]))), 1), x.shape)


rows({
    "Hardmax": lambda node, input, *, axis=1: _flattened(_hardmax, input, axis),
    "LogSoftmax": lambda node, input, *, axis=1: _flattened(meta.log_softmax, input, axis),
    "Softmax": lambda node, input, *, axis=1: _flattened(meta.softmax, input, axis),
})  # fmt: skip
rows({
    "Hardmax": lambda node, input, *, axis=-1: _hardmax(input, axis_of("Hardmax", axis, input.ndim)),
    "LogSoftmax": lambda node, input, *, axis=-1: meta.log_softmax(input, axis_of("LogSoftmax", axis, input.ndim)),
    "Softmax": lambda node, input, *, axis=-1: meta.softmax(input, axis_of("Softmax", axis, input.ndim)),
}, since=13)  # fmt: skip


def _hardmax(x: Tensor, axis: int) -> Any:
    return meta.one_hot(meta.argmax(x, axis), x.shape[axis], x.dtype, axis)


# --- dropout ---------------------------------------------------------------------------------------------------------


@row("Dropout", since=12, constants=("ratio", "training_mode"), folds=False)
def dropout(node: Node, data: Tensor, ratio: Any = None, training_mode: Any = None, *, seed: int | None = None) -> Any:
    """Data and mask; unless training, the data as they are. The draws are meta's own."""
    p = 0.5 if ratio is None else float(number(ratio, "ratio"))
    if training_mode is None or not bool(number(training_mode, "training_mode")) or p == 0.0:
        return data, meta.ones_like(data, "bool")
    return _dropped(data, p, seed)


def _dropped(data: Tensor, p: float, seed: int | None) -> Any:
    generator = None if seed is None else meta.random.Generator(int(seed))
    draws = meta.random.uniform(data.shape, generator=generator)
    mask = meta.greater_equal(draws, p)
    scaled = meta.multiply(data, 1.0 / (1.0 - p)) if p < 1.0 else meta.zeros_like(data)
    return meta.where(mask, scaled, meta.zeros_like(data)), mask


@row("Dropout", since=7)
def dropout_7(node: Node, data: Tensor, *, ratio: float = 0.5) -> Any:
    """For inference only."""
    return data, meta.ones_like(data, "bool" if node.version >= 10 else data.dtype)


@row("Dropout")
def dropout_1(node: Node, data: Tensor, *, ratio: float = 0.5, is_test: int = 0) -> Any:
    if not is_test:
        refuse(node, "is_test is 0", "1", "convert the model to opset 13")
    return data, meta.ones_like(data)
