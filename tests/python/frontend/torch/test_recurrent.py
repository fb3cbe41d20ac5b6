"""Recurrent layers of exported programs and files, whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import meta
from meta.frontend.torch import examine, from_exported, load

pytestmark = pytest.mark.filterwarnings("ignore:.*_flat_weights")  # torch's export, about torch's own modules

KINDS: dict[str, Any] = {
    "lstm": lambda: nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True),
    "lstm with projections": lambda: nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True, proj_size=2),
    "lstm with projections and no bias": lambda: nn.LSTM(4, 3, proj_size=2, bias=False),
    "gru": lambda: nn.GRU(4, 3, 2),
    "rnn_tanh": lambda: nn.RNN(4, 3, bidirectional=True, bias=False),
    "rnn_relu": lambda: nn.RNN(4, 3, nonlinearity="relu"),
}
X = torch.linspace(-1, 1, 40, dtype=torch.float64).sin().reshape(2, 5, 4)


def tensors(value: Any) -> list[Any]:
    return [t for each in value for t in tensors(each)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("kind", KINDS)
def test_results_and_gradients_are_torchs(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = KINDS[kind]().double()
    program = torch.export.export(module, (X,))
    operator = kind.partition(" ")[0]
    assert [use.name for use in examine(program) if operator in use.name] == [f"aten.{operator}.input"]
    torch.export.save(program, tmp_path / "layer.pt2")
    expected = tensors(module(X))
    model = load(tmp_path / "layer.pt2")
    result = tensors(model(meta.array(X.numpy())))
    for y, reference in zip(result, expected, strict=True):
        np.testing.assert_allclose(y.detach().numpy(), reference.detach().numpy(), rtol=1e-9, atol=1e-12)
    meta.sum(result[0] * result[0]).backward()
    expected[0].square().sum().backward()
    gradients = dict(model.named_parameters())
    for name, p in module.named_parameters():
        np.testing.assert_allclose(gradients[name].grad.numpy(), p.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_a_compiled_layer_has_one_body() -> None:
    """Any number of steps: the program loops."""
    torch.manual_seed(0)
    module = nn.LSTM(4, 3).double()
    model = from_exported(torch.export.export(module, (X.transpose(0, 1).contiguous(),)))
    assert str(model.module).count("tanh(") <= 2
    x = meta.array(X.transpose(0, 1).numpy())
    result, expected = meta.vm.compile(model)(x), module(X.transpose(0, 1))
    for y, each in zip(tensors(result), tensors(expected), strict=True):
        np.testing.assert_allclose(y.numpy(), each.detach().numpy(), rtol=1e-9, atol=1e-12)
