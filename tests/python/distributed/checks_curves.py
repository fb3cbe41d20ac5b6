"""Checks that the losses and the parameters of every network are those of one process with the whole batch, for every
pass on a training step, in float64 and in float32. All ranks draw the same parameters, so that steps need not start
with hundreds of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

import meta
from meta import distributed, optim
from tests.python.distributed.models import NETWORKS, ResNet, pictures
from tests.python.distributed.training import (
    RANK,
    RANKS,
    Training,
    assert_equal_training,
    interpreted,
    kernels,
    new_step,
    of_one_process,
    values_of,
)

STEPS = 3
"""The momentum of the first step changes the loss of the third."""


class Division(NamedTuple):
    """How ranks divide a step.

    wrap: called with a step, a plan of tensor_parallel, and the least size of a bucket.
    parts: the number of parts of the batch.  programs: whether the pass needs the program of a step."""

    wrap: Callable[[Any, Mapping[str, Any], int | None], Any]
    parts: int = RANKS
    programs: bool = False


@cache
def _grid() -> Any:
    return distributed.DeviceMesh({"outer": RANKS // 2, "inner": 2}, device="cpu")


def _data_parallel(step: Any, bucket: int | None, group: Any = None) -> Any:
    return distributed.data_parallel(group, broadcast=False, **({} if bucket is None else {"bucket_bytes": bucket}))(
        step
    )


def _zero(stage: int, step: Any, bucket: int | None, group: Any = None) -> Any:
    return distributed.zero(stage, group, bucket_bytes=bucket, broadcast=False)(step)


def _tensor_and(then: Callable[..., Any], step: Any, plan: Mapping[str, Any], bucket: int | None) -> Any:
    step = distributed.tensor_parallel(plan, _grid()["inner"], broadcast=False)(step)
    return then(step, bucket, _grid()["outer"])


def _data_and_zero(stage: int, step: Any, plan: Any, bucket: int | None) -> Any:
    return _data_parallel(_zero(stage, step, bucket, _grid()["inner"]), bucket, _grid()["outer"])


ONE_AXIS = {
    "data_parallel": Division(lambda step, plan, bucket: _data_parallel(step, bucket)),
    **{
        f"zero_{stage}": Division(lambda step, plan, bucket, stage=stage: _zero(stage, step, bucket))
        for stage in (1, 2, 3)
    },
    "tensor_parallel": Division(
        lambda step, plan, bucket: distributed.tensor_parallel(plan, broadcast=False)(step), parts=1, programs=True
    ),
}
TWO_AXES = {
    "data_and_tensor_parallel": Division(partial(_tensor_and, _data_parallel), RANKS // 2, programs=True),
    "zero_3_and_tensor_parallel": Division(partial(_tensor_and, partial(_zero, 3)), RANKS // 2, programs=True),
    **{f"data_parallel_and_zero_{stage}": Division(partial(_data_and_zero, stage)) for stage in (1, 2, 3)},
}


def _losses(network: str, step: Any, dtype: str, run: Callable[..., Any], parts: int) -> list[float]:
    """The losses of a few steps, means over the ranks, which get the parts of a batch."""
    generator, values = np.random.default_rng(1), list[float]()
    own = RANK * parts // RANKS
    for _ in range(STEPS):
        x, y = (np.split(each, parts)[own] for each in NETWORKS[network].batch(generator, dtype))
        loss = run(meta.array(x), meta.array(y))
        values.append((loss if parts == 1 else distributed.all_reduce(loss, "mean")).item())
    return values


def _new_step(network: str, dtype: str) -> Any:
    return new_step(NETWORKS[network].model, NETWORKS[network].optimizer, dtype)


def _of_one(network: str, dtype: str) -> Training:
    step = _new_step(network, dtype)
    return _losses(network, step, dtype, step, 1), values_of(step.model)


def _cases(division: Division) -> list[tuple[str, str]]:
    """Networks and dtypes. Two processes train all networks in both dtypes, with messages of one tensor each; four
    train all networks with two passes, and two networks with one pass."""
    networks = NETWORKS if RANKS == 2 or division in TWO_AXES.values() else ("mlp", "gpt")
    return [(n, dtype) for n in networks for dtype in ("float64", "float32")[: 2 if n == "mlp" or RANKS == 2 else 1]]


def _compare(division: Division) -> None:
    for network, dtype in _cases(division):
        with kernels(network):
            what = f"{network} {dtype}"
            one = of_one_process(f"curve {what}", partial(_of_one, network, dtype))
            step = _new_step(network, dtype)
            if network == "resnet" and division.parts > 1:
                group = _grid()["outer"] if division.parts < RANKS else None
                distributed.sync_batch_norm(step.model, group)
            step = division.wrap(step, NETWORKS[network].plan, 1 if network != "mlp" and RANKS == 2 else None)
            run = interpreted(step) if division.programs else step
            assert_equal_training(step, _losses(network, step, dtype, run, division.parts), one, dtype, what)


CHECKS: dict[str, Callable[[], None]] = {
    **{f"check_{name}": partial(_compare, division) for name, division in ONE_AXIS.items()},
    **({f"check_{name}": partial(_compare, division) for name, division in TWO_AXES.items()} if RANKS > 2 else {}),
}


def check_resnet_with_local_statistics() -> None:
    """One process computes the mean of the losses of the parts, each with its own statistics."""

    def losses(wrap: Any) -> list[float]:
        meta.random.seed(0)
        model = ResNet().to(dtype="float64")
        parts = 1 if wrap else RANKS

        def forward(x: Any, y: Any) -> Any:
            pairs = zip(meta.split(x, parts, 0), meta.split(y, parts, 0), strict=True)
            return sum((meta.cross_entropy(model(a), b) for a, b in pairs), meta.zeros((), "float64")) / parts

        step = optim.TrainStep(forward, optim.SGD(model, 0.01, 0.9))
        step = wrap(step) if wrap else step
        generator, out = np.random.default_rng(1), list[float]()
        for _ in range(STEPS):
            x, y = pictures(generator, "float64")
            if wrap:
                x, y = np.split(x, RANKS)[RANK], np.split(y, RANKS)[RANK]
            loss = step(meta.array(x), meta.array(y))
            out.append((distributed.all_reduce(loss, "mean") if wrap else loss).item())
        return out

    with kernels("resnet"):
        expected = losses(None)
        # Stage 3 takes a Model.
        for wrap in (distributed.data_parallel(bucket_bytes=1), distributed.zero(2, bucket_bytes=1)):
            np.testing.assert_allclose(losses(wrap), expected, 1e-9)
