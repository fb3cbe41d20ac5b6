"""Optimizers of ai.onnx.preview.training."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.errors import TypeInferenceError
from meta.frontend.onnx.ops._row import Node, row

_DOMAIN = "ai.onnx.preview.training"


def _groups(node: Node, inputs: tuple[Any, ...], count: int) -> list[tuple[Any, ...]]:
    """For each tensor that is updated: it, its gradient and its states, which come in `count` equal runs."""
    if not inputs or len(inputs) % count:
        raise TypeInferenceError(node.op_type, f"{len(inputs)} tensors", f"a multiple of {count}")
    n = len(inputs) // count
    return list(zip(*(inputs[i * n : (i + 1) * n] for i in range(count)), strict=True))


def _regular(x: Tensor, gradient: Any, coefficient: float) -> Any:
    return meta.add(meta.multiply(x, coefficient), gradient) if coefficient else gradient


def _in_runs(results: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """All new tensors, then all new states of each kind."""
    return tuple(value for run in zip(*results, strict=True) for value in run)


@row(f"{_DOMAIN}::Adagrad")
def adagrad(
    node: Node, R: Tensor, T: Tensor, *inputs: Any, decay_factor: float = 0.0, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> Any:  # fmt: skip
    """J. Duchi et al., 2011. The rate is R / (1 + T * decay_factor)."""
    results: list[tuple[Any, ...]] = []
    for x, gradient, total in _groups(node, inputs, 3):
        rate = meta.divide(R, meta.add(meta.multiply(meta.cast(T, x.dtype), decay_factor), 1.0))
        g = _regular(x, gradient, norm_coefficient)
        new = meta.add(total, meta.multiply(g, g))
        change = meta.divide(meta.multiply(rate, g), meta.add(meta.sqrt(new), epsilon))
        results.append((meta.subtract(x, change), new))
    return _in_runs(results)


@row(f"{_DOMAIN}::Adam")
def adam(
    node: Node, R: Tensor, T: Tensor, *inputs: Any, alpha: float = 0.9, beta: float = 0.999, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> Any:  # fmt: skip
    """D. Kingma and J. Ba, 2014. The rate is corrected for the start, unless T is 0."""
    results: list[tuple[Any, ...]] = []
    for x, gradient, velocity, square in _groups(node, inputs, 4):
        g = _regular(x, gradient, norm_coefficient)
        v = meta.add(meta.multiply(velocity, alpha), meta.multiply(g, 1.0 - alpha))
        h = meta.add(meta.multiply(square, beta), meta.multiply(meta.multiply(g, g), 1.0 - beta))
        step = meta.cast(T, x.dtype)
        lower, upper = (meta.subtract(1.0, meta.power(meta.full_like(step, b), step)) for b in (alpha, beta))
        started = meta.greater(step, 0.0)
        factor = meta.divide(meta.sqrt(upper), meta.where(started, lower, meta.ones_like(lower)))
        rate = meta.where(started, meta.multiply(R, factor), R)
        new = meta.subtract(x, meta.divide(meta.multiply(rate, v), meta.add(meta.sqrt(h), epsilon)))
        results.append((meta.multiply(new, 1.0 - norm_coefficient_post) if norm_coefficient_post else new, v, h))
    return _in_runs(results)


@row(f"{_DOMAIN}::Momentum")
def momentum(
    node: Node, R: Tensor, T: Tensor, *inputs: Any, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> Any:
    """alpha keeps the velocity, beta weighs the gradient from the second step on."""
    if mode not in ("standard", "nesterov"):
        raise TypeInferenceError("Momentum", f"mode is {mode!r}", "standard or nesterov")
    results: list[tuple[Any, ...]] = []
    for x, gradient, velocity in _groups(node, inputs, 3):
        g = _regular(x, gradient, norm_coefficient)
        started = meta.greater(meta.cast(T, x.dtype), 0.0)
        weight = meta.where(started, meta.full_like(started, beta, x.dtype), meta.ones_like(started, x.dtype))
        v = meta.add(meta.multiply(velocity, alpha), meta.multiply(weight, g))
        direction = v if mode == "standard" else meta.add(g, meta.multiply(v, alpha))
        results.append((meta.subtract(x, meta.multiply(R, direction)), v))
    return _in_runs(results)
