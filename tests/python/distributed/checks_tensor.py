"""Checks that processes with parts of parameters train as one process does."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import meta
from meta import distributed, nn
from meta.distributed import shard
from meta.interpreter.run import run as interpret
from meta.random.generator import default_generator
from tests.python.distributed import training
from tests.python.distributed.checks_curves import ResNet18, pictures
from tests.python.distributed.training import (
    BATCH,
    MLP,
    RANKS,
    STEPS,
    Training,
    assert_equal_training,
    of_one_process,
    values_of,
    vectors,
)

VOCABULARY, LENGTH, FEATURES = 12, 3, 8


class Encoder(meta.Model):
    """Layers with residuals, normalised after each, and attention to all positions, as in BERT; the scores are products
    with the table of the embedding."""

    def build(self, dropout: float = 0.0, layers: int = 2, is_causal: bool = False, norm_first: bool = False) -> None:
        self.embedding = nn.Embedding(VOCABULARY, FEATURES)
        self.positions = nn.Embedding(LENGTH, FEATURES)
        self.layers = [
            nn.TransformerEncoderLayer(FEATURES, 4, 16, dropout=dropout, batch_first=True, norm_first=norm_first)
            for _ in range(layers)
        ]
        self.is_causal = is_causal

    def forward(self, x: Any) -> Any:
        h = self.embedding(x) + self.positions(meta.arange(LENGTH))
        for layer in self.layers:
            h = layer(h, is_causal=self.is_causal)
        return meta.dense(h, self.embedding.w).reshape(-1, VOCABULARY)


class GPT(Encoder):
    """Layers with normalised inputs and causal attention, and a linear layer for the scores of the next token."""

    def build(self, dropout: float = 0.0, layers: int = 2) -> None:
        super().build(dropout, layers, is_causal=True, norm_first=True)
        self.head = nn.Linear(FEATURES, VOCABULARY)

    def forward(self, x: Any) -> Any:
        h = self.embedding(x) + self.positions(meta.arange(LENGTH))
        for layer in self.layers:
            h = layer(h, is_causal=True)
        return self.head(h).reshape(-1, VOCABULARY)


class Recurrent(meta.Model):
    """A loop and statistics of the batch, which compute with whole operands."""

    def build(self) -> None:
        self.embedding, self.layer = nn.Embedding(VOCABULARY, FEATURES), nn.LSTM(FEATURES, 8, batch_first=True)
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, VOCABULARY)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.layer(self.embedding(x))[0].reshape(-1, 8)))


def _tokens(generator: Any, dtype: str) -> tuple[Any, Any]:
    return generator.integers(0, VOCABULARY, (BATCH, LENGTH)), generator.integers(0, VOCABULARY, BATCH * LENGTH)


LAYERS = {
    "layers.*.attention.project.*": shard(0, blocks=3), "layers.*.attention.out.w": shard(1),
    "layers.*.first.*": shard(0), "layers.*.last.w": shard(-1),
}  # fmt: skip
MODELS: dict[str, tuple[Callable[..., Any], Callable[[Any, str], tuple[Any, Any]], dict[str, Any]]] = {
    "mlp": (lambda: MLP(5, 8, 3), vectors, {"layers.layers.0.*": shard(0), "layers.layers.2.w": shard(1)}),
    "bert": (Encoder, _tokens, LAYERS | {"embedding.w": shard(0)}),
    "gpt": (GPT, _tokens, LAYERS | {"embedding.w": shard(0), "head.*": shard(0)}),
    "resnet18": (ResNet18, pictures, {"blocks.layers.*.conv1.w": shard(0), "head.w": shard(1)}),
    "recurrent": (Recurrent, _tokens, {"layer.*": shard(0), "head.*": shard(0), "norm.w": shard(0)}),
    "dropout": (lambda: GPT(0.2, 1), _tokens, LAYERS | {"positions.w": shard(1)}),
}


def new_step(model: str, optimizer: str, dtype: str, **options: Any) -> Any:
    return training.new_step(MODELS[model][0], optimizer, dtype, **options)


def part_of(x: Any, mesh: Any) -> Any:
    """The part of a batch that the ranks of one position along "dp" share."""
    return meta.array(np.split(x, mesh.sizes["dp"], 0)[mesh.rank("dp")] if mesh is not None else x)


def interpreted(step: Any) -> Callable[..., Any]:
    """A step whose program runs operator by operator: what it computes, without compiling it."""
    records: list[Any] = []

    def run(*args: Any) -> Any:
        if not records:
            records.append(step.record(*args))
        (record,) = records
        keys = [(draws.generator or default_generator).draw(count=draws.count) for draws in record.random]
        arrays = [*args, *(x for _, x in record.state), *keys]
        with meta.autograd.no_grad():
            results = interpret(record.module, *arrays)
            for i, changed in record.main.attrs["mutates"].items():
                arrays[changed].update(results[i])
        return results[0]

    return run


RUNNERS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "eager": lambda step: step, "interpreted": interpreted,
    "compiled": lambda step: meta.vm.compile(step, device="cpu"),
}  # fmt: skip


def losses(model: str, step: Any, dtype: str, mesh: Any, how: str) -> list[float]:
    """Of a few steps, means over the ranks."""
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
    compare("bert", "sgd", "float64", _parallel(mesh), mesh, "interpreted")
    compare("recurrent", "sgd", "float64", _parallel(mesh), mesh, "interpreted")
    compare("gpt", "sgd", "float32", _parallel(mesh), mesh, "interpreted", clip_norm=0.5)
    compare("dropout", "sgd", "float64", _parallel(mesh), mesh, "compiled")


def check_two_tensor_parallel_resnet18() -> None:
    mesh = grid()
    for dtype in "float64", "float32":
        compare("resnet18", "slow sgd", dtype, _parallel(mesh), mesh, "interpreted")


def check_four_data_and_tensor_parallel() -> None:
    mesh = grid()
    both = _parallel(mesh, distributed.data_parallel(mesh["dp"], bucket_bytes=1))
    compare("mlp", "sgd", "float64", both, mesh, "interpreted", clip_norm=0.1)
    for model in "gpt", "bert":
        compare(model, "sgd", "float64", both, mesh, "interpreted")
    compare("gpt", "sgd", "float32", both, mesh, "interpreted")
    compare("resnet18", "slow sgd", "float64", _synchronised(both, mesh), mesh, "interpreted")


def _synchronised(wrap: Callable[[Any, Any], Any], mesh: Any) -> Callable[[Any, Any], Any]:
    """With the statistics of all ranks' batches."""

    def wrapped(step: Any, plan: Any) -> Any:
        distributed.sync_batch_norm(step.model, mesh["dp"])
        return wrap(step, plan)

    return wrapped


def check_four_zero_and_tensor_parallel() -> None:
    mesh = grid()
    for stage in 2, 3:
        both = _parallel(mesh, distributed.zero(stage, mesh["dp"], bucket_bytes=1))
        compare("mlp", "adamw", "float64", both, mesh, "interpreted", clip_norm=0.1)
        compare("gpt", "sgd", "float64", both, mesh, "interpreted", clip_norm=0.5)
    compare("bert", "sgd", "float64", both, mesh, "interpreted")
    compare("bert", "sgd", "float32", both, mesh, "interpreted")
    compare("resnet18", "slow sgd", "float64", _synchronised(both, mesh), mesh, "interpreted")


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
