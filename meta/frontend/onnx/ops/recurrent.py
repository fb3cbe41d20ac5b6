"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.errors import TypeInferenceError
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.functional._checks import as_dtype

Activation = Callable[[Any], Any]


def _thresholded(x: Tensor, alpha: float, _: float) -> Any:
    return meta.where(meta.greater_equal(x, alpha), x, meta.zeros_like(x))


_ACTIVATIONS: dict[str, tuple[Callable[[Any, float, float], Any], float | None, float | None]] = {
    "relu": (lambda x, a, b: meta.relu(x), None, None),
    "tanh": (lambda x, a, b: meta.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: meta.sigmoid(x), None, None),
    "affine": (lambda x, a, b: meta.add(meta.multiply(x, a), b), 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: meta.leaky_relu(x, a), 0.01, None),
    "thresholdedrelu": (_thresholded, 1.0, None),
    "scaledtanh": (lambda x, a, b: meta.multiply(meta.tanh(meta.multiply(x, b)), a), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: meta.clip(meta.add(meta.multiply(x, a), b), 0.0, 1.0), 0.2, 0.5),
    "elu": (lambda x, a, b: meta.elu(x, a), 1.0, None),
    "softsign": (lambda x, a, b: meta.softsign(x), None, None),
    "softplus": (lambda x, a, b: meta.softplus(x), None, None),
}
"""Functions of x, alpha and beta, and the defaults of alpha and beta; None where a function does not use it."""


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float], clip: float | None) -> Activation:
    """The next activation of a node, which takes its alpha and beta from the lists."""
    if name.lower() not in _ACTIVATIONS:
        raise TypeInferenceError("", f"activation {name!r}", ", ".join(_ACTIVATIONS))
    function, alpha, beta = _ACTIVATIONS[name.lower()]
    a = 0.0 if alpha is None else next(alphas, alpha)
    b = 0.0 if beta is None else next(betas, beta)
    if clip is None:
        return lambda x: function(x, a, b)
    return lambda x: function(meta.clip(x, -clip, clip), a, b)


@dataclass(frozen=True, slots=True)
class _RecurrentLayer:
    """A node's inputs and attributes that all kinds share.

    x: (time, batch, features).  lengths: of each example; None for all steps.  layout: 1 if the batch comes first."""

    x: Any
    w: Any
    r: Any
    b: Any
    lengths: Any
    directions: tuple[str, ...]
    activations: tuple[tuple[Activation, ...], ...]
    layout: int

    @property
    def hidden(self) -> int:
        return self.r.shape[2]

    def initial(self, state: Any, direction: int) -> Any:
        """The first state (batch, hidden) of a direction."""
        if state is None:
            return meta.zeros((self.x.shape[1], self.hidden), self.x.dtype, self.x.device)
        return meta.select(state, 1 if self.layout else 0, direction)

    def weights(self, direction: int) -> tuple[Any, Any]:
        return meta.select(self.w, 0, direction), meta.select(self.r, 0, direction)

    def biases(self, direction: int) -> tuple[Any, Any]:
        """Biases of the inputs and of the state, None without."""
        if self.b is None:
            return None, None
        joined = meta.select(self.b, 0, direction)
        return tuple(meta.split(joined, 2, 0))


def _layer(
    node: Node, x: Tensor, w: Tensor, r: Any, b: Any, lengths: Any, names: Sequence[str], default: Sequence[str],
    alphas: Any, betas: Any, clip: float | None, direction: str, layout: int,
) -> _RecurrentLayer:  # fmt: skip
    directions = {"forward": ("forward",), "reverse": ("reverse",), "bidirectional": ("forward", "reverse")}
    if direction not in directions:
        refuse(node, f"direction is {direction!r}", "forward, reverse or bidirectional")
    ways = directions[direction]
    activations = list(names or ()) or list(default) * len(ways)
    if len(activations) > len(default) * len(ways):
        activations = activations[: len(default) * len(ways)]
    if len(activations) != len(default) * len(ways) or w.shape[0] != len(ways):
        raise TypeInferenceError(node.op_type, f"{len(activations)} activations and weights of shape {w.shape}",
                                 f"{len(default)} activations and weights for each direction, {len(ways)}")  # fmt: skip
    a, c = iter(alphas or ()), iter(betas or ())
    functions = [_activation(name, a, c, clip) for name in activations]
    groups = tuple(tuple(functions[i : i + len(default)]) for i in range(0, len(functions), len(default)))
    steps = meta.transpose(x, (1, 0, 2)) if layout else x
    return _RecurrentLayer(steps, w, r, b, lengths, ways, groups, layout)


def _run(
    layer: _RecurrentLayer, step: Callable[[int], Any], inputs: Callable[[int], Any], states: Sequence[Any]
) -> Any:
    """All steps of all directions: Y, and the last states.

    step(direction): (states, inputs of a step) -> new states; the first one is the result.
    inputs(direction): what the steps take of x, (time, batch, ...)."""
    results: list[Any] = []
    last: list[list[Any]] = []
    for i, way in enumerate(layer.directions):
        start = tuple(layer.initial(s, i) for s in states)
        carry, y = _scanned(layer, step(i), inputs(i), start, way == "reverse")
        results.append(y)
        last.append(list(carry))
    y = meta.stack(results, 2 if layer.layout else 1)
    if layer.layout:
        y = meta.transpose(y, (1, 0, 2, 3))
    ends = (meta.stack(list(group), 1 if layer.layout else 0) for group in zip(*last, strict=True))
    return (y, *ends)


def _scanned(layer: _RecurrentLayer, step: Any, inputs: Any, start: tuple[Any, ...], reverse: bool) -> Any:
    """The last states and all results. Steps past the end of an example keep its state and give 0."""
    if layer.lengths is None:

        def whole(carry: Any, x: Tensor) -> Any:
            new = step(carry, x)
            return new, new[0]

        return meta.scan(whole, start, inputs, reverse=reverse)
    lengths = meta.expand_dims(as_dtype(layer.lengths, "int64"), 1)

    def limited(carry: Any, xs: Any) -> Any:
        x, place = xs
        new, valid = step(carry, x), meta.less(place, lengths)
        new_carry = tuple(meta.where(valid, n, old) for n, old in zip(new, carry, strict=True))
        return new_carry, meta.where(valid, new[0], meta.zeros_like(new[0]))

    places = meta.reshape(meta.arange(0, layer.x.shape[0]), (-1, 1))
    return meta.scan(limited, start, (inputs, places), reverse=reverse)


def _projected(layer: _RecurrentLayer, direction: int, *biases: Any) -> Any:
    """x @ w^T and the biases, for all steps at once."""
    w, _ = layer.weights(direction)
    y = meta.matmul(layer.x, w, transpose_b=True)
    for bias in biases:
        y = y if bias is None else meta.add(y, bias)
    return y


# --- the three kinds -------------------------------------------------------------------------------------------------


@row("RNN", since=7)
def rnn(
    node: Node, X: Tensor, W: Tensor, R: Tensor, B: Tensor | None = None, sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None, *, activations: Sequence[str] = (), activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (), clip: float | None = None, direction: str = "forward",
    hidden_size: int | None = None, layout: int = 0,
) -> Any:  # fmt: skip
    """h = f(x @ W^T + h @ R^T + biases)."""
    layer = _layer(node, X, W, R, B, sequence_lens, activations, ("Tanh",), activation_alpha, activation_beta, clip,
                   direction, layout)  # fmt: skip

    def step(i: int) -> Any:
        (f,), (_, r) = layer.activations[i], layer.weights(i)
        return lambda carry, x: (f(meta.add(x, meta.matmul(carry[0], r, transpose_b=True))),)

    return _run(layer, step, lambda i: _projected(layer, i, *layer.biases(i)), (initial_h,))


@row("GRU", since=7)
def gru(
    node: Node, X: Any, W: Any, R: Any, B: Any = None, sequence_lens: Any = None, initial_h: Tensor | None = None, *,
    activations: Any = (), activation_alpha: Any = (), activation_beta: Any = (), clip: float | None = None,
    direction: str = "forward", hidden_size: int | None = None, layout: int = 0, linear_before_reset: int = 0,
) -> Any:  # fmt: skip
    """Gates z, r and h. linear_before_reset: r multiplies the product with the state and its bias, not the state."""
    layer = _layer(node, X, W, R, B, sequence_lens, activations, ("Sigmoid", "Tanh"), activation_alpha, activation_beta,
                   clip, direction, layout)  # fmt: skip
    size = layer.hidden

    def step(i: int) -> Any:
        (f, g), (_, r) = layer.activations[i], layer.weights(i)
        gates, candidate = meta.split(r, (2 * size,), 0)
        bias = layer.biases(i)[1]
        bias = None if bias is None else meta.split(bias, (2 * size,), 0)[1]

        def advance(carry: Any, x: Tensor) -> Any:
            (h,) = carry
            xz, xr, xh = meta.split(x, 3, 1)
            hz, hr = meta.split(meta.matmul(h, gates, transpose_b=True), 2, 1)
            z, reset = f(meta.add(xz, hz)), f(meta.add(xr, hr))
            if linear_before_reset:
                linear = meta.dense(h, candidate, bias) if bias is not None else meta.dense(h, candidate)
                new = g(meta.add(xh, meta.multiply(reset, linear)))
            else:
                new = g(meta.add(xh, meta.matmul(meta.multiply(reset, h), candidate, transpose_b=True)))
            return (meta.add(meta.multiply(meta.subtract(1.0, z), new), meta.multiply(z, h)),)

        return advance

    def inputs(i: int) -> Any:
        mine, other = layer.biases(i)
        if other is not None and linear_before_reset:
            gates, inner = meta.split(other, (2 * size,), 0)
            other = meta.concatenate([gates, meta.zeros_like(inner)], 0)
        return _projected(layer, i, mine, other)

    return _run(layer, step, inputs, (initial_h,))


@row("LSTM", since=7)
def lstm(
    node: Node, X: Any, W: Any, R: Any, B: Any = None, sequence_lens: Any = None, initial_h: Any = None,
    initial_c: Any = None, P: Any = None, *, activations: Any = (), activation_alpha: Any = (),
    activation_beta: Any = (), clip: float | None = None, direction: str = "forward", hidden_size: int | None = None,
    input_forget: int = 0, layout: int = 0,
) -> Any:  # fmt: skip
    """Gates i, o, f and c. P: weights of the cell's state in the gates i, o and f. input_forget: f is 1 - i."""
    layer = _layer(node, X, W, R, B, sequence_lens, activations, ("Sigmoid", "Tanh", "Tanh"), activation_alpha,
                   activation_beta, clip, direction, layout)  # fmt: skip

    def step(i: int) -> Any:
        (f, g, h), (_, r) = layer.activations[i], layer.weights(i)
        peepholes = (None, None, None) if P is None else meta.split(meta.select(P, 0, i), 3, 0)

        def seen(gate: Any, cell: Any, weight: Tensor | None) -> Any:
            return gate if weight is None else meta.add(gate, meta.multiply(weight, cell))

        def advance(carry: Any, x: Any) -> Any:
            state, cell = carry
            xi, xo, xf, xc = meta.split(meta.add(x, meta.matmul(state, r, transpose_b=True)), 4, 1)
            entry = f(seen(xi, cell, peepholes[0]))
            forget = meta.subtract(1.0, entry) if input_forget else f(seen(xf, cell, peepholes[2]))
            new = meta.add(meta.multiply(forget, cell), meta.multiply(entry, g(xc)))
            return meta.multiply(f(seen(xo, new, peepholes[1])), h(new)), new

        return advance

    return _run(layer, step, lambda i: _projected(layer, i, *layer.biases(i)), (initial_h, initial_c))
