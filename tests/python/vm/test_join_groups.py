"""Elementwise groups joined with their first readers: which kernels there are, and what they compute.

Programs for GPUs have them; here their kernels also run on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import meta
from meta.interpreter.run import run
from meta.vm.plan import fusion
from tests.python.golden.plans import kernel_sequence
from tests.python.vm.programs import assert_same, randoms

LARGE, SMALL = (256, 256), (16, 16)


def saved_tanh(x: Any, b: Any) -> Any:
    """The forward pass of gelu as torch's graphs have it: they save what the backward pass reads."""
    h = x + b
    t = meta.tanh(h * 0.8)
    return h, t, h * (t + 1.0)


def read_before(x: Any, b: Any) -> Any:
    """The sum of the first group comes before its elementwise reader."""
    h = meta.exp(x)
    total = meta.sum(h, axis=(1,))
    return h, total, h * b + total[:, None]


def two_readers(x: Any, b: Any) -> Any:
    h = meta.sigmoid(x)
    return h, h + b, h - b


def transposed(x: Any, b: Any) -> Any:
    h = x * b
    return h, meta.transpose(h, (1, 0)) + 1.0


def updated(x: Any, b: Any) -> Any:
    h = x * 2.0
    y = h + b
    x[...] = y * h
    return h, y


def narrow(x: Any, b: Any) -> Any:
    h = (x + b).cast("float16")
    return h, h.cast("float32") * x


@pytest.fixture
def as_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = fusion._fused
    monkeypatch.setattr(fusion, "_fused", lambda lowered, fuse, *, on_gpu: fused(lowered, fuse, on_gpu=True))
    monkeypatch.setattr("meta.vm.build.executables.default_cache", lambda: None)
    monkeypatch.setattr("meta.vm.build.executables._loaded", type(meta.vm.build.executables._loaded)())


@pytest.mark.parametrize(
    ("function", "kernels"),
    [(saved_tanh, 1), (read_before, 3), (two_readers, 1), (transposed, 2), (updated, 1), (narrow, 1)],
    ids=lambda x: getattr(x, "__name__", None),
)
@pytest.mark.usefixtures("as_on_gpus")
def test_joined_kernels(function: Callable[..., Any], kernels: int) -> None:
    x, b = randoms(LARGE, LARGE[1:])
    executor = meta.vm.compile(meta.trace(function))
    expected = run(executor.module(x.copy(), b), x.copy(), b)
    ours = x.copy()
    results = executor(ours, b)
    assert_same(results, expected[: len(results)] if function is updated else expected)
    if function is updated:
        h = x.numpy() * 2
        np.testing.assert_allclose(ours.numpy(), (h + b.numpy()) * h, rtol=1e-6)
    assert len(kernel_sequence(executor, (x, b))) == kernels


@pytest.mark.parametrize(("shape", "kernels"), [(LARGE, 1), (SMALL, 3)])
@pytest.mark.usefixtures("as_on_gpus")
def test_small_tensors_stay_apart(shape: tuple[int, ...], kernels: int) -> None:
    x, b = randoms(shape, shape[1:])
    assert len(kernel_sequence(meta.vm.compile(meta.trace(saved_tanh)), (x, b))) == kernels


@pytest.mark.usefixtures("as_on_gpus")
def test_kernels_have_few_tensors() -> None:
    """A chain of which every value is returned."""

    def chain(x: Any, count: int) -> Any:
        values = [x]
        for i in range(count):
            values.append(meta.tanh(values[-1] * (1.0 + i)))
        return values[1:]

    (x,) = randoms(LARGE)
    executor = meta.vm.compile(meta.trace(partial(chain, count=40)))
    assert_same(executor(x), list(run(executor.module(x), x)))
    assert len(kernel_sequence(executor, (x,))) == 3


def test_equal_groups_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def layers(x: Any, b: Any) -> Any:
        out: list[Any] = []
        for _ in range(4):
            h, t, x = saved_tanh(x, b)
            x = meta.cumsum(x, axis=0)
            out += [h, t]
        return [*out, x]

    joined: list[Any] = []
    join = fusion.join_groups
    monkeypatch.setattr(fusion, "join_groups", lambda module: joined.append(join(module)) or joined[-1])
    x, b = randoms(LARGE, LARGE[1:])
    fused = fusion._fused
    monkeypatch.setattr(fusion, "_fused", lambda lowered, fuse, *, on_gpu: fused(lowered, fuse, on_gpu=True))
    executor = meta.vm.compile(meta.trace(layers))
    executor.relax(x, b, stage="planned")
    assert len([n for n in joined[-1].functions if n.name_hint.endswith("_joined")]) == 1


@pytest.mark.parametrize("batch", [1, 2])
def test_elementwise_operators_fuse_with_the_product_before_them(batch: int) -> None:
    """Also along axes of size 1, where Relax's analysis takes them for operators that broadcast."""
    x, w = meta.ones((batch, 8, 8, 16)), meta.ones((32, 3, 3, 16))
    with meta.with_dialect("tvm"):
        executor = meta.vm.compile(lambda x, w: meta.tanh(meta.conv2d(x, w, padding=1, channels_last=True)))
        assert len(executor.profile(x, w, repeat=1).kernels) == 1
