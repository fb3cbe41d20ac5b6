"""NumPy's functions on arrays: they run operators, keep gradients, or refuse."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.eager.numpy_functions import CONVERSIONS, FUNCTIONS
from meta.errors import ArgumentError, NotSupportedError, PositionError

HOST = np.array([[0.25, -1.5, 0.75], [2.0, 0.0, -3.5]], "float32")

Call = Callable[..., Any]
"""A call of a function of NumPy on HOST, or on an array of meta with the same values."""


def reductions(function: Call) -> list[Call]:
    return [function, lambda x: function(x, axis=0), lambda x: function(x, 1, None, keepdims=True)]


REDUCTIONS: dict[str, list[Call]] = {
    name: reductions(getattr(np, name))
    for name in ("all", "amax", "amin", "any", "max", "mean", "min", "prod", "sum", "std", "var")
}
CALLS: dict[str, list[Call]] = REDUCTIONS | {
    "std": [*REDUCTIONS["std"], lambda x: np.std(x, ddof=1), lambda x: np.std(x, correction=1)],
    "var": [*REDUCTIONS["var"], lambda x: np.var(x, 0, None, None, 1)],
    "allclose": [lambda x: np.allclose(x, x + 1e-9), lambda x: np.allclose(x, x + 0.1, atol=1e-3)],
    "angle": [np.angle],
    "argmax": [np.argmax, lambda x: np.argmax(x, axis=1)],
    "argmin": [np.argmin, lambda x: np.argmin(x, axis=0, keepdims=True)],
    "argsort": [np.argsort, lambda x: np.argsort(x, axis=None, kind="stable"), lambda x: np.argsort(x, 0)],
    "argwhere": [np.argwhere],
    "around": [np.around],
    "array_equal": [lambda x: np.array_equal(x, x), lambda x: np.array_equal(x, x[0])],
    "broadcast_to": [lambda x: np.broadcast_to(x, (2, 2, 3))],
    "clip": [lambda x: np.clip(x, -1, 1), lambda x: np.clip(x, None, 1.0), lambda x: np.clip(x, min=0.0)],
    "concatenate": [
        lambda x: np.concatenate([x, x]),
        lambda x: np.concatenate((x, HOST, x), axis=1),
        lambda x: np.concatenate([x, x[0]], axis=None),
    ],
    "copy": [np.copy],
    "cumprod": [np.cumprod, lambda x: np.cumprod(x, axis=1)],
    "cumsum": [np.cumsum, lambda x: np.cumsum(x, 0)],
    "dot": [lambda x: np.dot(x, x.T), lambda x: np.dot(x, x[0]), lambda x: np.dot(HOST, x[0]),
            lambda x: np.dot(x, HOST[0, 0])],
    "einsum": [lambda x: np.einsum("ij,kj->ik", x, HOST)],
    "empty_like": [lambda x: np.shape(np.empty_like(x))],
    "expand_dims": [lambda x: np.expand_dims(x, 1), lambda x: np.expand_dims(x, axis=(0, 2))],
    "flatnonzero": [np.flatnonzero],
    "flip": [np.flip, lambda x: np.flip(x, 1)],
    "fliplr": [np.fliplr],
    "flipud": [np.flipud],
    "full_like": [lambda x: np.full_like(x, 2.5), lambda x: np.full_like(x, 2, dtype="int32")],
    "hstack": [lambda x: np.hstack([x, x]), lambda x: np.hstack((x[0], x[1]))],
    "imag": [lambda x: np.imag(x * (1 + 2j))],
    "isclose": [lambda x: np.isclose(x, HOST * 1.001), lambda x: np.isclose(x, HOST * 1.001, rtol=0.01)],
    "isreal": [np.isreal],
    "matrix_transpose": [np.matrix_transpose],
    "moveaxis": [lambda x: np.moveaxis(x, 0, 1)],
    "ndim": [np.ndim],
    "nonzero": [np.nonzero],
    "ones_like": [np.ones_like],
    "outer": [lambda x: np.outer(x, x[0])],
    "ravel": [np.ravel, lambda x: np.ravel(x, order="C")],
    "real": [np.real, lambda x: np.real(x * (1 + 2j))],
    "repeat": [lambda x: np.repeat(x, 2), lambda x: np.repeat(x, 2, axis=1)],
    "reshape": [lambda x: np.reshape(x, (3, 2)), lambda x: np.reshape(x, -1)],
    "roll": [lambda x: np.roll(x, 1), lambda x: np.roll(x, 1, axis=1)],
    "round": [np.round, lambda x: np.round(x, 0)],
    "searchsorted": [
        lambda x: np.searchsorted(np.array([-2, 0, 1], "float32"), x),
        lambda x: np.searchsorted(np.sort(x[0]), x[1], side="right"),
    ],
    "shape": [np.shape],
    "size": [np.size, lambda x: np.size(x, 1)],
    "sort": [np.sort, lambda x: np.sort(x, axis=None), lambda x: np.sort(x, axis=0)],
    "split": [lambda x: np.split(x, 3, axis=1), lambda x: np.split(x, [1])],
    "squeeze": [lambda x: np.squeeze(x[:, :1]), lambda x: np.squeeze(x[:, :1], axis=1)],
    "stack": [lambda x: np.stack([x, x]), lambda x: np.stack([x, HOST], axis=-1)],
    "swapaxes": [lambda x: np.swapaxes(x, 0, 1)],
    "take": [lambda x: np.take(x, [0, -1]), lambda x: np.take(x, np.array([[1, -1]]), axis=1)],
    "tile": [lambda x: np.tile(x, 2), lambda x: np.tile(x, (2, 1))],
    "transpose": [np.transpose, lambda x: np.transpose(x, (1, 0))],
    "tril": [np.tril, lambda x: np.tril(x, -1)],
    "triu": [np.triu, lambda x: np.triu(x, k=1)],
    "vstack": [lambda x: np.vstack([x, x]), lambda x: np.vstack([x[0], x])],
    "where": [lambda x: np.where(x > 0, x, -1.0), lambda x: np.where(HOST > 0, HOST, x), np.where,
              lambda x: np.where(x, x, 1.0)],
    "zeros_like": [np.zeros_like],
}  # fmt: skip


def check(actual: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            check(a, b)
    elif isinstance(expected, (bool, int)):
        assert type(actual) is type(expected)
        assert actual == expected
    else:
        assert isinstance(actual, meta.NDArray)
        assert (actual.dtype, actual.shape) == (str(expected.dtype), expected.shape)
        np.testing.assert_allclose(actual.numpy(), expected, rtol=2e-6)


def test_every_function_is_called() -> None:
    assert set(CALLS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    x = meta.array(HOST)
    for call in CALLS[name]:
        check(call(x), call(HOST))


@pytest.mark.parametrize(
    ("call", "gradient"),
    [
        (lambda x: np.concatenate([x, HOST, x]).sum(), [[2.0] * 3] * 2),
        (lambda x: np.sum(np.mean(x, axis=0)), [[0.5] * 3] * 2),
        (lambda x: np.sum(np.where(HOST > 0, x, 0.0)), [[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
        (lambda x: np.sum(np.stack([x, x * 2.0], axis=1)), [[3.0] * 3] * 2),
        (lambda x: np.sum(np.take(x, [0, 0, -1], axis=1)), [[2.0, 0.0, 1.0]] * 2),
        (lambda x: np.dot(x[0], np.ravel(x)[:3]), [[0.5, -3.0, 1.5], [0.0] * 3]),
        (lambda x: np.einsum("ij->", x), [[1.0] * 3] * 2),
    ],
)
def test_gradients(call: Call, gradient: list[list[float]]) -> None:
    x = meta.array(HOST, requires_grad=True)
    call(x).backward()
    assert x.grad.tolist() == gradient  # type: ignore[union-attr]


def test_in_programs() -> None:
    program = meta.vm.compile(meta.trace(lambda x: np.sum(np.concatenate([x, HOST]), axis=0)))
    np.testing.assert_allclose(program(meta.array(HOST)).numpy(), HOST.sum(0) * 2, rtol=1e-6)


def test_functions_of_values_convert() -> None:
    x = meta.array(HOST)
    assert np.array2string(x) == np.array2string(HOST)
    file = io.BytesIO()
    np.savez(file, x, named=x)
    file.seek(0)
    saved = np.load(file)
    np.testing.assert_array_equal(saved["arr_0"], HOST)
    np.testing.assert_array_equal(saved["named"], HOST)
    target = np.zeros_like(HOST)
    np.copyto(target, x)
    np.testing.assert_array_equal(target, HOST)
    with pytest.raises(ValueError, match="read-only"):
        np.copyto(x, HOST)  # type: ignore[arg-type]
    assert np.result_type(x, x) == np.float32
    assert all(hasattr(np, name) for name in CONVERSIONS)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (np.median, r"\[numpy.median\] no operator .* call it on values, without gradients: np.median\(x.numpy\(\)"),
        (np.linalg.norm, r"\[numpy.linalg.norm\] no operator .* write meta.linalg.norm\(x, ...\)"),
        (lambda x: np.sum(x, out=HOST[0]), r"\[numpy.sum\] argument out= on arrays of meta; .*np.sum\(x.numpy\(\)"),
        (lambda x: np.sum(x, where=HOST > 0), r"\[numpy.sum\] argument where="),
        (lambda x: np.mean(x, dtype=int), r"\[numpy.mean\] dtype is <class 'int'>; expected a floating dtype"),
        (lambda x: np.concatenate([x, x], casting="unsafe"), r"\[numpy.concatenate\] argument casting="),
        (lambda x: np.ravel(x, order="F"), r"\[numpy.ravel\] argument order="),
        (lambda x: np.round(x, 2), r"\[numpy.round\] argument decimals="),
        (lambda x: np.einsum("ij->i", x, optimize=True), r"\[numpy.einsum\] argument optimize="),
        (lambda x: np.dot(x, np.ones((2, 3, 2), "float32")), r"\[numpy.dot\] operands of 2 and 3 dimensions"),
    ],
)
def test_refusals(call: Call, text: str) -> None:
    with pytest.raises(NotSupportedError, match=text):
        call(meta.array(HOST))


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod", "mean", "std", "var"])
@pytest.mark.parametrize("host", [HOST, np.array([[1, 2, 3], [4, 5, 250]], "int32")], ids=["float32", "int32"])
def test_dtypes_of_reductions(name: str, host: Any) -> None:
    floats = [np.float64, "float32", np.dtype("float16")]
    for dtype in floats if name in ("mean", "std", "var") else [*floats, "int32", "int64", "uint8", "bool"]:
        expected = getattr(np, name)(host, axis=1, dtype=dtype)
        result = getattr(np, name)(meta.array(host), axis=1, dtype=dtype)
        assert result.dtype == str(expected.dtype)
        np.testing.assert_allclose(result.numpy(), expected, rtol=2e-3 if dtype == np.dtype("float16") else 2e-6)
    check(np.sum(meta.array(host), 0, "float64"), np.sum(host, 0, "float64"))


def test_a_dtype_keeps_gradients_and_precision() -> None:
    x = meta.array(np.array([1e8, 1.0, -1e8], "float32"), requires_grad=True)
    total = np.sum(x, dtype="float64")
    assert total.item() == 1.0
    total.backward()
    assert x.grad is not None
    assert (x.grad.dtype, x.grad.tolist()) == ("float32", [1.0, 1.0, 1.0])


def test_dtypes_of_universal_functions() -> None:
    x, integers = meta.array(HOST), np.array([1, 2, 3], "int32")
    check(np.add(x, integers, dtype="float64"), np.add(HOST, integers, dtype="float64"))
    check(np.sqrt(meta.array(integers), dtype=np.float64), np.sqrt(integers, dtype=np.float64))
    check(np.multiply(meta.array(integers), 2, dtype="int64"), np.multiply(integers, 2, dtype="int64"))
    with pytest.raises(NotSupportedError, match=r"\[numpy.add\] an operand is float32 and dtype is int32"):
        np.add(x, 1, dtype="int32")
    with pytest.raises(NotSupportedError, match=r"\[numpy.equal\] the result is bool and dtype is float32"):
        np.equal(x, x, dtype="float32")


def test_other_errors() -> None:
    x = meta.array(HOST)
    with pytest.raises(PositionError, match="7"):
        np.take(x, [7])
    with pytest.raises(ArgumentError, match="one of x and y is missing"):
        np.where(x > 0, x)  # type: ignore[call-overload]
