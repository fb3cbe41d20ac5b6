"""Recurrent layers, whole: torch decomposes them into as many calls as sequences have steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.errors import NotSupportedError
from meta.frontend.torch.aten._row import rows
from meta.frontend.torch.aten.backward import forward
from meta.nn.recurrent import Step, gru_step, lstm_step, recurrent_layers, relu_step, tanh_step

rows({
    # The hidden states, and the last hidden and cell states.
    "lstm": lambda input, hx, params, *rest: _layers(lstm_step, input, hx, params, *rest),
    "gru": lambda input, hx, params, *rest: _layers(gru_step, input, (hx,), params, *rest),
    "rnn_tanh": lambda input, hx, params, *rest: _layers(tanh_step, input, (hx,), params, *rest),
    "rnn_relu": lambda input, hx, params, *rest: _layers(relu_step, input, (hx,), params, *rest),
    # The hidden and the cell state.
    "lstm_cell": lambda input, hx, *weights, **biases: _step(lstm_step, input, hx, *weights, **biases),
    "gru_cell": lambda input, hx, *weights, **biases: _step(gru_step, input, (hx,), *weights, **biases)[0],
    "rnn_tanh_cell": lambda input, hx, *weights, **biases: _step(tanh_step, input, (hx,), *weights, **biases)[0],
    "rnn_relu_cell": lambda input, hx, *weights, **biases: _step(relu_step, input, (hx,), *weights, **biases)[0],
}, whole=False)  # fmt: skip


def _layers(
    step: Step, x: Tensor, states: Sequence[Any], params: Any, has_biases: Any, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """The hidden states, and the last states.

    params: of each direction of each layer: weights of inputs and of states, with `has_biases` their biases too; last
        the weights of a projection of the hidden state, where there are as many."""
    if not isinstance(has_biases, bool) or not isinstance(params, (list, tuple)):
        raise NotSupportedError("torch", "a recurrent layer has packed sequences", "padded ones, or torch's operators")
    flat: list[Any] = list(params)
    directions, least = 1 + bidirectional, 4 if has_biases else 2
    count = len(flat) // max(num_layers * directions, 1)
    if len(flat) != num_layers * directions * count or count - least not in (0, 1):
        raise NotSupportedError("torch", f"a recurrent layer has {len(flat)} parameters",
                                f"{least} for each layer and direction, and one more for a projection")  # fmt: skip
    groups = [flat[i : i + count] for i in range(0, len(flat), count)]
    parameters = [_parameters(group, has_biases, count > least) for group in groups]
    step = step if count == least else _projected(step)
    between = (lambda x: forward("dropout")(x, dropout, True)) if train and dropout else None
    x = meta.swap_axis(x, 0, 1) if batch_first else x
    y, last = recurrent_layers(step, x, tuple(states), parameters, directions, between)
    return meta.swap_axis(y, 0, 1) if batch_first else y, *last


def _parameters(group: Sequence[Any], has_biases: bool, has_projection: bool) -> tuple[Any, Any, Any, Any]:
    """Weight and bias of the inputs' projection, of the states'; with a projection, the latter's weight is a pair."""
    w, u = group[:2]
    b, d = group[2:4] if has_biases else (None, None)
    return w, b, (u, group[-1]) if has_projection else u, d


def _projected(step: Step) -> Step:
    """A step whose hidden state is projected. Its weight `u` is a pair: of the states' projection, of this one."""

    def projected(state: Any, inputs: Any, u: Any, d: Any) -> tuple[Any, ...]:
        hidden, *rest = step(state, inputs, u[0], d)
        return meta.dense(hidden, u[1]), *rest

    return projected


# --- cells -----------------------------------------------------------------------------------------------------------


def _step(
    step: Step, input: Tensor, states: Sequence[Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> tuple[Any, ...]:
    """The states after one step."""
    return tuple(step(tuple(states), meta.dense(input, w_ih, b_ih), w_hh, b_hh))
