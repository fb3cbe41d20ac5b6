"""Arrays of calls that share memory: those that a program overwrites must not, and results do where eager ones do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError

from .programs import program


@pytest.fixture(scope="module")
def step() -> Any:
    """A program that overwrites its first input."""

    @meta.trace
    def body(w: Any, v: Any) -> Any:
        w += v * 2.0
        return (w * v).sum()

    return meta.vm.compile(body)


def test_overwritten_inputs_share_no_memory(step: Any) -> None:
    base = np.arange(8, dtype=np.float32)
    x = meta.from_numpy(base[1:5])
    with pytest.raises(ArgumentError) as error:
        step(x, x.detach())
    assert str(error.value).startswith(
        "[vm] 'w' and 'v' share memory, and the program overwrites one of them; expected memory of its own for each "
        "array that is overwritten; make one of them a copy (at "
    )
    for v in (x, x.reshape((4,)), meta.from_numpy(base[:4]), meta.from_numpy(base[4:8])):
        with pytest.raises(ArgumentError, match="'w' and 'v' share memory"):
            step(x, v)
    np.testing.assert_array_equal(base, np.arange(8, dtype=np.float32))  # nothing was written
    step(meta.from_numpy(base[:4]), meta.from_numpy(base[4:]))  # neighbours are not shared
    np.testing.assert_array_equal(base, [8, 11, 14, 17, 4, 5, 6, 7])


def test_overwritten_state_shares_no_memory() -> None:
    w = meta.zeros((2, 3))

    @meta.trace
    def add(x: Any) -> Any:
        nonlocal w
        w += x
        return w.sum()

    executor = meta.vm.compile(add)
    assert executor(meta.ones((2, 3))).item() == 6.0
    with pytest.raises(ArgumentError, match=r"'x' and 'w' share memory"):
        executor(w.detach())
    assert w.sum().item() == 6.0
    view = w.reshape((6,))

    @meta.trace
    def read(x: Any) -> Any:
        nonlocal w
        w += x
        return view.sum()

    with pytest.raises(ArgumentError, match=r"share memory, and the program overwrites one of them"):
        meta.vm.compile(read)(meta.ones((2, 3)))


def test_inputs_that_are_only_read_may_share_memory() -> None:
    x = meta.ones((3,))
    executor = meta.vm.compile(meta.trace(lambda a, b: a + b * 2.0))
    assert executor(x, x).tolist() == executor(x, x.detach()).tolist() == [3.0] * 3


def test_modules_refuse_shared_memory() -> None:
    module = program({"w": (4,), "v": (4,), "u": (4,)}, lambda ops, w, v, u: [ops.add(v, u), ops.add(w, v)], {1: 0})
    executor = meta.vm.compile(module)
    w, v = meta.ones((4,)), meta.ones((4,))
    executor(w, v, v)
    for arguments in ((w, w, v), (w, v, w.detach()), (w, v, w)):
        with pytest.raises(ArgumentError, match=r"share memory, and the program overwrites one of them"):
            executor(*arguments)
