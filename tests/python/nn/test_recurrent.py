"""Recurrent layers: states that are passed on, dropout between layers, programs, and errors. That they equal torch's is
tested in test_against_torch.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.errors import ArgumentError

torch = pytest.importorskip("torch", reason="the layers are compared with torch's")

from tests.python.nn.pairs import (  # noqa: E402  # torch is needed first
    Row,
    assert_equal_gradients,
    assert_equal_results,
    backward,
    inputs_of,
    pair,
)

DEEP = {"num_layers": 2, "bidirectional": True}


def test_states_are_passed_on() -> None:
    ours, theirs = pair(Row("LSTM", (3, 4), (), DEEP))
    (x, h, c), (t, th, tc) = inputs_of(Row("LSTM", (), ((5, 2, 3), (4, 2, 4), (4, 2, 4))))
    y, last = ours(x, (h, c))
    ty, tlast = theirs(t, (th, tc))
    assert_equal_results((y, *last), (ty, *tlast))
    backward((y, *last))
    backward((ty, *tlast))
    assert_equal_gradients(ours, theirs, [x, h, c], [t, th, tc])


def test_a_sequence_in_two_parts_equals_the_whole() -> None:
    model = nn.GRU(3, 4)
    x = meta.array(np.random.default_rng(0).standard_normal((6, 2, 3)), dtype="float32")
    whole, last = model(x)
    first, state = model(x[:2])
    second, again = model(x[2:], state)
    np.testing.assert_allclose(np.concatenate([first.detach(), second.detach()]), whole.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(again.detach(), last.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_compiled_training_steps_equal_torch(name: str) -> None:
    case = Row(name, (3, 4), ((2, 5, 3),), DEEP | {"batch_first": True})
    ours, theirs = pair(case)
    xs, ts = inputs_of(case)
    y, t = meta.vm.compile(ours)(*xs), theirs(*ts)
    assert_equal_results(y, t)
    backward(y)
    backward(t)
    assert_equal_gradients(ours, theirs, xs, ts)


def test_dropout_between_layers() -> None:
    x = meta.ones((4, 30, 3))
    model = nn.LSTM(3, 50, 2, dropout=0.9)
    assert np.abs(model(x)[0].detach().numpy() - model(x)[0].detach().numpy()).max() > 1e-3
    model.infer_mode()
    np.testing.assert_array_equal(model(x)[0], model(x)[0])
    one = nn.LSTM(3, 5, 1, dropout=0.9)
    np.testing.assert_array_equal(one(x)[0].detach(), one(x)[0].detach())


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda: nn.LSTM(3, 4)(meta.ones((5, 2, 3)), (meta.ones((2, 4)), meta.ones((2, 4)))),
         r"\[LSTM\] the state has shapes \(2, 4\), \(2, 4\); expected 2 of shape \(1, 2, 4\)"),
        (lambda: nn.GRU(3, 4, 0), r"\[GRU\] num_layers is 0; expected at least 1"),
        (lambda: nn.LSTMCell(3, 0), r"\[LSTMCell\] input_size is 3, hidden_size is 0; expected positive sizes"),
        (lambda: nn.RNN(3, 4, nonlinearity="elu"), r"\[RNN\] nonlinearity is 'elu'; expected \"tanh\" or \"relu\""),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_refuses(use: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        use()


def test_a_program_has_one_step_whatever_the_length() -> None:
    model = nn.LSTM(3, 4)
    short, long = (model.ir(meta.ones((length, 2, 3))).count("\n") for length in (2, 150))
    assert short == long


def test_long_sequences_are_taken_apart_in_steps() -> None:
    ours, theirs = pair(Row("RNN", (3, 4), ()))
    (x,), (t,) = inputs_of(Row("RNN", (), ((37, 1, 3),)))
    y, ty = ours(x)[0], theirs(t)[0]
    assert_equal_results(y, ty)
    backward(y)
    backward(ty)
    assert_equal_gradients(ours, theirs, [x], [t])


@pytest.mark.parametrize("compiled", [False, True])
def test_states_keep_their_dtype_in_mixed_precision(compiled: bool) -> None:
    model, x = nn.LSTM(3, 4), meta.ones((5, 2, 3))
    reference = model(x)[0].detach().numpy()
    run = meta.vm.compile(model, passes=meta.passes.auto_cast("bfloat16")) if compiled else model
    with meta.amp.autocast("bfloat16"):
        y, (_, c) = run(x)
    assert y.dtype == c.dtype == "float32"
    difference = np.abs(y.detach().numpy() - reference).max()
    assert 0 < difference < 0.02
