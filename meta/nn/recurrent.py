"""Recurrent layers and cells: RNN, LSTM (S. Hochreiter, J. Schmidhuber, "Long Short-Term Memory", 1997) and GRU (K. Cho
et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014).

Names, shapes and the order of gates are torch's: (input, forget, cell, output) and (reset, update, new).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, cast

import meta
from meta import random
from meta._generated.methods import Tensor
from meta.errors import ArgumentError
from meta.model.model import Model
from meta.nn.dropout import Dropout
from meta.nn.init import fan_in_bound

State = tuple[Any, ...]
"""The hidden state h, for an LSTM followed by the cell state c; each (batch, hidden_size)."""


Step = Callable[[State, Any, Any, Any], State]
"""(state, the projection of the input with its bias, weight and bias of the state's projection) -> the next state."""


def tanh_step(state: State, projected: Tensor, u: Tensor, d: Tensor) -> State:
    return (meta.tanh(projected + meta.dense(state[0], u, d)),)


def relu_step(state: State, projected: Tensor, u: Tensor, d: Tensor) -> State:
    return (meta.relu(projected + meta.dense(state[0], u, d)),)


def lstm_step(state: State, projected: Tensor, u: Tensor, d: Tensor) -> State:
    h, c = state
    i, f, g, o = meta.split(projected + meta.dense(h, u, d), 4, -1)
    c = meta.sigmoid(f) * c + meta.sigmoid(i) * meta.tanh(g)
    return meta.sigmoid(o) * meta.tanh(c), c


def gru_step(state: State, projected: Tensor, u: Tensor, d: Tensor) -> State:
    (h,) = state
    r, z, n = meta.split(projected, 3, -1)
    r_h, z_h, n_h = meta.split(meta.dense(h, u, d), 3, -1)
    n = meta.tanh(n + meta.sigmoid(r + r_h) * n_h)
    return (n + meta.sigmoid(z + z_h) * (h - n),)


def recurrent_layers(
    step: Step, x: Tensor, states: State, parameters: Sequence[tuple[Any, Any, Any, Any]], directions: int,
    between: Callable[[Any], Any] | None = None,
) -> tuple[Any, State]:  # fmt: skip
    """The hidden states of the last layer at every step, and the last states of all layers.

    x: (length, batch, features).  states: the first ones, each (layers * directions, batch, hidden_size).
    parameters: of each direction of each layer: weight and bias of the inputs' projection, of the states'.
    between: what is applied to the inputs of layers but the first."""
    starts = [[meta.squeeze(h, 0) for h in meta.split(state, len(parameters), 0)] for state in states]
    last: list[State] = []
    for first in range(0, len(parameters), directions):
        x = between(x) if first and between is not None else x
        ys: list[Any] = []
        for i in range(first, first + directions):
            y, state = _one_direction(step, x, tuple(start[i] for start in starts), parameters[i], reverse=i > first)
            ys.append(y)
            last.append(state)
        x = ys[0] if len(ys) == 1 else meta.concatenate(ys, -1)
    return x, tuple(meta.stack([state[i] for state in last], 0) for i in range(len(states)))


def _one_direction(
    step: Step, x: Tensor, state: State, parameters: tuple[Any, Any, Any, Any], *, reverse: bool
) -> tuple[Any, State]:
    """The hidden state at every step, and the last state. The projection of all inputs is one product."""
    w, b, u, d = parameters

    def advance(state: State, projected: Tensor) -> tuple[State, Any]:
        new = step(state, projected, u, d)
        # A state keeps its dtype in mixed precision.
        new = tuple(after.to(dtype=before.dtype) for after, before in zip(new, state, strict=True))
        return new, new[0]

    last, hidden = meta.scan(advance, state, meta.dense(x, w, b), reverse=reverse)
    return hidden, last


class _Gated(Model):
    """The common base of layers and cells: parameters, and one step."""

    _input_size = ("input_size", -1)
    gates: ClassVar[int]
    """Rows of the parameters, in units of hidden_size."""
    states: ClassVar[int] = 1
    input_size: int
    hidden_size: int

    def _create(self, suffix: str, input_size: int, bias: bool) -> None:
        """Parameters, uniform in +-1/sqrt(hidden_size)."""
        if input_size < 1 or self.hidden_size < 1:
            problem = f"input_size is {input_size}, hidden_size is {self.hidden_size}"
            raise ArgumentError(type(self).__name__, problem, "positive sizes")
        rows, bound = self.gates * self.hidden_size, fan_in_bound(self.hidden_size)
        shapes = {"weight_ih": (rows, input_size), "weight_hh": (rows, self.hidden_size)}
        shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self, name + suffix, random.uniform(shapes[name], -bound, bound) if name in shapes else None)

    def _parameters(self, suffix: str) -> tuple[Any, Any, Any, Any]:
        """Weights and biases of the projections of inputs, and of states."""
        w, b = getattr(self, f"weight_ih{suffix}"), getattr(self, f"bias_ih{suffix}")
        u, d = getattr(self, f"weight_hh{suffix}"), getattr(self, f"bias_hh{suffix}")
        return w, b, u, d

    def _initial(self, x: Tensor, batch: Any, hx: Tensor | None, leading: tuple[int, ...]) -> State:
        """The given state, or zeros; each of shape (*leading, batch, hidden_size)."""
        shape = (*leading, batch, self.hidden_size)
        if hx is None:
            return tuple(meta.zeros(shape, x.dtype, x.device) for _ in range(self.states))
        initial: tuple[Any, ...] = (hx,) if self.states == 1 else tuple(hx)
        if len(initial) != self.states or any(tuple(h.shape) != shape for h in initial):
            problem = f"the state has shapes {', '.join(str(tuple(h.shape)) for h in initial)}"
            raise ArgumentError(type(self).__name__, problem, f"{self.states} of shape {shape}")
        return initial

    @abstractmethod
    def _step(self, state: State, projected: Tensor, u: Tensor, d: Tensor) -> State:
        """The next state. projected: the projection of the input, with its bias; (batch, gates * hidden_size)."""


class _TanhStep(_Gated):
    gates = 1
    nonlinearity: Literal["tanh", "relu"]

    def _choose(self, nonlinearity: Literal["tanh", "relu"]) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(type(self).__name__, f"nonlinearity is {nonlinearity!r}", '"tanh" or "relu"')
        self.nonlinearity = nonlinearity

    def _step(self, state: State, projected: Tensor, u: Tensor, d: Tensor) -> State:
        return (tanh_step if self.nonlinearity == "tanh" else relu_step)(state, projected, u, d)


class _LSTMStep(_Gated):
    gates, states = 4, 2

    def _step(self, state: State, projected: Tensor, u: Tensor, d: Tensor) -> State:
        return lstm_step(state, projected, u, d)


class _GRUStep(_Gated):
    gates = 3

    def _step(self, state: State, projected: Tensor, u: Tensor, d: Tensor) -> State:
        return gru_step(state, projected, u, d)


class _Layers(_Gated):
    """Layers of one or two directions over sequences."""

    def _create_layers(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
    ) -> None:
        if num_layers < 1:
            raise ArgumentError(type(self).__name__, f"num_layers is {num_layers}", "at least 1")
        self.input_size, self.hidden_size = input_size, hidden_size
        self.num_layers, self.batch_first = num_layers, batch_first
        self.directions = ("", "_reverse") if bidirectional else ("",)
        self.dropout = Dropout(dropout) if dropout else None
        for layer in range(num_layers):
            for direction in self.directions:
                size = hidden_size * len(self.directions) if layer else input_size
                self._create(f"_l{layer}{direction}", size, bias)

    def forward(self, x: Tensor, hx: Tensor | None = None) -> tuple[Any, Any]:
        """The hidden states of the last layer at every step, and the last states of all layers.

        x: (length, batch, input_size), with batch_first (batch, length, input_size), or without a batch.
        hx: the first states, (num_layers * directions, batch, hidden_size), of an LSTM a pair (h, c); None for zeros.
        Directions follow each other within a layer. Raises ArgumentError for other shapes."""
        batched = x.ndim == 3
        if not batched:
            x = meta.expand_dims(x, 1)
            hx = _batched(hx, 1)
        elif self.batch_first:
            x = meta.swap_axis(x, 0, 1)
        y, last = self._all_layers(x, hx)
        if not batched:
            y, last = meta.squeeze(y, 1), tuple(meta.squeeze(h, 1) for h in last)
        elif self.batch_first:
            y = meta.swap_axis(y, 0, 1)
        return y, last[0] if self.states == 1 else last

    def _all_layers(self, x: Tensor, hx: Tensor | None) -> tuple[Any, State]:
        suffixes = [f"_l{layer}{direction}" for layer in range(self.num_layers) for direction in self.directions]
        states = self._initial(x, x.shape[1], hx, (len(suffixes),))
        parameters = [self._parameters(suffix) for suffix in suffixes]
        return recurrent_layers(self._step, x, states, parameters, len(self.directions), self.dropout)


def _batched(hx: Tensor | None, axis: int) -> Any:
    """A state without a batch as a batch of one."""
    if isinstance(hx, (tuple, list)):
        return tuple(meta.expand_dims(h, axis) for h in cast("State", hx))
    return None if hx is None else meta.expand_dims(hx, axis)


class RNN(_TanhStep, _Layers):
    """h' = tanh(w x + b + u h + d), or relu, over sequences; see LSTM for the arguments."""

    def build(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        self._choose(nonlinearity)
        self._create_layers(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)


class _GatedLayers(_Layers):
    def build(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        self._create_layers(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)


class LSTM(_LSTMStep, _GatedLayers):
    """Long short-term memory over sequences; returns the hidden states of every step and the last states (h, c).

    num_layers: layers, each over the hidden states of the one before.  bias: whether there are bias_ih and bias_hh.
    batch_first: whether sequences are (batch, length, features), and not (length, batch, features).
    dropout: probability with which inputs of layers but the first are dropped in train mode.
    bidirectional: whether a second direction goes from the last step to the first; its hidden states follow the first
        direction's along the last axis.
    Layer i has weight_ih_li, weight_hh_li, bias_ih_li and bias_hh_li, of its second direction with `_reverse`, uniform
    in +-1/sqrt(hidden_size)."""


class GRU(_GRUStep, _GatedLayers):
    """Gated recurrent units over sequences; returns the hidden states of every step and the last state. Arguments and
    parameters are the same as for LSTM."""


class _Cell(_Gated):
    def build(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        self.input_size, self.hidden_size = input_size, hidden_size
        self._create("", input_size, bias)

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Any:
        """The next state: h, of an LSTM the pair (h, c).

        x: (batch, input_size), or without a batch.  hx: the state, None for zeros. Raises ArgumentError for states of
        other shapes."""
        batched = x.ndim == 2
        if not batched:
            x, hx = meta.expand_dims(x, 0), _batched(hx, 0)
        w, b, u, d = self._parameters("")
        state = self._step(self._initial(x, x.shape[0], hx, ()), meta.dense(x, w, b), u, d)
        state = state if batched else tuple(meta.squeeze(h, 0) for h in state)
        return state[0] if self.states == 1 else state


class RNNCell(_TanhStep, _Cell):
    """One step of RNN: h' = tanh(w x + b + u h + d), or relu."""

    def build(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: Literal["tanh", "relu"] = "tanh"
    ) -> None:
        self._choose(nonlinearity)
        super().build(input_size, hidden_size, bias)


class LSTMCell(_LSTMStep, _Cell):
    """One step of LSTM: the next (h, c), with parameters weight_ih, weight_hh, bias_ih and bias_hh."""


class GRUCell(_GRUStep, _Cell):
    """One step of GRU: the next h, with parameters weight_ih, weight_hh, bias_ih and bias_hh."""
