"""Checks that several processes train as one process does with the whole batch."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta import distributed, nn, optim
from meta.errors import ArgumentError, CommunicationError, FileError, NotSupportedError
from tests.python.distributed.training import (
    BATCH,
    MLP,
    OPTIMIZERS,
    RANK,
    RANKS,
    STEPS,
    Training,
    assert_equal_training,
    new_step,
    of_one_process,
    values_of,
    vectors,
)


class Deep(meta.Model):
    """Layers whose weights, apart from those of the last, are gathered again for the backward pass by `zero(3)`, and a
    number that the forward pass writes."""

    def build(self) -> None:
        self.buffer("calls", meta.zeros((), "int64"))
        self.layers = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(5, 5), nn.Tanh())))

    def forward(self, x: Any) -> Any:
        with meta.no_grad():
            self.calls.update(self.calls + 1)
        return self.layers(x)


def _images(generator: Any, dtype: str) -> tuple[Any, Any]:
    return generator.standard_normal((BATCH, 2, 4, 4)).astype(dtype), generator.integers(0, 3, BATCH)


class Normalised(meta.Model):
    def build(self) -> None:
        self.first, self.norm, self.head = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.head(meta.relu(self.norm(self.first(x))).mean((2, 3)))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[Any, str], tuple[Any, Any]]]] = {
    "mlp": (MLP, vectors),
    "deep": (Deep, vectors),
    "normalised": (Normalised, _images),
}


def _step(model: str, optimizer: str, dtype: str, **options: Any) -> Any:
    return new_step(MODELS[model][0], optimizer, dtype, **options)


def _part(x: Any) -> Any:
    return np.split(x, RANKS, 0)[RANK]


def _losses(model: str, step: Any, dtype: str, divided: bool, compiled: bool = False) -> list[float]:
    """The losses of a few steps, means over the ranks. divided: whether each rank is given its part of the batch."""
    run = meta.vm.compile(step, device="cpu") if compiled else step
    generator, losses = np.random.default_rng(1), list[float]()
    for _ in range(STEPS):
        x, y = MODELS[model][1](generator, dtype)
        loss = run(meta.array(_part(x)), meta.array(_part(y))) if divided else run(meta.array(x), meta.array(y))
        losses.append((distributed.all_reduce(loss, "mean") if divided else loss).item())
    return losses


def _compare(wrap: Callable[[Any], Any], cases: list[tuple[str, str, str, bool]], **options: Any) -> None:
    for model, optimizer, dtype, compiled in cases:
        what = f"{model} {optimizer} {dtype} {options}"
        one = of_one_process(what, partial(_training_of_one, model, optimizer, dtype, **options))
        step = wrap(_step(model, optimizer, dtype, **options))
        losses = _losses(model, step, dtype, divided=True, compiled=compiled)
        assert_equal_training(step, losses, one, dtype, what)


def _training_of_one(model: str, optimizer: str, dtype: str, **options: Any) -> Training:
    step = _step(model, optimizer, dtype, **options)
    losses = _losses(model, step, dtype, divided=False)
    return losses, values_of(step.model)


EAGER, COMPILED = ("mlp", "sgd", "float64", False), ("mlp", "adamw", "float64", True)


def check_two_data_parallel() -> None:
    _compare(distributed.data_parallel(), [COMPILED])
    _compare(distributed.data_parallel(bucket_bytes=64), [EAGER], clip_norm=0.1)


def check_two_data_parallel_accumulates_without_communication() -> None:
    from meta.backend.torch.groups import find_group

    group = find_group("test", "world", RANKS)
    for compiled in False, True:
        step = distributed.data_parallel()(_step("mlp", "sgd", "float64", accumulate=2))
        run = meta.vm.compile(step, device="cpu") if compiled else step
        x, y = vectors(np.random.default_rng(1), "float64")
        counts = [group.calls]
        for _ in range(4):
            run(meta.array(_part(x)), meta.array(_part(y)))
            counts.append(group.calls)
        added = np.diff(counts)[2 * compiled :].tolist()
        assert added[-2] == 0, counts
        assert added[-1] > 0, counts
    _compare(distributed.data_parallel(), [EAGER, COMPILED], accumulate=2)


def check_two_zero() -> None:
    _compare(distributed.zero(2), [EAGER], clip_norm=0.1)
    _compare(distributed.zero(3, bucket_bytes=64), [("deep", "adamw", "float64", True)])
    _compare(distributed.zero(3), [EAGER], accumulate=2)


def check_two_zero_divides_the_state() -> None:
    sizes = []
    for stage in 1, 3:
        step = distributed.zero(stage)(_step("mlp", "adamw", "float64"))
        total = sum(x.size for _, x in step.named_state() if x.dtype == "float64")
        sizes.append(total)
    parameters = 5 * 7 + 7 + 7 * 3 + 3
    assert sizes[0] < parameters * (1 + 3 / RANKS) + 40, sizes
    assert sizes[1] < parameters * 3 / RANKS + 40, sizes


def check_two_synchronised_batch_norm() -> None:
    def wrap(step: Any) -> Any:
        distributed.sync_batch_norm(step.model)
        return distributed.data_parallel()(step)

    _compare(wrap, [("normalised", "sgd", "float64", False)])
    with pytest.raises(ArgumentError, match="MLP has no BatchNorm layer"):
        distributed.sync_batch_norm(MLP())


def _continued(step: Any, x: Any, y: Any) -> list[float]:
    """The losses of further calls, means over the ranks."""
    return [distributed.all_reduce(step(meta.array(_part(x)), meta.array(_part(y))), "mean").item() for _ in range(3)]


def check_two_checkpoints_of_any_stage_go_on_in_any_other() -> None:
    folder = Path(os.environ["CHECKPOINTS"])
    x, y = vectors(np.random.default_rng(1), "float64")
    wraps = [distributed.data_parallel(), distributed.zero(1), distributed.zero(2), distributed.zero(3)]
    for i, wrap in enumerate(wraps):
        step = wrap(_step("mlp", "adamw", "float64"))
        _continued(step, x, y)
        distributed.save(folder / "step", step)
        expected = _continued(step, x, y)
        other = wraps[i - 1](_step("mlp", "adamw", "float64"))
        distributed.load(folder / "step", other)
        np.testing.assert_allclose(_continued(other, x, y), expected, 1e-9, err_msg=str(i))
        distributed.load(folder / "step", step)
        distributed.save(folder / "one.safetensors", step)
        np.testing.assert_allclose(_continued(step, x, y), expected, 1e-9, err_msg=str(i))
        distributed.load(folder / "one.safetensors", other)
        np.testing.assert_allclose(_continued(other, x, y), expected, 1e-9, err_msg=str(i))
    (folder / "expected.json").write_text(json.dumps(expected))
    with pytest.raises(FileError, match="is missing"):
        distributed.load(folder / "step", _step("normalised", "adamw", "float64"))
    with pytest.raises(
        FileError, match=r"one.safetensors: model.first.b is missing; .*; and 34 more; expected the state"
    ):
        distributed.load(folder / "one.safetensors", _step("normalised", "adamw", "float64"))
    with pytest.raises(FileError, match=r"rank 0 could not write|no such file or directory"):
        distributed.save(folder / "absent" / "one.safetensors", step)
    with pytest.raises(FileError, match="is not a folder"):
        distributed.load(folder / "absent", step)


def check_two_checkpoints_without_a_file_are_refused() -> None:
    folder = Path(os.environ["CHECKPOINTS"])
    step = distributed.zero(3)(_step("mlp", "adamw", "float64"))
    distributed.save(folder / "whole", step)
    before = [x.detach().numpy().copy() for _, x in step.named_state()]
    for i, name in enumerate(sorted(path.name for path in (folder / "whole").iterdir())):
        if RANK == 0:
            shutil.copytree(folder / "whole", folder / f"without {i}")
            (folder / f"without {i}" / name).unlink()
        distributed.barrier()
        with pytest.raises(FileError, match=r"elements of model\.layers.* are missing|, in the step float64 of"):
            distributed.load(folder / f"without {i}", step)
        for (_, x), old in zip(step.named_state(), before, strict=True):
            np.testing.assert_array_equal(x.detach().numpy(), old)


def check_four_ranks() -> None:
    mesh = distributed.DeviceMesh({"dp": 2, "other": -1}, device="cpu")

    def wrap(step: Any) -> Any:
        return distributed.zero(2, mesh["dp"])(distributed.data_parallel(mesh["other"])(step))

    _compare(wrap, [EAGER], clip_norm=0.1)
    _compare(lambda step: distributed.data_parallel("other")(distributed.zero(3, "dp")(step)), [COMPILED])
    with pytest.raises(ArgumentError, match="the step takes part in an exchange already, over group 'other'"):
        distributed.data_parallel("dp")(wrap(_step("mlp", "sgd", "float64")))
    step = distributed.zero(3)(_step("mlp", "adamw", "float64"))
    distributed.load(os.environ["SAVED"], step)
    x, y = vectors(np.random.default_rng(1), "float64")
    expected = json.loads((Path(os.environ["SAVED"]).parent / "expected.json").read_text())
    np.testing.assert_allclose(_continued(step, x, y), expected, 1e-9)


def _row_losses(scores: Any, y: Any, w: Any) -> Any:
    return (meta.cross_entropy(scores, y, reduction="none") * w).mean()


def check_two_padded_batches() -> None:
    x, y = vectors(np.random.default_rng(1), "float64")
    x, y = x[:7], y[:7]
    whole, parts = (OPTIMIZERS["sgd"](_seeded(MLP), loss=loss) for loss in (meta.cross_entropy, _row_losses))
    parts = distributed.zero(2)(parts)
    for _ in range(3):
        expected = whole(meta.array(x), meta.array(y)).item()
        loss = parts(*map(meta.array, distributed.batch_part(x, y, pad=True)))
        np.testing.assert_allclose(distributed.all_reduce(loss, "mean").item(), expected, 1e-9)
    assert distributed.batch_part(x, y, pad=True)[2].tolist() == [8 / 7] * 4 if RANK == 0 else [8 / 7] * 3 + [0.0]
    assert [len(part) for part in distributed.batch_part(x[:6], y[:6])] == [3, 3]
    with pytest.raises(ArgumentError, match="7 rows for 2 ranks; expected a multiple of 2; drop the rest"):
        distributed.batch_part(x, y)


def _seeded(model: Callable[[], Any]) -> Any:
    meta.random.seed(0)
    return model().to(dtype="float64")


def check_two_refusals() -> None:
    step = _step("mlp", "sgd", "float64")
    wrapped = distributed.data_parallel()(step)
    with pytest.raises(ArgumentError, match="the step takes part in an exchange already"):
        distributed.data_parallel()(wrapped)
    with pytest.raises(ArgumentError, match="the step is of class MLP; expected a TrainStep"):
        distributed.data_parallel()(MLP())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="stage is 4; expected 1, 2 or 3"):
        distributed.zero(4)
    x, y = vectors(np.random.default_rng(1), "float64")
    rows = 6 + RANK  # other than in the other checks
    with pytest.raises(
        CommunicationError,
        match=r"the list of arguments is \(float64\[6, 5\], int64\[6\]\) on rank 0, and \(float64\[7, 5\], "
        r".*divide batches by meta.distributed.batch_part",
    ):
        wrapped(meta.array(x[:rows]), meta.array(y[:rows]))
    with pytest.raises(NotSupportedError, match="LAMB"):
        distributed.zero(1)(optim.with_optimizer(optim.LAMB, 0.1)(MLP()))


def check_two_ranks_with_different_programs_are_told_apart() -> None:
    def step(x: Any) -> Any:
        return distributed.all_reduce(x * (1.0 + RANK))

    run = meta.vm.compile(meta.trace(step), device="cpu")
    with pytest.raises(CommunicationError, match="the program differs between rank 0 and rank 1"):
        run(meta.ones(3))
