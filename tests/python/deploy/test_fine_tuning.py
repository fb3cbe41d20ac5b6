"""Adapters of a frozen language model are trained in C: the base in one file, the adapters in another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from benchmarks.deploy.machines import DRIVER, HOST, MACHINES, build, decode, executor_of, run, write_program
from benchmarks.deploy.networks import Case, classes
from tests.python.deploy.programs import require

ENTRIES = {
    "model_type": "llama", "vocab_size": 60, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": True,
}  # fmt: skip
IDS = [classes(24, 60, 0).reshape(2, 12)] * 10


def fine_tuning() -> Any:
    """A training step of adapters of rank 8."""
    meta.random.seed(7)
    model = meta.models.Llama(ENTRIES)
    with meta.no_grad():
        for x in model.parameters():
            x.update(meta.random.normal(x.shape, std=0.2))
    model.lora(rank=8)

    def loss(scores: Any, ids: Any) -> Any:
        return meta.cross_entropy(scores[:, :-1].reshape((-1, 60)), ids[:, 1:].reshape((-1,)))

    return meta.optim.TrainStep(model, meta.optim.AdamW(model, learning_rate=0.01), loss)


@pytest.mark.parametrize("name", ["host", "aarch64"])
def test_adapters_are_trained_and_continue(name: str, tmp_path: Path) -> None:
    machine = MACHINES.get(name, HOST)
    require(machine)
    case = Case(fine_tuning, [(ids, ids) for ids in IDS])
    write_program(tmp_path, "step", executor_of(case, machine.target, machine.cpu), case.calls[0])
    binary = build(tmp_path, machine, DRIVER, ["step"])
    base = (tmp_path / "step.safetensors").read_bytes()
    executor = executor_of(case, None)
    expected = [executor(*map(meta.array, call)).numpy() for call in case.calls]
    losses = [  # the second process continues from the two files
        loss
        for half in (case.calls[:5], case.calls[5:])
        for loss in decode(run(machine, binary, "step", half, trained="trained.safetensors")[0], expected[:5])
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert losses[-1] < losses[0]
    assert (tmp_path / "step.safetensors").read_bytes() == base
    trained = meta.load(tmp_path / "trained.safetensors")
    adapters = {n: x for n, x in trained.items() if n.endswith((".a", ".b"))}
    assert len(adapters) == 8, "a and b of two projections in two layers"
    assert sum(x.nbytes for x in trained.values()) < 0.5 * len(base)
    state = dict(executor.program(*map(meta.array, case.calls[0])).record.state)
    assert trained.keys() <= state.keys()
    for key, x in adapters.items():
        np.testing.assert_allclose(x.numpy(), state[key].detach().numpy(), rtol=1e-2, atol=1e-4, err_msg=key)
