"""Parameters that the forward pass writes: ranks would differ, or lose what was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import meta
from meta import distributed, nn
from meta.distributed import Group, shard
from meta.errors import NotSupportedError

PLAN = {"layers.0.w": shard(0)}
WRAPS: dict[str, Callable[[int], Callable[[Any], Any]]] = {
    "zero": lambda ranks: distributed.zero(1, Group("dp", ranks), broadcast=False),
    "zero 3": lambda ranks: distributed.zero(3, Group("dp", ranks), broadcast=False),
    "tensor_parallel": lambda ranks: distributed.tensor_parallel(PLAN, Group("tp", ranks), broadcast=False),
    "data_parallel": lambda ranks: distributed.data_parallel(Group("dp", ranks), broadcast=False),
}
INPUTS = meta.zeros(4, "int64"), meta.zeros(4, "int64")


def _step(model: Any) -> Any:
    return meta.optim.TrainStep(model, meta.optim.SGD(model, 0.1), loss=meta.cross_entropy)


def _limited() -> Any:
    return nn.Sequential(nn.Embedding(12, 8, max_norm=1.0), nn.Linear(8, 4))


@pytest.mark.parametrize("wrap", WRAPS)
def test_rows_that_an_embedding_scales_are_refused(wrap: str) -> None:
    text = rf"\[{wrap.split()[0]}\] the parameter 'layers.0.w' is written in place while the model is called; expected "
    text += (
        r"parameters that only the optimizer writes; write it after the step, or use a layer that does not, such as an "
    )
    text += r"Embedding without max_norm"
    with pytest.raises(NotSupportedError, match=text):
        WRAPS[wrap](2)(_step(_limited())).ir(*INPUTS)


@pytest.mark.parametrize("wrap", ["zero", "zero 3", "tensor_parallel"])
def test_eager_calls_also_refuse_them(wrap: str) -> None:
    with pytest.raises(NotSupportedError, match=r"the parameter 'layers\.0\.w' is written"):
        WRAPS[wrap](1)(_step(_limited()))(*INPUTS)


def test_one_process_may_write_its_parameters() -> None:
    model = _limited()
    with meta.no_grad():
        model.layers[0].w.update(model.layers[0].w * 100.0)
    WRAPS["data_parallel"](1)(_step(model))(*INPUTS)
    assert meta.sum(model.layers[0].w[0] * model.layers[0].w[0]).item() < 2.0


class Replacing(meta.Model):
    def build(self) -> None:
        self.w = meta.ones((4, 8))

    def forward(self, x: Any) -> Any:
        self.w = meta.tanh(self.w)
        return meta.dense(meta.one_hot(x, 8), self.w)


def test_parameters_that_the_model_replaces_are_refused() -> None:
    model = Replacing()
    step = distributed.zero(3, Group("dp", 1), broadcast=False)(_step(model))
    with pytest.raises(NotSupportedError, match="the parameter 'w' is written"):
        step(*INPUTS)
    assert model.w.shape == (32,)
