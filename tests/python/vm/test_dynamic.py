"""One program for all sizes: those that compile(dynamic=...) names, and those that calls open; training steps and
recorded calls included; the warning about other programs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.errors import ArgumentError, MetaError
from meta.vm.dynamic_sizes import FREQUENT, SPECIALISATIONS

ROWS = (3, 7, 1, 12)


class _Training:
    """A network with batch norm, and its training step."""

    def __init__(self) -> None:
        meta.random.seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        self.optimizer = meta.optim.SGD(self.model, learning_rate=0.1, momentum=0.9)

    def step(self, batch: Any) -> Any:
        self.optimizer.zero_grad()
        loss = meta.cross_entropy(self.model(batch["x"]), batch["t"])
        loss.backward()
        self.optimizer.step()
        return loss


def _batch(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, 6)).astype(np.float32)
    return {"x": meta.array(x), "t": meta.array(rng.integers(0, 3, rows))}


def test_one_program_of_a_training_step_serves_all_sizes() -> None:
    eager, compiled = _Training(), _Training()
    step = meta.vm.compile(meta.trace(compiled.step), dynamic={"batch.x": {0: "n"}, "batch.t": {0: "n"}})
    programs = set()
    for rows in (5, 3, 12):
        batch = _batch(rows)
        np.testing.assert_allclose(step(batch).item(), eager.step(batch).item(), rtol=1e-5)
        programs.add(step.program(batch))
    assert len(programs) == 1
    for a, b in zip(compiled.model.state_dict().values(), eager.model.state_dict().values(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-6)
    text = r"\[vm\] input 'batch.t' is Tensor\[\(5,\), \"int64\"\]; expected Tensor\[\(n,\), \"int64\"\] with n = 3"
    before = [x.detach().numpy().copy() for x in compiled.model.state_dict().values()]
    with pytest.raises(ArgumentError, match=text):
        step({"x": _batch(3)["x"], "t": _batch(5)["t"]})
    for a, b in zip(compiled.model.state_dict().values(), before, strict=True):
        assert np.array_equal(a.detach().numpy(), b)  # nothing was written


def test_gradients_of_calls_serve_all_sizes() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
    executor = meta.vm.compile(meta.trace(lambda x: model(x).sum(axis=0)), dynamic={"x": {-2: "rows"}})
    parameters = list(model.parameters())
    for rows in ROWS:
        x, dy = _batch(rows)["x"], meta.ones((4,))
        gradients = []
        for call in (executor, lambda x: model(x).sum(axis=0)):
            for p in parameters:
                p.grad = None
            call(x).backward(dy)
            gradients.append([p.grad.numpy().copy() for p in parameters])
        for a, b in zip(*gradients, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert executor.program(_batch(2)["x"]) is executor.program(_batch(9)["x"])


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_any_number_of_images(rank: int, channels_last: bool) -> None:
    """With the kernels of TVM, forward and backward; a transposed convolution after one with strides and groups."""
    rng = np.random.default_rng(0)
    convolve, transposed = getattr(meta, f"conv{rank}d"), getattr(meta, f"conv{rank}d_transpose")
    window = (3,) * rank
    w = meta.array(rng.standard_normal((6, *window, 2) if channels_last else (6, 2, *window)).astype(np.float32))
    v = meta.array(rng.standard_normal((6, 3, *window)).astype(np.float32))
    axes = (0, rank + 1, *range(1, rank + 1))

    def step(x: Any, w: Any) -> Any:
        y = convolve(x, w, stride=2, padding=1, groups=2, channels_last=channels_last)
        y = meta.transpose(y, axes) if channels_last else y
        z = transposed(y, v, stride=2, padding=1, output_padding=1)
        (z * z).sum().backward()
        return z.detach(), x.grad, w.grad

    with meta.with_dialect("tvm"):
        executor = meta.vm.compile(meta.trace(step), dynamic={"x": {0: "n"}})
        for images in (2, 5):
            shape = (images, *(7,) * rank, 4) if channels_last else (images, 4, *(7,) * rank)
            data = rng.standard_normal(shape).astype(np.float32)
            results = executor(*(meta.array(a, requires_grad=True) for a in (data, w.numpy())))
            expected = step(*(meta.array(a, requires_grad=True) for a in (data, w.numpy())))
            for ours, theirs in zip(results, expected, strict=True):
                np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4)
    assert len(executor._programs) == 1


def test_scans_are_of_any_length() -> None:
    step = meta.trace(lambda xs: meta.scan(lambda c, x: (c * 0.5 + x, c), 0.0, xs))
    executor = meta.vm.compile(step, dynamic={"xs": {0: "steps"}})
    for length in (2, 5):
        xs = meta.arange(length).cast("float32")
        for a, b in zip(executor(xs), step(xs), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy())
    assert executor.program(meta.ones((3,))) is executor.program(meta.ones((4,)))


def test_a_decision_on_an_open_size_is_refused_at_its_line() -> None:
    def decides(x: Any) -> Any:
        return x if x.shape[0] < 3 else x * 2.0

    with pytest.raises(MetaError, match=r"n.*test_dynamic.py:\d+"):
        meta.vm.compile(meta.trace(decides), dynamic={"x": {0: "n"}})(meta.ones((2,)))


_WRONG: list[tuple[Any, str]] = [
    (
        {"y": {0: "n"}},
        r"\[vm\] dynamic names 'y', which is no input that is an array; expected x; write .*x.* \(at .*test_dynamic.py",
    ),
    (
        {"x": {2: "n"}},
        r"dynamic names axis 2 of 'x', which is Tensor\[\(2, 3\), .float32.\]; expected axes from -2 to 1",
    ),
    ({"x": 0}, r"dynamic has 'x': 0; expected a dict such as \{\"x\": \{0: \"n\"\}\}; name each axis"),
    ({"x": {"0": "n"}}, r"dynamic has '0': 'n' for 'x'; expected a dict such as"),
    (["x"], r"dynamic is list; expected a dict such as"),
]


@pytest.mark.parametrize(("dynamic", "text"), _WRONG)
def test_wrong_sizes_are_refused(dynamic: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        meta.vm.compile(meta.trace(lambda x: x * 2.0), dynamic=dynamic)(meta.ones((2, 3)))


def test_modules_name_their_sizes_themselves() -> None:
    module = meta.trace(lambda x: x * 2.0).record(meta.ones((2,))).module
    with pytest.raises(ArgumentError, match=r"dynamic is given for a Module; expected functions and models; give its"):
        meta.vm.compile(module, dynamic={"x": {0: "n"}})


def _calls_of(function: Any, sizes: Sequence[int], **options: Any) -> tuple[Any, list[float]]:
    """The executor of a function of one vector, and its results for vectors of ones of these sizes."""
    executor = meta.vm.compile(meta.trace(function), fuse=False, **options)
    return executor, [executor(meta.ones((n,))).sum().item() for n in sizes]


def _types(executor: Any) -> list[str]:
    return [str(key[2][0].shape) for key in executor._programs]


def test_calls_of_other_sizes_share_a_program() -> None:
    executor, sums = _calls_of(lambda x: x * x.shape[0], (4, 3, 7, 9, 4))
    assert sums == [16, 9, 49, 81, 16]
    assert _types(executor) == ["(4,)", "(n,)"]


def test_sizes_that_stay_equal_share_a_name() -> None:
    executor = meta.vm.compile(meta.trace(lambda x, y, z: (x.sum(axis=1) + y).sum() * z.sum()))
    for n, m in ((4, 4), (3, 3), (5, 6), (2, 8)):
        x, y, z = meta.ones((n, 2)), meta.ones((n,)), meta.ones((m,))
        assert executor(x, y, z).item() == 3 * n * m
    shapes = [", ".join(str(t.shape) for t in key[2]) for key in executor._programs]
    assert shapes == ["(4, 2), (4,), (4,)", "(n, 2), (n,), (n,)", "(n, 2), (n,), (n1,)"]


@pytest.mark.parametrize("compared", [lambda n: n == 3, lambda n: n != 3, lambda n: n in (3, 5), lambda n: 2 * n == 6])
def test_sizes_that_a_function_compares_have_programs_of_their_own(compared: Any) -> None:
    def function(x: Any) -> Any:
        return x * 10.0 if compared(x.shape[0]) else x

    sizes = (4, 2, 3, 6, 5, 3)
    _, sums = _calls_of(function, sizes)
    assert sums == [n * 10 if compared(n) else n for n in sizes]


def test_sizes_that_broadcast_or_are_empty_have_programs_of_their_own() -> None:
    executor = meta.vm.compile(meta.trace(lambda x, y: (x + y).sum()), fuse=False)
    for n, m in ((4, 4), (3, 3), (1, 5), (0, 1), (6, 1), (1, 1), (5, 5)):
        expected = (np.ones(n) + np.ones(m)).sum()
        assert executor(meta.ones((n,)), meta.ones((m,))).item() == expected


def test_frequent_sizes_get_a_program_of_their_own() -> None:
    executor, sums = _calls_of(lambda x: x * 2.0, (4, 3, *[5] * (FREQUENT + 2), 3))
    assert sums == [8, 6, *[10] * (FREQUENT + 2), 6]
    assert _types(executor) == ["(4,)", "(n,)", "(5,)"]


def test_reports_open_no_sizes() -> None:
    executor, _ = _calls_of(lambda x: x * 2.0, (4,))
    assert executor.memory(meta.ones((5,))).dynamic == 0
    assert executor(meta.ones((5,))).tolist() == [2.0] * 5
    assert _types(executor) == ["(4,)", "(5,)"]


def test_an_empty_dynamic_opens_no_sizes() -> None:
    executor, sums = _calls_of(lambda x: x * 2.0, (4, 3, 5), dynamic={})
    assert sums == [8, 6, 10]
    assert _types(executor) == ["(4,)", "(3,)", "(5,)"]


def test_training_steps_of_a_smaller_last_batch_share_a_program() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=(n, 6)).astype("float32") for n in (8, 8, 5, 8, 3)]

    def train(compiled: bool) -> list[float]:
        meta.random.seed(0)
        model = meta.nn.Sequential(
            meta.nn.Linear(6, 4), meta.nn.BatchNorm1d(4), meta.nn.Dropout(0.5), meta.nn.Linear(4, 2)
        )
        step: Any = meta.optim.TrainStep(model, meta.optim.AdamW(model), lambda y: (y * y).mean())
        step = meta.vm.compile(step) if compiled else step
        return [step(meta.array(x)).item() for x in batches]

    np.testing.assert_allclose(train(True), train(False), rtol=2e-5)


def test_gradients_of_calls_of_other_sizes() -> None:
    executor = meta.vm.compile(meta.trace(lambda x: (x * x).sum()))
    for n in (4, 3, 5, 1):
        x = meta.arange(n, dtype="float32")
        x.requires_grad = True
        executor(x).backward()
        assert x.grad.tolist() == [2.0 * i for i in range(n)]


def test_saved_programs_keep_what_they_assume_of_sizes(tmp_path: Path) -> None:
    executor, _ = _calls_of(lambda x: x * 10.0 if x.shape[0] == 3 else x, (4, 2))
    executor.save(tmp_path / "program.safetensors")
    loaded = meta.vm.load(tmp_path / "program.safetensors")
    assert loaded(meta.ones((7,))).sum().item() == 7
    with pytest.raises(ArgumentError, match=r"not saved for these arguments|the size n equals 3"):
        loaded(meta.ones((3,)))


def test_many_programs_of_a_function_that_needs_sizes_warn_once() -> None:
    executor = meta.vm.compile(meta.trace(lambda x, y: x * y[0] * int(x.shape[0])), fuse=False)
    calls = [(meta.ones((n, 2)), meta.ones((n,))) for n in range(2, SPECIALISATIONS + 4)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in calls[: SPECIALISATIONS - 1]:
            executor(*call)
        assert not caught
        for call in calls[SPECIALISATIONS - 1 :]:
            executor(*call)
    (warning,) = caught
    assert issubclass(warning.category, meta.vm.SpecialisationWarning)
    text = str(warning.message)
    assert text.startswith("[vm] <lambda> was compiled 8 times, for other sizes each time: axis 0 of 'x' was 2, 3, 4,")
    assert "one program cannot leave them open: [shape] the size n is symbolic where a number is needed" in text
    assert re.search(r"\(called at .*test_dynamic.py:\d+\)", text)
