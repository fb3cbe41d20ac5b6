"""Plans of steps for ranks that do not exist, from their programs."""

from __future__ import annotations

import re
from typing import Any

import pytest

import meta
from meta import distributed, nn
from meta.cli import main
from meta.distributed import shard
from meta.distributed.buckets import buckets
from meta.errors import ArgumentError

PARAMETERS = 4 * (16 * 32 + 32 + 32 * 8 + 8)


def mlp_step() -> tuple[Any, ...]:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    step = meta.optim.TrainStep(model, meta.optim.AdamW(model, 0.1), loss=meta.cross_entropy)
    return step, meta.ones((4, 16)), meta.zeros(4, "int64")


def _plan(stage: int, ranks: int) -> distributed.Plan:
    step, *inputs = mlp_step()
    group = distributed.Group("dp", ranks)
    if stage == 0:
        return distributed.plan(distributed.data_parallel(group, broadcast=False)(step), *inputs)
    return distributed.plan(distributed.zero(stage, group, broadcast=False)(step), *inputs)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_bytes_of_data_parallelism_and_zero(ranks: int) -> None:
    ring = (ranks - 1) / ranks
    sent = {stage: _plan(stage, ranks).sent for stage in range(4)}
    padded = 4 * sum(-(-n // ranks) * ranks for n in (16 * 32, 32, 32 * 8, 8))
    assert sent[0] == pytest.approx(2 * ring * PARAMETERS, abs=8)
    assert sent[1] == pytest.approx(2 * ring * PARAMETERS + ring * padded, abs=8)
    assert sent[2] == pytest.approx(2 * ring * padded, abs=8)
    assert sent[3] == pytest.approx(2 * ring * padded, abs=8)


@pytest.mark.parametrize("ranks", [8, 64])
def test_no_rank_keeps_more_than_its_share_of_zero(ranks: int) -> None:
    shards = 4 * sum(-(-n // ranks) for n in (16 * 32, 32, 32 * 8, 8))
    bytes_by_stage = {stage: _plan(stage, ranks).held for stage in (0, 1, 3)}
    small = bytes_by_stage[0] - 3 * PARAMETERS  # learning rate, numbers of updates
    assert bytes_by_stage[1] == PARAMETERS + 3 * shards + small
    assert bytes_by_stage[3] == 3 * shards + small
    assert {plan.whole for plan in map(_plan, range(4), 4 * [ranks])} == {bytes_by_stage[0]}


def test_the_table_lists_shares_and_collectives() -> None:
    text = str(_plan(2, 8))
    assert "reduce_scatter  dp           8      1" in text
    assert "0.125" in text
    assert re.search(r"\nall +0\.\d+ +\d[\d,]+\nmore during a call +\d[\d,]+\n", text)
    with pytest.raises(ArgumentError, match="the step is of class Linear"):
        distributed.plan(nn.Linear(2, 2))  # type: ignore[arg-type]


def test_large_gradients_are_sent_while_kernels_run() -> None:
    """Gradients of weights are on their way during the backward pass of other layers; those of biases come last."""
    group = distributed.Group("dp", 8)
    model = nn.Sequential(*(part for _ in range(3) for part in (nn.Linear(32, 32), nn.Tanh())))
    step = meta.optim.TrainStep(model, meta.optim.SGD(model, 0.1), loss=meta.mse_loss)
    step = distributed.data_parallel(group, bucket_bytes=4096, broadcast=False)(step)
    (gradients,) = distributed.plan(step, meta.ones((4, 32)), meta.ones((4, 32))).collectives
    weights = 32 * 32 * 4
    # Meanwhile dx of two layers reads weights, and dw of two layers writes as much.
    assert gradients.calls == 4
    assert gradients.meanwhile > 2 * 2 * weights


def test_a_bucket_has_at_most_32_tensors() -> None:
    assert [len(bucket.arrays) for bucket in buckets([meta.zeros(2) for _ in range(70)], 1 << 20)] == [32, 32, 6]


PARTS = {"layers.0.w": shard(0), "layers.1.*": shard(0), "layers.3.w": shard(1)}


@pytest.mark.parametrize("parts", [1, 2], ids=["zero", "zero and tensor_parallel"])
@pytest.mark.parametrize("ranks", [8, 64])
def test_no_rank_keeps_more_than_its_share_and_5_percent(ranks: int, parts: int) -> None:
    model = nn.Sequential(nn.Embedding(500, 64), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 100))
    whole = sum(x.size * 4 for x in model.parameters())
    step = meta.optim.TrainStep(model, meta.optim.SGD(model, 0.1, 0.9), loss=meta.cross_entropy)
    if parts > 1:
        step = distributed.tensor_parallel(PARTS, distributed.Group("tp", parts), broadcast=False)(step)
    step = distributed.zero(3, distributed.Group("dp", ranks // parts), broadcast=False)(step)
    plan = distributed.plan(step, meta.zeros(4, "int64"), meta.zeros(4, "int64"))
    assert 2 * whole <= plan.whole <= 2 * whole + 1000
    assert 2 * whole / ranks <= plan.held <= 1.05 * 2 * whole / ranks


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", f"{__name__}:mlp_step", "--ranks", "8", "64", "--zero", "2"]) == 0
    out = capsys.readouterr().out
    assert "8 ranks: each keeps" in out
    assert " of one process's, has " in out
    assert "  all_gather over zero: 1 calls" in out
    assert main(["plan", "no_such_module:f"]) == 1
    assert "expected MODULE:FUNCTION of an importable module" in capsys.readouterr().err


MLP_PARTS = {"layers.0.*": shard(0), "layers.2.w": shard(1)}


def test_the_command_divides_over_two_axes(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["plan", f"{__name__}:mlp_step", "--ranks", "8"]
    assert main([*command, "--tensor-parallel", "2", "--parts", f"{__name__}:MLP_PARTS", "--zero", "3"]) == 0
    out = capsys.readouterr().out
    assert "all_reduce over tp: 1 calls" in out
    assert "reduce_scatter over zero:" in out
    assert main([*command, "--zero", "2", "--copies", "2"]) == 0
    out = capsys.readouterr().out
    assert "all_reduce over dp:" in out
    assert "reduce_scatter over zero:" in out
    for options, text in (
        (["--copies", "3"], "--ranks 8 --copies 3 --tensor-parallel 1; expected numbers above 0, and ranks that"),
        (["--copies", "2"], "--copies 2 without --zero; expected --zero 1, 2 or 3"),
        (["--tensor-parallel", "2"], "--tensor-parallel 2 --parts None; expected both or neither"),
    ):
        assert main([*command, *options]) == 1
        assert text in capsys.readouterr().err
