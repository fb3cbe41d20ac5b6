"""Compiled training steps with every pair of options train as eager ones and, where torch has the options, as torch.

`python -m tests.python.vm.test_training_options` trains with every choice of three options.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError
from tests.python.vm.training_options import (
    CLASSES,
    MODELS,
    OPTIMIZERS,
    OPTIONS,
    Case,
    Network,
    TorchNetwork,
    allowed,
    batch,
    covering,
)

RATE, GAMMA, UPDATES = 0.02, 0.7, 4
CLIP_NORM, CLIP_VALUE = 0.3, 0.02
PAIRS = covering(2)
_SHORT = {"weight": "w", "bias": "b"}

State = dict[str, np.ndarray[Any, Any]]
Trajectory = list[tuple[float, State]]
"""The loss of each call, and all arrays after it."""


def tolerance(case: Case) -> float:
    """The largest difference, relative to the largest element of an array: 1e-9 in float64, 2e-5 in float32.

    Low precision rounds to 8 (bfloat16) or 11 bits, fused kernels at other places than eager code. RMSprop and Adam
    divide by the size of a gradient, so an element that is mostly rounding moves as far as others: differences of a
    tenth occur in bfloat16. A wrong value is off by its whole size."""
    if "bfloat16" in case.dtype or case.autocast == "bfloat16":
        return 0.15
    if case.autocast == "float16":
        return 0.01
    return 1e-9 if case.dtype == "float64" else 2e-5


def training(case: Case) -> meta.optim.TrainStep:
    torch.manual_seed(0)
    meta.random.seed(0)
    model = Network(MODELS[case.model], case.width, case.autocast)
    twin = TorchNetwork(MODELS[case.model], case.width)
    model.load_torch_state_dict({n: x for n, x in twin.state_dict().items() if "num_batches" not in n})
    model.to(dtype=case.dtype.split()[0])
    kind, options = OPTIMIZERS[case.optimizer]
    optimizer = getattr(meta.optim, kind)(model, RATE, master_weights=case.master_weights, **options)
    return meta.optim.TrainStep(
        model,
        optimizer,
        accumulate=case.accumulate,
        clip_norm=CLIP_NORM if case.clip == "norm" else None,
        clip_value=CLIP_VALUE if case.clip == "value" else None,
        schedule=meta.optim.ExponentialLR(optimizer, GAMMA) if case.schedule else None,
        scaler=meta.amp.GradScaler(8.0, interval=2) if case.scaler else None,
    )


def arrays(case: Case, call: int) -> list[meta.NDArray]:
    x, y = map(meta.array, batch(case, call))
    low = case.dtype.split()[0]
    return [x if x.dtype == "int64" else x.cast(low), y.cast(low)] if low == "bfloat16" else [x, y]


def values(step: meta.optim.TrainStep) -> State:
    return {name: np.array(x.detach().cast("float64").numpy()) for name, x in step.named_state()}


def eager(step: meta.optim.TrainStep, case: Case) -> Callable[..., Any]:
    del case
    return step


def compiled(step: meta.optim.TrainStep, case: Case) -> Callable[..., Any]:
    if not case.budget:
        return meta.vm.compile(step, fuse=case.fuse)
    with pytest.raises(ArgumentError) as error:
        meta.vm.compile(step, fuse=case.fuse, memory_budget=1)(*arrays(case, 0))
    needs, least = (
        int(match.replace(",", "")) for match in re.findall(r"needs ([\d,]+),.*least ([\d,]+)", str(error.value))[0]
    )
    return meta.vm.compile(step, fuse=case.fuse, memory_budget=max(int(0.8 * needs), least))


def trajectory(case: Case, run: Callable[[meta.optim.TrainStep, Case], Callable[..., Any]], resume: bool) -> Trajectory:
    """Some updates; with `resume` new objects go on from a saved state after half of the calls."""
    step = training(case)
    call, out, calls = run(step, case), Trajectory(), UPDATES * case.accumulate
    for number in range(calls):
        if resume and number == calls // 2:
            saved = {name: meta.array(x.detach().numpy(copy=True)) for name, x in step.state_dict().items()}
            step = training(case)
            step.load_state_dict(saved)
            call = run(step, case)
        loss = call(*arrays(case, number)).item()
        out.append((loss, values(step)))
    return out


def torch_trajectory(case: Case) -> Trajectory:
    """The same in torch: losses, parameters and buffers."""
    torch.manual_seed(0)
    model = TorchNetwork(MODELS[case.model], case.width).to(getattr(torch, case.dtype))
    kind, options = OPTIMIZERS[case.optimizer]
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=RATE, **options)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, GAMMA)
    names = [name for name, _ in Network(MODELS[case.model], case.width, None).named_state()]
    out = Trajectory()
    for number in range(UPDATES * case.accumulate):
        loss = model(*map(torch.from_numpy, batch(case, number)))
        (loss / case.accumulate).backward()
        if (number + 1) % case.accumulate == 0:
            if case.clip == "norm":
                torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            if case.clip == "value":
                torch.nn.utils.clip_grad_value_(model.parameters(), CLIP_VALUE)
            optimizer.step()
            optimizer.zero_grad()
            if case.schedule:
                schedule.step()
        state = [x.detach().double().numpy().copy() for n, x in model.state_dict().items() if "num_batches" not in n]
        assert len(state) == len(names)
        out.append((loss.item(), {f"{n}": x for n, x in zip(model_names(model), state, strict=True)}))
    return out


def model_names(model: TorchNetwork) -> list[str]:
    """The names that meta gives to the arrays of torch's model."""
    out: list[str] = []
    for name in (n for n in model.state_dict() if "num_batches" not in n):
        layer, _, last = name.rpartition(".")
        out.append(f"{layer}.{_SHORT.get(last, last)}")
    return out


def assert_same(got: Trajectory, expected: Trajectory, bound: float, what: str) -> None:
    for number, ((loss, state), (other, reference)) in enumerate(zip(got, expected, strict=True)):
        where = f"call {number} against {what}: "
        assert loss == pytest.approx(other, rel=bound, abs=bound), f"{where}loss"
        assert state.keys() >= reference.keys(), where
        for name, x in reference.items():
            far = np.abs(state[name].reshape(x.shape) - x).max(initial=0.0)
            largest = np.abs(x).max(initial=0.0)
            assert far <= bound * max(largest, 1e-3), f"{where}{name} is off by {far:.2e} of {largest:.2e}"


def check(case: Case) -> None:
    bound = tolerance(case)
    expected = trajectory(case, eager, resume=False)
    assert all(np.isfinite(loss) for loss, _ in expected)
    if case.in_torch:
        assert_same(expected, torch_trajectory(case), max(bound, 1e-8), "torch")
    assert_same(trajectory(case, compiled, case.resume), expected, bound, "eager steps")


@pytest.mark.parametrize("case", PAIRS, ids=str)
def test_compiled_steps_train_as_eager_ones_and_as_torch(case: Case) -> None:
    check(case)


def test_all_pairs_of_options_are_covered() -> None:
    found = {(a, getattr(c, a), b, getattr(c, b)) for c in PAIRS for a in OPTIONS for b in OPTIONS if a < b}
    for a, b in ((a, b) for a in OPTIONS for b in OPTIONS if a < b):
        possible = {(a, x, b, y) for x in OPTIONS[a] for y in OPTIONS[b] if allowed({a: x, b: y})}
        assert possible <= found
    assert CLASSES == 3


def main() -> int:
    """Every choice of three options; prints the cases that fail."""
    cases, failed = covering(3), 0
    for number, case in enumerate(cases):
        try:
            check(case)
        except Exception:  # noqa: BLE001 - a failure of any kind is printed
            failed += 1
            sys.stdout.write(f"{case}: {traceback.format_exc(limit=-1)}\n")
        if number % 50 == 49:
            sys.stdout.write(f"{number + 1} of {len(cases)} cases, {failed} failed\n")
            sys.stdout.flush()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
