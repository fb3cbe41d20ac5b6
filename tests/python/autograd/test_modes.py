"""no_grad, enable_grad, and writes to arrays that gradients need."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import meta
from meta.autograd import is_grad_enabled
from meta.eager.gradient_graph import record_write
from meta.errors import GradientError


def leaf() -> meta.NDArray:
    x = meta.array(np.ones(3, "float32"))
    x.requires_grad = True
    return x


def test_no_grad_and_enable_grad_nest() -> None:
    x = leaf()
    with meta.no_grad():
        assert not (x * 2).requires_grad
        with meta.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad


def test_as_decorators() -> None:
    x = leaf()

    @meta.no_grad()
    def called(a: meta.NDArray, depth: int = 2) -> meta.NDArray:
        return called(a, depth - 1) if depth else a * 2

    @meta.no_grad
    def bare(a: meta.NDArray) -> meta.NDArray:
        return a * 2

    @meta.enable_grad
    def on(a: meta.NDArray) -> meta.NDArray:
        return a * 2

    assert not called(x).requires_grad
    assert not bare(x).requires_grad
    assert is_grad_enabled()
    with meta.no_grad():
        assert on(x).requires_grad
    assert bare.__name__ == "bare"


def test_one_object_entered_twice() -> None:
    mode = meta.no_grad()
    with mode, mode:
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_restored_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), meta.no_grad():
        raise ZeroDivisionError
    assert is_grad_enabled()


def test_backward_restores_the_mode_after_an_error() -> None:
    x = leaf()
    y = (x * 2).sum()
    y.backward()
    with pytest.raises(GradientError):
        y.backward()
    assert is_grad_enabled()


def test_modes_are_local_to_a_thread() -> None:
    states: list[bool] = []
    with meta.no_grad():
        thread = threading.Thread(target=lambda: states.append(is_grad_enabled()))
        thread.start()
        thread.join()
    assert states == [True]


def test_rejects_saved_values_written_in_place() -> None:
    x, w = leaf(), meta.ones((3,))
    y = (x * w).sum()
    record_write("update", w)
    with pytest.raises(
        GradientError,
        match=r"\[multiply\] a value of shape \(3,\) that its gradient needs was modified in place \(version 1, saved",
    ):
        y.backward()


def test_rejects_saved_values_written_through_an_alias() -> None:
    x, w = leaf(), meta.ones((3,))
    y = (x * w).sum()
    record_write("update", w.detach().reshape((3, 1)))
    with pytest.raises(GradientError, match="modified in place"):
        y.backward()


def test_rejects_saved_results_written_in_place() -> None:
    x = leaf()
    y = meta.exp(x)
    with meta.no_grad():
        record_write("update", y)
    with pytest.raises(GradientError, match=r"\[exp\] a value .* modified in place"):
        y.sum().backward()


def test_allows_writes_to_values_that_no_gradient_reads() -> None:
    x, c = leaf(), meta.ones((3,))
    y = (x + c).sum()
    record_write("update", c)
    y.backward()
    assert x.grad is not None


def test_writes_to_arrays_in_a_graph() -> None:
    x = leaf()
    with pytest.raises(GradientError, match=r"\[update\] the array of shape \(3,\) written in place is a leaf"):
        record_write("update", x)
    with pytest.raises(GradientError, match=r"computed from arrays that require grad.*no_grad"):
        record_write("update", x * 2)
    with meta.no_grad():
        record_write("update", x)
