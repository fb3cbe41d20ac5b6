"""Parameters that a program replaces keep their memory and get the values of functional execution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.interpreter.run import run
from meta.ir.builder import Module

from .programs import assert_same, copies, flat, program, randoms

SHAPE = (6, 7)


def one_step(ops, w, v, dw):
    """Momentum: v <- 0.9 v + dw; w <- w - 0.1 v."""
    new_v = ops.add(ops.multiply(v, 0.9), dw)
    return [ops.sum(dw), ops.subtract(w, ops.multiply(new_v, 0.1)), new_v]


def old_value_is_read_later(ops, w, v, dw):
    new = ops.add(w, dw)
    return [ops.sum(ops.multiply(w, v)), new, ops.tanh(v)]


def swapped(ops, w, v, dw):
    return [ops.add(dw, 1.0), v, w]


def old_value_is_returned(ops, w, v, dw):
    return [w, ops.add(w, dw), ops.add(v, w)]


def new_value_is_returned(ops, w, v, dw):
    new = ops.add(w, dw)
    return [new, new, ops.reshape(ops.reshape(ops.exp(v), (42,)), SHAPE)]


def view_of_old_value_is_returned(ops, w, v, dw):
    return [ops.reshape(w, (7, 6)), ops.add(w, dw), ops.reshape(ops.reshape(w, (42,)), SHAPE)]


def other_elements_are_read(ops, w, v, dw):
    """The new value of w reads neighbouring elements, that of v a sum over all elements."""
    return [ops.sum(w), ops.flip(w, axis=0), ops.softmax(v, axis=0)]


def transposed_twice(ops, w, v, dw):
    flipped = ops.transpose(ops.tanh(ops.transpose(w)))
    return [dw, flipped, ops.matmul(ops.matmul(v, w, transpose_b=True), dw)]


def one_value_for_two(ops, w, v, dw):
    new = ops.add(ops.multiply(w, v), dw)
    return [ops.sum(new), new, new]


def each_reads_the_other(ops, w, v, dw):
    return [ops.sum(dw), ops.add(w, v), ops.subtract(w, v)]


PROGRAMS = [
    one_step, old_value_is_read_later, swapped, old_value_is_returned, new_value_is_returned,
    view_of_old_value_is_returned, other_elements_are_read, transposed_twice, one_value_for_two, each_reads_the_other,
]  # fmt: skip


def module_of(body: Any) -> Module:
    return program({"w": SHAPE, "v": SHAPE, "dw": SHAPE}, body, {1: 0, 2: 1})


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("body", PROGRAMS, ids=lambda f: f.__name__)
def test_values_agree_with_functional_execution(body: Any, fuse: bool) -> None:
    module, inputs = module_of(body), randoms(SHAPE, SHAPE, SHAPE)
    executor = meta.vm.compile(module, fuse=fuse)
    expected = inputs
    for _ in range(3):
        results = run(module, *copies(expected))
        outputs = executor(*inputs)
        assert outputs[1] is inputs[0]
        assert outputs[2] is inputs[1]
        assert_same(outputs, results, rtol=1e-5)
        expected = [results[1], results[2], expected[2]]
        before = outputs[0].numpy().copy()
        assert all(outputs[0].numpy().ctypes.data != x.numpy().ctypes.data for x in inputs[:2])
        np.testing.assert_array_equal(outputs[0].numpy(), before)


@pytest.mark.parametrize("body", PROGRAMS, ids=lambda f: f.__name__)
def test_parameters_keep_their_memory(body: Any) -> None:
    inputs = randoms(SHAPE, SHAPE, SHAPE)
    before = [x.numpy().ctypes.data for x in inputs]
    meta.vm.compile(module_of(body))(*inputs)
    assert [x.numpy().ctypes.data for x in inputs] == before


def test_a_training_step_copies_nothing() -> None:
    executor = meta.vm.compile(module_of(one_step))
    inputs = randoms(SHAPE, SHAPE, SHAPE)
    assert "copy" not in executor.ir(*inputs, stage="planned")
    assert executor.memory(*inputs).intermediates == 0


def test_writes_invalidate_saved_values() -> None:
    w, v, dw = randoms(SHAPE, SHAPE, SHAPE)
    w.requires_grad = True
    y = w * w
    meta.vm.compile(module_of(one_step))(w.detach(), v, dw)
    with pytest.raises(meta.errors.GradientError, match="in place"):
        y.backward(meta.array(np.ones(SHAPE, "float32")))


def test_all_results_are_arrays_of_the_declared_types() -> None:
    outputs = meta.vm.compile(module_of(one_step))(*randoms(SHAPE, SHAPE, SHAPE))
    assert [x.shape for x in flat(outputs)] == [(), SHAPE, SHAPE]


def test_an_old_value_is_returned_and_the_new_one_read() -> None:
    """The kernel of the new value stays before its reader, although the copy of the old value comes later."""

    @meta.trace
    def step(x, y):
        old, new = x * 1, x + y
        first = meta.reshape(new, (4,))[0]
        x.update(new)
        return old, first

    x = meta.array([[1, 2], [3, 4]], dtype="complex64")
    old, first = meta.vm.compile(step)(x, x * 2)
    assert old.tolist() == [[1, 2], [3, 4]]
    assert first.item() == 3
    assert x.tolist() == [[3, 6], [9, 12]]


@pytest.mark.parametrize("dynamic", [None, {"cache": {0: "c"}}], ids=["known", "symbolic"])
@pytest.mark.parametrize("accumulate", [False, True], ids=["update", "add"])
def test_scatter_into_a_parameter_writes_its_updates_only(dynamic: Any, accumulate: bool) -> None:
    """No kernel copies the other rows, and a second reader of the old value still gets it."""
    write = meta.index_add if accumulate else meta.index_copy

    def append(rows: Any, at: Any, cache: Any) -> Any:
        cache.update(write(cache, 0, at, rows))
        return cache.sum()

    def append_and_compare(rows: Any, at: Any, cache: Any) -> Any:
        before = cache.exp()
        cache.update(write(cache, 0, at, rows))
        return before, cache.exp()

    rng = np.random.default_rng(0)
    rows, at = rng.normal(size=(2, 4)).astype(np.float32), np.array([4, 2])
    start = rng.normal(size=(6, 4)).astype(np.float32)
    expected = start.copy()
    expected[at] = expected[at] + rows if accumulate else rows
    for function in (append, append_and_compare):
        cache = meta.array(start.copy())
        executor = meta.vm.compile(function, dynamic=dynamic)
        result = executor(rows, at, cache)
        np.testing.assert_array_equal(cache.numpy(), expected)
        if function is append:
            text = executor.ir(rows, at, cache, stage="planned")
            assert "_over_" in text
            assert "cls.copy" not in text
        else:
            np.testing.assert_allclose(result[0].numpy(), np.exp(start), rtol=1e-6)
            np.testing.assert_allclose(result[1].numpy(), np.exp(expected), rtol=1e-6)
