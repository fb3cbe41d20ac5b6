"""Integers wrap around in compiled programs as they do eagerly, in the interpreter and in NumPy.

`META_TEST_PROGRAMS=N` runs N programs of each dtype in place of the one here."""

from __future__ import annotations

import operator
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta import dtype as dtypes
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library
from meta.backend.tvm import target as targets
from meta.backend.tvm.schedule import patterns
from meta.interpreter.run import run
from tests.python.vm.special_programs import special_inputs, special_values

PROGRAMS = int(os.environ.get("META_TEST_PROGRAMS", "1"))
DTYPES = ["uint8", "int8", "int16", "int32", "int64"]
SIGNED = DTYPES[1:]
UNSIGNED = ["uint16", "uint32", "uint64"]
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.xor]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
UNARY = [operator.neg, abs, operator.invert]


def random_program(seed: int, dtype: str) -> Callable[[Any, Any], list[Any]]:
    """A function of two arrays of meta or NumPy: integer operators, whose results are compared with their operands."""

    def program(x: Any, y: Any) -> list[Any]:
        rng = random.Random(seed)
        values, results = [x, y], []
        for _ in range(8):
            a = rng.choice(values[-4:])
            special = rng.choice(special_values(dtype))
            b = rng.choice([rng.choice(values), special, _library(a).full_like(a, special)])
            if rng.random() < 0.2:
                result = rng.choice(UNARY)(a)
            else:
                result = rng.choice(ARITHMETIC)(*rng.choice([(a, b), (b, a)]))
            values.append(result)
            results += [result, rng.choice(COMPARISONS)(result, rng.choice([a, b]))]
        return results

    return program


def assert_wraps(program: Callable[..., list[Any]], *inputs: meta.NDArray) -> None:
    """Eager calls, the interpreter, the VM and NumPy agree on a program."""
    with np.errstate(all="ignore"):
        expected = program(*(x.numpy() for x in inputs))
    traced = meta.trace(program)
    results = {
        "eager": program(*inputs),
        "interpreter": run(traced.record(*inputs).module, *inputs),
        "vm": meta.vm.compile(traced)(*inputs),
    }
    for name, values in results.items():
        for i, (value, wrapped) in enumerate(zip(values, expected, strict=True)):
            np.testing.assert_array_equal(value.numpy(), wrapped.astype(value.numpy().dtype), f"{name}, result {i}")


@pytest.mark.parametrize("dtype", [*DTYPES, *UNSIGNED])
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs(seed: int, dtype: str) -> None:
    assert_wraps(random_program(seed, dtype), *special_inputs(dtype)[:2])


@pytest.mark.parametrize("dtype", [*DTYPES, "uint32", "uint64"])
def test_identities_of_numbers_without_limits(dtype: str) -> None:
    low, high = dtypes.int_range(dtype)
    few = 100  # whose square int8 does not hold

    def program(x: Any, y: Any) -> list[Any]:
        return [
            x + 1 > x, x - 1 < x, x + x > x, x + y > x, x * 2 // 2 == x, x * y // 3, (x // few) // few, x + low,
            x - low, x + high, x - high < x, -x < 0, abs(x) < 0, abs(x) == -x, x * x >= 0, x + high > y + high,
            (x << 1) > x, ~x > x, (x + y) - y == x, x // -1 if low else x // 1, -(x // high), x % high + high,
        ]  # fmt: skip

    assert_wraps(program, *special_inputs(dtype)[:2])


def _library(x: Any) -> Any:
    return np if isinstance(x, np.ndarray) else meta


DIVISORS: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda x: _library(x).zeros_like(x),
    "selected zeros": lambda x: _library(x).where(x == x, _library(x).full_like(x, 0), x),
    "positions": lambda x: _library(x).arange(x.shape[0], dtype=x.dtype),
}


@pytest.mark.parametrize("name", DIVISORS)
@pytest.mark.parametrize("dtype", ["int64", "uint32"])
def test_divisors_that_the_compiler_knows(name: str, dtype: str) -> None:
    """TVM refuses to divide by zeros that it knows. Each quotient is a program, in which the divisor is fused."""
    x = meta.array(np.array([7, 5, 0, dtypes.int_range(dtype)[0], 3]).astype(dtype))

    def quotient(x: Any) -> list[Any]:
        return [x // DIVISORS[name](x)]

    def guarded_remainder(x: Any) -> list[Any]:
        divisor = DIVISORS[name](x)
        return [_library(x).where(divisor == 0, x, x % divisor)]

    for program in (quotient, guarded_remainder):
        assert_wraps(program, x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sums_and_products(dtype: str) -> None:
    high = dtypes.int_range(dtype)[1]
    x = meta.array(np.array([[high, high - 1, 3], [high, 7, -2], [-high, -high, -high]], dtype))

    def program(x: Any) -> list[Any]:
        library = _library(x)
        wide = [f(x, axis=axis) for axis in (0, 1) for f in (library.sum, library.prod, library.cumsum)]
        product = library.matmul(x, x)
        return [v for r in (*wide, product) for v in (r, r + 1 > r, r * 3 + high, r - high < r)]

    assert_wraps(program, x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_vector_code(dtype: str) -> None:
    """Wrapping arithmetic is that of vectors of the dtype itself, and never marked as fitting."""
    tvm.load()
    x, y = (tvm.te.placeholder((4096,), dtype, name) for name in "xy")
    z = tvm.te.compute(x.shape, lambda i: (x(i) + y(i)) * x(i) - y(i), "z")
    func = tvm.create_prim_func([x, y, z]).without_attr("global_symbol")
    target = targets.target("cpu")
    module = library.compile_functions({"kernel": patterns.schedule(func, "elemwise", target)}, target)
    element = dtype.replace("int", "i")
    lines = [line for line in module.inspect_source("ll").splitlines() if f"x {element}>" in line]
    for operation in ("add", "sub", "mul"):
        assert any(f"= {operation} <" in line for line in lines), operation
        assert not any(f"= {operation} nsw" in line or f"= {operation} nuw" in line for line in lines)
