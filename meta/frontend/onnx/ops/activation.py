"""Activations and dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import meta
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.frontend.onnx.ops._values import axis_of, number

_PLAIN: dict[str, Callable[[Any], Any]] = {
    "Relu": meta.relu, "Sigmoid": meta.sigmoid, "Tanh": meta.tanh, "Softplus": meta.softplus,
    "Softsign": meta.softsign, "HardSwish": meta.hardswish, "Mish": meta.mish,
}  # fmt: skip


def _plain(name: str, function: Callable[[Any], Any]) -> None:
    def convert(node: Node, X: Any) -> Any:
        return function(X)

    row(name)(convert)


for _name, _function in _PLAIN.items():
    _plain(_name, _function)


@row("LeakyRelu")
def leaky_relu(node: Node, X: Any, *, alpha: float = 0.01) -> Any:
    return meta.leaky_relu(X, alpha)


@row("Elu")
def elu(node: Node, X: Any, *, alpha: float = 1.0) -> Any:
    return meta.elu(X, alpha)


@row("Celu", since=12)
def celu(node: Node, X: Any, *, alpha: float = 1.0) -> Any:
    return meta.celu(X, alpha)


_SELU = (1.67326319217681884765625, 1.05070102214813232421875)


@row("Selu")
def selu(node: Node, X: Any, *, alpha: float = _SELU[0], gamma: float = _SELU[1]) -> Any:
    """gamma * (x where x > 0, otherwise alpha * (exp(x) - 1)). The defaults before opset 6 were rounded further."""
    if math.isclose(alpha, _SELU[0], rel_tol=1e-7) and math.isclose(gamma, _SELU[1], rel_tol=1e-7):
        return meta.selu(X)
    return meta.multiply(meta.elu(X, alpha), gamma)


@row("HardSigmoid")
def hard_sigmoid(node: Node, X: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    if math.isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5:
        return meta.hardsigmoid(X)
    return meta.clip(meta.add(meta.multiply(X, alpha), beta), 0.0, 1.0)


@row("ThresholdedRelu", since=10)
def thresholded_relu(node: Node, X: Any, *, alpha: float = 1.0) -> Any:
    return meta.threshold(X, alpha, 0.0)


@row("Gelu", since=20)
def gelu(node: Node, X: Any, *, approximate: str = "none") -> Any:
    return meta.gelu(X, approximate)  # type: ignore[arg-type]  # meta checks the name


@row("Swish", since=24)
def swish(node: Node, X: Any, *, alpha: float = 1.0) -> Any:
    return meta.silu(X) if alpha == 1.0 else meta.multiply(X, meta.sigmoid(meta.multiply(X, alpha)))


@row("SwiGLU", since=28)
def swiglu(node: Node, A: Any, B: Any, *, alpha: float = 1.0) -> Any:
    return meta.multiply(swish(node, A, alpha=alpha), B)


# --- along an axis ---------------------------------------------------------------------------------------------------


def _flattened(function: Callable[..., Any], x: Any, axis: int) -> Any:
    """A function along all axes from `axis` on, as operators before opset 13 apply it."""
    axis = axis % x.ndim if x.ndim and axis != x.ndim else axis
    if axis == x.ndim - 1:
        return function(x, axis)
    rows = math.prod(x.shape[:axis])
    return meta.reshape(function(meta.reshape(x, (rows, math.prod(x.shape[axis:]))), 1), x.shape)


@row("Softmax", since=13)
def softmax(node: Node, input: Any, *, axis: int = -1) -> Any:  # ONNX's name
    return meta.softmax(input, axis_of("Softmax", axis, input.ndim))


@row("Softmax")
def softmax_1(node: Node, input: Any, *, axis: int = 1) -> Any:
    return _flattened(meta.softmax, input, axis)


@row("LogSoftmax", since=13)
def log_softmax(node: Node, input: Any, *, axis: int = -1) -> Any:
    return meta.log_softmax(input, axis_of("LogSoftmax", axis, input.ndim))


@row("LogSoftmax")
def log_softmax_1(node: Node, input: Any, *, axis: int = 1) -> Any:
    return _flattened(meta.log_softmax, input, axis)


def _hardmax(x: Any, axis: int) -> Any:
    return meta.one_hot(meta.argmax(x, axis), x.shape[axis], x.dtype, axis)


@row("Hardmax", since=13)
def hardmax(node: Node, input: Any, *, axis: int = -1) -> Any:
    return _hardmax(input, axis_of("Hardmax", axis, input.ndim))


@row("Hardmax")
def hardmax_1(node: Node, input: Any, *, axis: int = 1) -> Any:
    return _flattened(_hardmax, input, axis)


# --- dropout ---------------------------------------------------------------------------------------------------------


@row("Dropout", since=12, constants=("ratio", "training_mode"), folds=False)
def dropout(node: Node, data: Any, ratio: Any = None, training_mode: Any = None, *, seed: int | None = None) -> Any:
    """Data and mask; unless training, the data as they are. The draws are meta's own."""
    p = 0.5 if ratio is None else float(number(ratio, "ratio"))
    if training_mode is None or not bool(number(training_mode, "training_mode")) or p == 0.0:
        return data, meta.ones_like(data, "bool")
    return _dropped(data, p, seed)


def _dropped(data: Any, p: float, seed: int | None) -> Any:
    generator = None if seed is None else meta.random.Generator(int(seed))
    draws = meta.random.uniform(data.shape, generator=generator)
    mask = meta.greater_equal(draws, p)
    scaled = meta.multiply(data, 1.0 / (1.0 - p)) if p < 1.0 else meta.zeros_like(data)
    return meta.where(mask, scaled, meta.zeros_like(data)), mask


@row("Dropout", since=7)
def dropout_7(node: Node, data: Any, *, ratio: float = 0.5) -> Any:
    """For inference only."""
    return data, meta.ones_like(data, "bool" if node.version >= 10 else data.dtype)


@row("Dropout")
def dropout_1(node: Node, data: Any, *, ratio: float = 0.5, is_test: int = 0) -> Any:
    if not is_test:
        refuse(node, "is_test is 0", "1", "convert the model to opset 13")
    return data, meta.ones_like(data)
