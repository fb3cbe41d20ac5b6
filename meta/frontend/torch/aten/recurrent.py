"""Recurrent layers, whole: torch decomposes them into as many calls as sequences have steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta.errors import NotSupportedError
from meta.frontend.torch.aten._row import Rows, into
from meta.frontend.torch.aten.backward import forward
from meta.nn.recurrent import Step, gru_step, lstm_step, recurrent_layers, relu_step, tanh_step

ROWS: Rows = {}


def _layers(
    step: Step, x: Any, states: Sequence[Any], params: Any, has_biases: Any, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """The hidden states, and the last states.

    params: of each direction of each layer: weights of inputs and of states, with `has_biases` their biases too."""
    if not isinstance(has_biases, bool) or not isinstance(params, (list, tuple)):
        raise NotSupportedError("torch", "a recurrent layer has packed sequences", "padded ones, or torch's operators")
    flat: list[Any] = list(params)  # pyright: ignore[reportUnknownArgumentType]
    directions, count = 1 + bidirectional, 4 if has_biases else 2
    if len(flat) != num_layers * directions * count:
        raise NotSupportedError("torch", f"a recurrent layer has {len(flat)} parameters",
                                f"{count} for each layer and direction, without projections")  # fmt: skip
    groups = [flat[i : i + count] for i in range(0, len(flat), count)]
    parameters = [(w, b[0] if b else None, u, b[1] if b else None) for w, u, *b in groups]
    between = (lambda x: forward("dropout")(x, dropout, True)) if train and dropout else None
    x = meta.swap_axis(x, 0, 1) if batch_first else x
    y, last = recurrent_layers(step, x, tuple(states), parameters, directions, between)
    return meta.swap_axis(y, 0, 1) if batch_first else y, *last


@into(ROWS)
def lstm(input: Any, hx: Any, params: Any, *rest: Any) -> Any:
    """The hidden states, and the last hidden and cell states."""
    return _layers(lstm_step, input, hx, params, *rest)


@into(ROWS)
def gru(input: Any, hx: Any, params: Any, *rest: Any) -> Any:
    return _layers(gru_step, input, (hx,), params, *rest)


@into(ROWS)
def rnn_tanh(input: Any, hx: Any, params: Any, *rest: Any) -> Any:
    return _layers(tanh_step, input, (hx,), params, *rest)


@into(ROWS)
def rnn_relu(input: Any, hx: Any, params: Any, *rest: Any) -> Any:
    return _layers(relu_step, input, (hx,), params, *rest)


# --- cells -----------------------------------------------------------------------------------------------------------


def _step(
    step: Step, input: Any, states: Sequence[Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> tuple[Any, ...]:
    """The states after one step."""
    return tuple(step(tuple(states), meta.dense(input, w_ih, b_ih), w_hh, b_hh))


@into(ROWS)
def lstm_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """The hidden and the cell state."""
    return _step(lstm_step, input, hx, w_ih, w_hh, b_ih, b_hh)


@into(ROWS)
def gru_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    return _step(gru_step, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


@into(ROWS)
def rnn_tanh_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    return _step(tanh_step, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


@into(ROWS)
def rnn_relu_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    return _step(relu_step, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]
