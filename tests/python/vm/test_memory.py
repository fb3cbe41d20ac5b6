"""The memory plan: the order of kernels, storages, arenas, and buffers of kernels as tensors of the program."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import meta
from meta._generated import limits
from meta.backend.memory import allocation
from meta.backend.memory.placed import Placed
from meta.device import CPU
from meta.interpreter.run import run
from meta.ir.builder import Module
from meta.vm.build.generate import build_module, plan_source
from meta.vm.lower.choose import prepare
from meta.vm.plan import memory
from meta.vm.runner import Machine
from tests.python.vm.programs import assert_same, flat, program, randoms

SIZE = 4 * 64 * 48
"""Bytes of each tensor of `late_sums`."""


def late_sums(count: int) -> Module:
    """A chain of tensors, whose sums come after the chain, like the gradients of weights in a trace; and an update."""

    def body(ops: Any, x: Any, w: Any) -> list[Any]:
        tensors = [x]
        for _ in range(count):
            tensors.append(ops.cumsum(ops.multiply(tensors[-1], 0.5), axis=0))
        sums = [ops.cumsum(ops.sum(t, axis=(0,)), axis=0) for t in tensors[1:]]
        total = sums[0]
        for each in sums[1:]:
            total = ops.add(total, each)
        return [total, ops.add(w, total)]

    return program({"x": (64, 48), "w": (48,)}, body, mutates={1: 1})


def test_kernels_run_when_that_frees_memory() -> None:
    x, w = randoms((64, 48), (48,))
    module = late_sums(12)
    expected = run(module, x.copy(), w.copy())
    executor = meta.vm.compile(module)
    assert_same(executor(x, w), expected, rtol=1e-5)
    assert executor.memory(x, w).intermediates < 4 * SIZE


def test_casts_run_when_they_are_first_needed() -> None:
    def body(ops: Any, x: Any, *weights: Any) -> Any:
        casts = [ops.cumsum(w, axis=1) for w in weights]
        for w in casts:
            x = ops.matmul(x, w)
        return x

    shapes = {f"w{i}": (64, 64) for i in range(8)}
    module = program({"x": (2, 64), **shapes}, body)
    arrays = randoms((2, 64), *shapes.values())
    executor = meta.vm.compile(module)
    assert_same(executor(*arrays), run(module, *arrays), rtol=1e-4, atol=1e-4)
    assert executor.memory(*arrays).intermediates < 3 * 4 * 64 * 64


@pytest.mark.parametrize("assign", [memory._shared, memory._packed])
def test_tensors_that_live_at_one_time_have_memory_of_their_own(assign: Any) -> None:
    rng = random.Random(0)
    for count in (1, 2, 40):
        firsts = [rng.randrange(30) for _ in range(count)]
        spans = [(first, first + rng.randrange(8)) for first in firsts]
        sizes = [rng.choice((0, 4, 256, 1000, 1 << 16)) for _ in range(count)]
        storages, places = assign(sizes, spans)
        for i, (where, offset) in enumerate(places):
            assert offset % 256 == 0
            assert offset + sizes[i] <= storages[where]
            for j in range(i):
                together = spans[i][0] <= spans[j][1] and spans[j][0] <= spans[i][1]
                apart = offset + sizes[i] <= places[j][1] or places[j][1] + sizes[j] <= offset
                assert not together or where != places[j][0] or apart or not sizes[i] or not sizes[j]


def test_arena_wastes_less_than_storages() -> None:
    """Two tensors of half the size fit where one of the full size was."""
    sizes, spans = [1 << 20, 1 << 19, 1 << 19], [(0, 1), (2, 4), (3, 4)]
    assert sum(memory._shared(sizes, spans)[0]) == 3 << 19
    assert memory._packed(sizes, spans)[0] == [1 << 20]


def test_programs_run_in_an_arena() -> None:
    """As in a CUDA graph: every tensor is a parameter, inside of one storage."""
    module = late_sums(5)
    x, w = randoms((64, 48), (48,))
    expected = flat(run(module, x.copy(), w.copy()))
    source = prepare(module, CPU)
    planned = plan_source(source, fuse=True, arena=True)
    destinations = planned.destinations
    assert destinations is not None
    assert len(destinations.storages) == 2  # the arena and the result
    assert any(t.offset for t in destinations.tensors)
    storages = [allocation.empty((max(size, 1),), "uint8") for size in destinations.storages]
    placed = [Placed(storages[t.storage], t.offset, t.shape, t.dtype) for t in destinations.tensors]
    machine = Machine(build_module(source, planned), source)
    result = machine.main(x._data, w._data, *(p.data for p in placed))
    np.testing.assert_allclose(meta.from_dlpack(result).numpy(), expected[0].numpy(), rtol=1e-5)
    np.testing.assert_allclose(w.numpy(), expected[1].numpy(), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int64"])
def test_placed_tensors_start_at_their_offset(dtype: str) -> None:
    base = allocation.empty((4096,), "uint8")
    for shape in ((2, 3), (), (0, 3)):
        placed = Placed(base, 512, shape, dtype)
        assert placed.data.data_ptr() == base.data_ptr() + 512
        assert (tuple(placed.data.shape), str(placed.data.dtype)) == (shape, dtype)
    value = meta.ones((2, 3), dtype=dtype)
    placed = Placed(base, 512, (2, 3), dtype)
    allocation.copy_into(value._data, placed.data)
    assert meta.from_dlpack(placed.data).tolist() == value.tolist()


def test_buffers_of_kernels_are_part_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of igamma allocates matrices of float64."""
    matrix = 8 * 32 * 10
    monkeypatch.setattr(limits, "ALLOCATED_BYTES", matrix)

    def body(ops: Any, x: Any) -> Any:
        a = ops.cumsum(ops.exp(x), axis=1)
        return ops.cumsum(ops.igamma(a, a), axis=1)

    (x,) = randoms((32, 10))
    module = program({"x": (32, 10)}, body)
    executor = meta.vm.compile(module)
    assert_same(executor(x), run(module, x), rtol=1e-5)
    report = executor.memory(x)
    assert report.workspace < matrix
    assert report.intermediates >= x.nbytes + matrix


@pytest.mark.parametrize("name", ["exp", "transpose"])
def test_results_take_the_memory_of_operands(name: str) -> None:
    """Where each element is read before it is written; a transpose reads others."""

    def body(ops: Any, x: Any) -> Any:
        return ops.cumsum(getattr(ops, name)(ops.cumsum(x, axis=0)), axis=0)

    module = program({"x": (48, 48)}, body)
    (x,) = randoms((48, 48))
    executor = meta.vm.compile(module)
    assert_same(executor(x), run(module, x), rtol=1e-5)
    assert executor.memory(x).intermediates == (1 if name == "exp" else 2) * x.nbytes


def test_operands_that_are_read_again_keep_their_memory() -> None:
    def body(ops: Any, x: Any) -> Any:
        a = ops.cumsum(x, axis=0)
        b = ops.cumsum(ops.exp(a), axis=1)
        return ops.cumsum(ops.transpose(ops.add(ops.transpose(b), a)), axis=0)

    module = program({"x": (48, 48)}, body)
    (x,) = randoms((48, 48))
    assert_same(meta.vm.compile(module)(x), run(module, x), rtol=1e-4)


def test_small_kernels_run_before_their_operand_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum comes after the kernel that could write over its operand, which then has another reader."""
    monkeypatch.setattr(limits, "OVERWRITTEN_BYTES", 1)

    def body(ops: Any, x: Any) -> list[Any]:
        a = ops.cumsum(x, axis=0)
        b = ops.exp(a)
        return [ops.sum(t, axis=(0,)) for t in (ops.cumsum(b, axis=1), b, a)]

    module = program({"x": (128, 96)}, body)
    (x,) = randoms((128, 96))
    executor = meta.vm.compile(module)
    assert_same(executor(x), run(module, x), rtol=1e-4, atol=1e-2)
    assert executor.memory(x).intermediates == 2 * x.nbytes
