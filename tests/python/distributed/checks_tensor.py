"""Checks that processes with parts of parameters train as one process does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import meta
from meta import distributed, nn
from meta.distributed import shard
from tests.python.distributed import training
from tests.python.distributed.models import FEATURES, GPT, LAYERS, NETWORKS, VOCABULARY, tokens
from tests.python.distributed.training import (
    RANKS,
    STEPS,
    Training,
    assert_equal_training,
    interpreted,
    kernels,
    of_one_process,
    values_of,
)


class Recurrent(meta.Model):
    """A loop and statistics of the batch, which compute with whole operands."""

    def build(self) -> None:
        self.embedding, self.layer = nn.Embedding(VOCABULARY, FEATURES), nn.LSTM(FEATURES, 8, batch_first=True)
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, VOCABULARY)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.layer(self.embedding(x))[0].reshape(-1, 8)))


MODELS: dict[str, tuple[Callable[..., Any], Callable[[Any, str], tuple[Any, Any]], Mapping[str, Any]]] = {
    **{name: (network.model, network.batch, network.plan) for name, network in NETWORKS.items()},
    "recurrent": (Recurrent, tokens, {"layer.*": shard(0), "head.*": shard(0), "norm.w": shard(0)}),
    "dropout": (lambda: GPT(0.2, 1), tokens, LAYERS | {"positions.w": shard(1)}),
}


def new_step(model: str, optimizer: str, dtype: str, **options: Any) -> Any:
    return training.new_step(MODELS[model][0], optimizer, dtype, **options)


def part_of(x: Any, mesh: Any) -> Any:
    """The part of a batch that the ranks of one position along "dp" share."""
    return meta.array(np.split(x, mesh.sizes["dp"], 0)[mesh.rank("dp")] if mesh is not None else x)


RUNNERS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "eager": lambda step: step, "interpreted": interpreted,
    "compiled": lambda step: meta.vm.compile(step, device="cpu"),
}  # fmt: skip


def losses(model: str, step: Any, dtype: str, mesh: Any, how: str) -> list[float]:
    """The losses of a few steps, means over the ranks."""
    run, generator, values = RUNNERS[how](step), np.random.default_rng(1), list[float]()
    meta.random.seed(7)
    for _ in range(STEPS):
        x, y = MODELS[model][1](generator, dtype)
        loss = run(part_of(x, mesh), part_of(y, mesh))
        values.append((loss if mesh is None else distributed.all_reduce(loss, "mean")).item())
    return values


def compare(
    model: str, optimizer: str, dtype: str, wrap: Callable[[Any, Any], Any], mesh: Any, how: str, **options: Any
) -> None:
    """Losses and parameters of a wrapped step equal those of one process."""
    what = f"tensor {model} {optimizer} {dtype} {options}"
    with kernels(model):
        one = of_one_process(what, partial(_training_of_one, model, optimizer, dtype, **options))
        step = wrap(new_step(model, optimizer, dtype, **options), MODELS[model][2])
        values = losses(model, step, dtype, mesh, how)
        assert_equal_training(step, values, one, dtype, what)


def _training_of_one(model: str, optimizer: str, dtype: str, **options: Any) -> Training:
    step = new_step(model, optimizer, dtype, **options)
    values = losses(model, step, dtype, None, "eager")
    return values, values_of(step.model)


def grid() -> Any:
    return distributed.DeviceMesh({"dp": RANKS // 2, "tp": 2}, device="cpu")


def _parallel(mesh: Any, then: Callable[[Any], Any] = lambda step: step) -> Callable[[Any, Any], Any]:
    """Tensor parallelism over one axis, and something else over the other."""
    return lambda step, plan: then(distributed.tensor_parallel(plan, mesh["tp"])(step))


def check_two_tensor_parallel() -> None:
    mesh = grid()
    compare("mlp", "adamw", "float64", _parallel(mesh), mesh, "compiled", clip_norm=0.1)
    compare("mlp", "sgd", "float64", _parallel(mesh), mesh, "eager", accumulate=2)
    compare("mlp", "sgd", "float64", _parallel(mesh), mesh, "interpreted", accumulate=2)
    compare("recurrent", "sgd", "float64", _parallel(mesh), mesh, "interpreted")
    compare("dropout", "sgd", "float64", _parallel(mesh), mesh, "compiled")


def check_four_data_and_tensor_parallel() -> None:
    mesh = grid()
    wrap = _parallel(mesh, distributed.data_parallel(mesh["dp"], bucket_bytes=1))
    compare("mlp", "sgd", "float64", wrap, mesh, "interpreted", clip_norm=0.1)
    compare("mlp", "sgd", "float64", wrap, mesh, "compiled", accumulate=2)


def check_four_zero_and_tensor_parallel() -> None:
    mesh = grid()
    for stage in 2, 3:
        wrap = _parallel(mesh, distributed.zero(stage, mesh["dp"], bucket_bytes=1))
        compare("mlp", "adamw", "float64", wrap, mesh, "interpreted", clip_norm=0.1)
        compare("gpt", "sgd", "float64", wrap, mesh, "interpreted", clip_norm=0.5)


def _saved_and_loaded(wraps: list[Callable[[Any, Any], Any]], mesh: Any, name: str) -> None:
    """Each wrapped step continues from the checkpoint of the one before, as that one does itself."""
    path, plan = Path(os.environ["CHECKPOINTS"], name), MODELS["mlp"][2]
    for i, wrap in enumerate(wraps):
        step = wrap(new_step("mlp", "adamw", "float64"), plan)
        losses("mlp", step, "float64", mesh, how="eager")
        distributed.save(path, step)
        expected = losses("mlp", step, "float64", mesh, how="eager")
        for other in step, wraps[i - 1](new_step("mlp", "adamw", "float64"), plan):
            distributed.load(path, other)
            np.testing.assert_allclose(losses("mlp", other, "float64", mesh, how="eager"), expected, 1e-9)


def check_two_parts_are_saved_as_wholes() -> None:
    mesh = grid()
    for name in "parts", "parts.safetensors":
        _saved_and_loaded([_parallel(mesh), lambda step, plan: distributed.zero(1)(step)], mesh, name)


def check_four_shards_of_parts_are_saved_as_wholes() -> None:
    mesh = grid()
    zeros = [_parallel(mesh, distributed.zero(stage, mesh["dp"])) for stage in (2, 3)]
    _saved_and_loaded([*zeros, lambda step, plan: distributed.data_parallel(mesh["dp"])(step)], mesh, "parts")
