"""uint16, uint32 and uint64: results at the ends of their ranges are those of Python's integers modulo 2**bits, eagerly
and in programs, and arrays come from and go to NumPy and torch."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import dtype as dtypes
from meta.errors import ArgumentError, PositionError, TypeInferenceError

DTYPES = ["uint16", "uint32", "uint64"]
BINARY: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "maximum": max, "minimum": min,
    "floor_divide": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
    "trunc_divide": lambda a, b: a // b if b else 0, "trunc_mod": lambda a, b: a % b if b else 0,
    "power": lambda a, b: pow(a, b, 1 << 64), "gcd": math.gcd, "lcm": math.lcm, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "left_shift": lambda a, b: a << b if b < 64 else 0,
    "right_shift": lambda a, b: a >> b, "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip
UNARY: dict[str, Callable[[int], int]] = {
    "abs": abs, "bitwise_not": operator.invert, "negative": operator.neg, "relu": abs, "square": lambda a: a * a,
    "sign": lambda a: a > 0,
}  # fmt: skip


def limits(dtype: str) -> list[int]:
    """Numbers at the ends of the range of a dtype and in its middle, where signed numbers end."""
    high = dtypes.int_range(dtype)[1]
    return [0, 1, 2, 7, high // 2, high // 2 + 1, high - 1, high]


def pairs(dtype: str) -> tuple[list[int], list[int]]:
    a, b = zip(*itertools.product(limits(dtype), repeat=2), strict=True)
    return list(a), list(b)


def expected(name: str, dtype: str) -> list[int]:
    """The results for `pairs`, or for the first of them."""
    numbers = pairs(dtype)
    results = map(BINARY[name], *numbers) if name in BINARY else map(UNARY[name], numbers[0])
    return [int(x) % (dtypes.int_range(dtype)[1] + 1) for x in results]


def call(name: str, a: Any, b: Any) -> Any:
    return getattr(meta, name)(a, b) if name in BINARY else getattr(meta, name)(a)


@pytest.mark.parametrize("name", [*BINARY, *UNARY])
def test_eager(name: str) -> None:
    dtype = DTYPES[len(name) % 3]
    a, b = (meta.array(np.array(side, dtype)) for side in pairs(dtype))
    assert [int(x) for x in call(name, a, b).tolist()] == expected(name, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_programs(dtype: str) -> None:
    names = [*BINARY, *UNARY]
    a, b = (meta.array(np.array(side, dtype)) for side in pairs(dtype))
    results = meta.vm.compile(meta.trace(lambda a, b: [call(name, a, b) for name in names]))(a, b)
    for name, result in zip(names, results, strict=True):
        assert [int(x) for x in result.tolist()] == expected(name, dtype), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_casts_as_in_numpy(dtype: str) -> None:
    host = np.array(limits(dtype), dtype)
    x = meta.array(host)
    for other in dtypes.ALL:
        # Halves are rounded from float64 or integers at once.
        if other not in dtypes.HALVES and not dtypes.is_complex(other):
            np.testing.assert_array_equal(x.cast(other).numpy(), host.astype(other), other)
        low = -3 if other.startswith("int") else 0
        back = np.arange(low, 100, 9).astype(dtypes.to_numpy(other))
        np.testing.assert_array_equal(meta.array(back).cast(dtype).numpy(), back.real.astype(dtype), other)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_and_orders(dtype: str) -> None:
    host = np.array(limits(dtype)[::-1], dtype)
    x = meta.array(host)
    assert (x.max().item(), x.min().item(), meta.argmax(x).item()) == (host.max(), 0, 0)
    total = sum(limits(dtype))
    assert meta.sum(x).dtype == "int64"
    assert meta.sum(x).cast(dtype).item() == total % (dtypes.int_range(dtype)[1] + 1)
    assert meta.sort(x).tolist() == limits(dtype)
    values, positions = meta.topk(x, 2)
    assert (values.tolist(), positions.tolist()) == (host[:2].tolist(), [0, 1])
    assert meta.clip(x, 2, limits(dtype)[-2]).tolist() == np.clip(host, 2, limits(dtype)[-2]).tolist()
    rows = host.reshape(2, 4)
    np.testing.assert_array_equal(meta.matmul(meta.array(rows), meta.array(rows.T)).numpy(), rows @ rows.T)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_other_libraries_and_files(dtype: str, tmp_path: Path) -> None:
    high = dtypes.int_range(dtype)[1]
    x = meta.array([high, 0], dtype=dtype)
    theirs = torch.from_dlpack(x)
    assert (theirs.dtype, theirs.tolist()) == (getattr(torch, dtype), [high, 0])
    for arrived in (meta.array(theirs), meta.from_dlpack(theirs), meta.array(x.numpy()), meta.full_like(x, high)):
        assert (arrived.dtype, arrived.tolist()[0]) == (dtype, high)
    assert str(x).startswith(f"[{high}")
    meta.save(tmp_path / "x.safetensors", {"x": x})
    loaded = meta.load(tmp_path / "x.safetensors")["x"]
    assert (loaded.dtype, loaded.tolist()) == (dtype, [high, 0])
    y = meta.zeros_like(x)
    y[1] = high
    assert y.tolist() == [0, high]


@pytest.mark.parametrize("dtype", [*DTYPES, "uint8"])
def test_promotion_as_in_numpy(dtype: str) -> None:
    for other in ("bool", *dtypes.INTS):
        reference = str(np.promote_types(dtype, other))
        assert dtypes.promote(dtype, other) == dtypes.promote(other, dtype) == reference


def test_numbers_beyond_int64() -> None:
    x = meta.array([5, 2**63 + 1], dtype="uint64")
    assert (x + 2**63).tolist() == [2**63 + 5, 1]
    assert ((x == 2**63 + 1).tolist(), (x > -1).tolist(), (x < -1).tolist()) == ([False, True], [True] * 2, [False] * 2)
    assert meta.arange(2**64 - 1, 2**64 - 6, -2, dtype="uint64").tolist() == [2**64 - 1, 2**64 - 3, 2**64 - 5]
    with pytest.raises(ArgumentError, match=r"the number 9223372036854775808 does not fit into int64"):
        meta.array([2**63])
    with pytest.raises(ArgumentError, match=r"the number -1 does not fit into uint64"):
        meta.array([-1, 2**63], dtype="uint64")
    with pytest.raises(TypeInferenceError, match=r"the number -1 does not fit into uint64"):
        _ = x + -1
    with pytest.raises(TypeInferenceError, match=r"\[bitwise_and\] 'x1' has dtype float64"):
        _ = x & meta.array([1, 2])


def test_positions_beyond_int64() -> None:
    x, inside, beyond = (meta.array(np.array(v)) for v in (np.arange(6.0), np.uint64([5, 0]), np.uint64([2**64 - 1])))
    assert x[inside].tolist() == meta.take(x, inside, axis=0).tolist() == [5.0, 0.0]
    assert meta.take(x, beyond, axis=0, mode="clip").tolist() == [5.0]
    assert meta.take(x, beyond, axis=0, mode="wrap").tolist() == [3.0]
    assert meta.one_hot(beyond, 2).tolist() == [[0.0, 0.0]]
    for reading in (lambda: x[beyond], lambda: x[np.uint64([2**64 - 1])]):
        with pytest.raises(PositionError, match=r"is out of range for axis 0 of size 6"):
            reading()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("round", (np.array([2**64 - 2, 3], np.uint64),)),
        ("sin", (np.array([2**32 - 1, 3], np.uint32),)),
        ("nextafter", (0.5, np.array([2**64 - 1, 0], np.uint64))),
        ("nextafter", (np.array([2, 2**63], np.uint64), float("nan"))),
    ],
)
def test_the_reference_of_large_integers(name: str, arguments: tuple[Any, ...]) -> None:
    """Integers have the values that they have in the dtype of the result."""
    operands = [meta.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
    results = []
    for dialect in ("tvm", "reference"):
        with meta.with_dialect([dialect]):
            results.append(getattr(meta, name)(*operands).numpy())
    np.testing.assert_allclose(*results, rtol=1e-6)
