"""Arrays of calls that share memory: those that a program overwrites must not, and results do where eager ones do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError, GradientError

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
        "[vm] 'w' and 'v' share memory, and the program overwrites one of them; expected arrays in separate memory; "
        "make one of them a copy (at "
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


# --- results ---------------------------------------------------------------------------------------------------------

HELD = meta.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
RESULTS = {
    "equal values": lambda x: (x + 1.0, x + 1.0, (x + 1.0) * 1.0),
    "views of equal values": lambda x: ((x + 1.0).reshape((3, 2)), (x + 1.0).reshape((6,))),
    "copies of an input": lambda x: (x, x.clone(), x.cast("float64").cast("float32"), meta.expand(x, (2, 3))),
    "copies of the state": lambda x: (HELD, HELD.clone(), HELD + x, HELD + x),
    "equal constants": lambda x: (meta.zeros((2, 3)), meta.zeros((2, 3)), meta.full((2, 3), 0.0), x + 1.0),
    "two splits": lambda x: (*meta.split(x, [1]), *meta.split(x, [1])),
    "views": lambda x: (lambda y: (y, y, y.reshape((6,)), x.reshape((3, 2))))(x + 1.0),
    "a branch": lambda x: meta.cond(x.sum() > 0, lambda a: (a + 1.0, a + 1.0, a.clone()), lambda a: (a, a * 2.0, a), x),
}


def shared(arrays: Any) -> list[int]:
    """For each array, the first one of the same memory."""
    pointers = [x._data.data_ptr() for x in arrays]
    return [pointers.index(p) for p in pointers]


@pytest.mark.parametrize("name", RESULTS)
def test_results_share_memory_as_eager_ones_do(name: str) -> None:
    function, x = RESULTS[name], meta.ones((2, 3))
    expected = function(x)
    results = meta.vm.compile(meta.trace(function))(x)
    assert shared([x, HELD, *results]) == shared([x, HELD, *expected])
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_writes_to_results_count_for_the_arrays_that_they_are() -> None:
    executor = meta.vm.compile(meta.trace(lambda x: (x.reshape((3,)), x * 2.0)))
    w = meta.array([1.0, 2.0, 3.0], requires_grad=True)
    squares = (w * w).sum()
    same, _ = executor(w.detach())
    same += 1.0  # the memory of w, which the gradient reads
    with pytest.raises(GradientError, match="in place"):
        squares.backward()

    twice = meta.vm.compile(meta.trace(lambda x: (lambda y: (y, y.reshape((3, 1))))(meta.exp(x))))
    y, view = twice(w)
    with meta.no_grad():
        view += 1.0
    with pytest.raises(GradientError, match="in place"):
        y.sum().backward()
