"""NumPy arrays as operands, and NumPy's functions on arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.eager.ufuncs import OPERATORS
from meta.errors import ArgumentError, NotSupportedError

HOST = np.array([[0.25, 0.5], [0.75, 1.0]], "float32")
INTEGERS = {"bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"}
PYTHON = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
          operator.matmul, operator.lt, operator.eq]  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_universal_functions(name: str) -> None:
    ufunc = getattr(np, name)
    host = (HOST * 8).astype("int32") if name in INTEGERS else HOST + 1 if name == "arccosh" else HOST * 0.99
    x = meta.array(host)
    expected = ufunc(*[host] * ufunc.nin)
    for operands in {2: [(x, x), (x, host), (host, x)], 1: [(x,)]}[ufunc.nin]:
        result = ufunc(*operands)
        assert isinstance(result, meta.NDArray)
        np.testing.assert_allclose(result.numpy(), expected, rtol=2e-6)


@pytest.mark.parametrize("op", PYTHON, ids=lambda op: op.__name__)
def test_python_operators(op: Callable[[Any, Any], Any]) -> None:
    x = meta.array(HOST)
    for a, b in ((x, HOST), (HOST, x)):
        result = op(a, b)
        assert isinstance(result, meta.NDArray)
        np.testing.assert_allclose(result.numpy(), op(HOST, HOST), rtol=2e-6)


@pytest.mark.parametrize("number", [np.float32(2.5), np.float64(2.5), np.array(2.5), np.int64(2), np.bool_(True)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_numpy_scalars_count_as_python_numbers(number: Any, dtype: str) -> None:
    x = meta.ones((2,), dtype=dtype)
    for op in (operator.add, operator.mul):
        expected = op(x, number.item())
        for result in (op(x, number), op(number, x)):
            assert isinstance(result, meta.NDArray)
            assert (result.dtype, result.tolist()) == (expected.dtype, expected.tolist())


def test_scalars_of_the_same_bytes_differ() -> None:
    bits = np.array(1065353216, "int32")
    x = meta.ones((2,))
    assert (x + bits.view("float32")).tolist() == [2.0, 2.0]
    assert (x + bits).tolist() == [1065353216.0] * 2


def test_operands_keep_their_dtype_and_layout_is_no_matter() -> None:
    x = meta.ones((2, 3))
    host = np.arange(6.0).reshape(3, 2)
    for view in (host.T, np.ascontiguousarray(host.T), np.broadcast_to(host.T[:1], (2, 3))):
        result = meta.add(x, view)
        assert result.dtype == "float64"
        np.testing.assert_array_equal(result.numpy(), 1 + view)
    np.testing.assert_array_equal(meta.concatenate([x, np.zeros((1, 3), "float32")]).numpy()[2], np.zeros(3))
    assert meta.softmax(np.zeros((2, 2))).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    with pytest.raises(ArgumentError, match="datetime64"):
        x + np.zeros(3, "datetime64[s]")


def test_gradients_keep_a_copy() -> None:
    w, host = meta.array([1.0, 2.0], requires_grad=True), np.array([3.0, 4.0], "float32")
    loss = (w * host + np.multiply(host, w)).sum()
    host[:] = 0
    loss.backward()
    assert w.grad.tolist() == [6.0, 8.0]  # type: ignore[union-attr]


def test_programs_keep_a_constant() -> None:
    host = np.array([3.0, 4.0], "float32")
    program = meta.vm.compile(meta.trace(lambda x: np.sin(x) * host + np.maximum(host, x)))
    x = meta.array([1.0, 2.0])
    expected = np.sin(x.numpy()) * host + host
    np.testing.assert_allclose(program(x).numpy(), expected, rtol=1e-6)
    host[:] = 0
    np.testing.assert_allclose(program(x).numpy(), expected, rtol=1e-6)


def test_mixed_precision_takes_them() -> None:
    with meta.amp.autocast("bfloat16"):
        assert meta.matmul(meta.ones((2, 2)), np.ones((2, 2), "float32")).dtype == "bfloat16"


def accumulate(x: Any) -> None:
    host = HOST.copy()
    host += x


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x: np.add(x, x, where=HOST > 0),
            "numpy.add.* where= on arrays of meta; expected calls",
        ),
        (np.add.reduce, "numpy.add.* method 'reduce' on arrays of meta"),
        (accumulate, "numpy.add.* the result is to be written into a NumPy array; .*use x.numpy()"),
        (np.cbrt, "numpy.cbrt.* no operator of meta computes it; expected .*call it on x.numpy()"),
    ],
)
def test_refusals(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(NotSupportedError, match=text):
        call(meta.array(HOST))
