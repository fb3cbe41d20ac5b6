"""Compiled programs compute what eager calls do, bit by bit, for NaN, infinities, -0.0 and the limits of dtypes.

`META_TEST_PROGRAMS=N` runs N programs of each dtype in place of the few here."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest

import meta
from meta.interpreter.run import run
from tests.python.vm.special_programs import random_program, special_inputs

PROGRAMS = int(os.environ.get("META_TEST_PROGRAMS", "1"))
DTYPES = ["float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "uint32", "uint64"]


def bits(x: meta.NDArray) -> Any:
    """The values as integers, with one for all NaN."""
    host = x.numpy()
    if host.dtype.kind not in "iub":
        host = np.where(np.isnan(host), host.dtype.type(math.nan), host)
    return np.frombuffer(np.ascontiguousarray(host).tobytes(), f"u{host.dtype.itemsize}")


def assert_same(results: Any, expected: Any, what: str) -> None:
    for i, (a, b) in enumerate(zip(results, expected, strict=True)):
        assert a.type == b.type
        wrong = np.nonzero(bits(a) != bits(b))[0]
        assert not len(wrong), f"{what}, result {i} at {wrong[0]}: {a.numpy()[wrong[0]]}, eager {b.numpy()[wrong[0]]}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs(seed: int, dtype: str) -> None:
    program, inputs = random_program(seed, dtype, 12), special_inputs(dtype)
    expected = program(*inputs)
    traced = meta.trace(program)
    assert_same(run(traced.record(*inputs).module, *inputs), expected, "interpreter")
    assert_same(meta.vm.compile(traced)(*inputs), expected, "vm")


def test_identities_of_real_numbers() -> None:
    def program(x: Any) -> list[Any]:
        zeros = meta.zeros_like(x)
        return [
            x * 0.0, x * zeros, 0.0 / x, zeros / x, x / 0.0, x / zeros, x - x, x == x, x != x, x + 0.0, zeros + x,
            x - -0.0, (x + 1.0) - x, meta.logical_not(x < 3.0), meta.logical_or(x < 3.0, x >= 3.0), meta.negative(-x),
            x.cast("bfloat16").cast("float32"), meta.full_like(x, 0.1).cast("bfloat16").cast("float32"),
            meta.full_like(x, 0.1).cast("float16").cast("float32"), meta.leaky_relu(x, 0.0),
        ]  # fmt: skip

    x = special_inputs("float32")[1]
    assert_same(meta.vm.compile(meta.trace(program))(x), program(x), "vm")
