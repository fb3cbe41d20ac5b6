"""Kernels in Triton on the CPU, in Triton's interpreter: `python -m tests.python.op.dialect.triton_programs` runs every
function here and prints the errors by name as JSON. TRITON_INTERPRET must be 1 when triton is imported."""

import json
import sys
import traceback
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import meta
from meta.errors import ArgumentError, KernelError
from meta.op.dialect.triton import pointwise
from meta.schema import Arg, Float, Int, Schema, Tensor
from meta.testing import opcheck

DIALECT = meta.dialect("triton")
_RNG = np.random.default_rng(0)


def _floats(*shape: int, dtype: str = "float32") -> Any:
    return meta.array(_RNG.standard_normal(shape).astype("float32"), dtype=dtype)


def _close(actual: Any, expected: Any, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(actual, np.float64), np.asarray(expected, np.float64), rtol=rtol, atol=1e-6)


@triton.jit
def _tanh_kernel(x, y, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    e = tl.exp(2 * tl.load(x + index, mask=inside))
    tl.store(y + index, 1 - 2 / (e + 1), mask=inside)


def _tanh(x: Any, *, out: Any) -> None:
    _tanh_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)


@triton.jit
def _scaled_add(x1, x2, by):
    return x1 + by * x2


@triton.jit
def _add(x1, x2):
    return x1 + x2


def function_that_launches_a_kernel() -> None:
    x = _floats(7, 100)
    DIALECT.implement("tanh", _tanh, accepts=lambda call: None if call.out.dtype == "float32" else "float32 only")
    try:
        assert meta.explain("tanh", x).chosen == "triton"
        _close(meta.tanh(x).numpy(), np.tanh(x.numpy()))
        _close(meta.vm.compile(meta.trace(lambda x: meta.tanh(x) * 2.0))(x).numpy(), 2 * np.tanh(x.numpy()))
        double = _floats(3, dtype="float64")
        assert "triton (plevel 20): float32 only" in str(meta.explain("tanh", double))
        _close(meta.tanh(double).numpy(), np.tanh(double.numpy()), 1e-12)
        x.requires_grad = True
        meta.tanh(x).sum().backward()
        _close(x.grad.numpy(), 1 - np.tanh(x.detach().numpy()) ** 2, 1e-4)
        opcheck("tanh", (_floats(2, 3),))
    finally:
        DIALECT.remove("tanh")


def pointwise_broadcasts() -> None:
    DIALECT.implement("add", pointwise(_add, block=64))
    try:
        for first, second in (
            ((5, 7), (5, 7)), ((5, 7), (7,)), ((5, 1), (1, 7)), ((2, 3, 4, 5), (3, 1, 5)), ((), (3,)), ((), ()),
            ((0, 3), (3,)), ((1, 1), (1,)), ((2, 1, 3, 1), (1, 4, 1, 5)), ((1000,), ()),
        ):  # fmt: skip
            x, y = _floats(*first), _floats(*second)
            assert meta.explain("add", x, y).chosen == "triton"
            result = meta.add(x, y)
            assert result.shape == np.broadcast_shapes(first, second)
            _close(result.numpy(), x.numpy() + y.numpy())
    finally:
        DIALECT.remove("add")


def pointwise_dtypes() -> None:
    DIALECT.implement("add", pointwise(_add))
    try:
        for dtype in ("float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8"):
            x = meta.array([1, 2, 3], dtype=dtype)
            assert meta.add(x, x).dtype == dtype
            _close(meta.add(x, x).numpy(), [2, 4, 6])
            _close(meta.add(x, 2).numpy(), [3, 4, 5])
        mixed = meta.add(meta.array([1, 2], dtype="int32"), meta.array([0.5, 0.25]))
        _close(mixed.numpy(), [1.5, 2.25])
        _close(meta.add(meta.array([0.1], dtype="float64"), 0.1).numpy(), [0.2], 1e-15)
    finally:
        DIALECT.remove("add")


@triton.jit
def _power_of(x, exponent: tl.constexpr, by):
    for _ in tl.static_range(exponent - 1):
        x = x * x
    return x * by


def pointwise_with_attributes() -> None:
    schema = Schema("squares", Arg("x", Tensor), Arg("times", Int, 1), Arg("by", Float, 1.0))
    squares = meta.define("squares", schema, gradient="non_differentiable")(lambda x, times, by: x)
    DIALECT.implement(squares, pointwise(_power_of))
    x = _floats(3, 4)
    _close(squares(x, 2, 0.5).numpy(), x.numpy() ** 2 * 0.5)
    _close(squares(x, 3, 2.0).numpy(), x.numpy() ** 4 * 2.0)
    _close(squares(x, by=float("inf")).numpy(), x.numpy() * np.inf)
    double = _floats(3, dtype="float64")
    _close(squares(double, 1, 0.1).numpy(), double.numpy() * 0.1, 1e-15)


@triton.jit
def _larger(x1, x2):
    return x1 > x2


def pointwise_with_boolean_results() -> None:
    DIALECT.implement("greater", pointwise(_larger))
    try:
        x, y = _floats(4, 5), _floats(5)
        assert meta.explain("greater", x, y).chosen == "triton"
        assert np.array_equal(meta.greater(x, y).numpy(), x.numpy() > y.numpy())
    finally:
        DIALECT.remove("greater")


@triton.jit
def _both(x, by):
    return x * by, x + by


def pointwise_with_two_results() -> None:
    from meta.ir.type import TupleType

    schema = Schema("product_and_sum", Arg("x", Tensor), Arg("by", Float, 2.0))
    both = meta.define(
        "product_and_sum", schema, gradient="non_differentiable", outputs=("product", "sum")
    )(lambda x, by: TupleType((x, x)))  # fmt: skip
    DIALECT.implement(both, pointwise(_both))
    x = _floats(2, 3)
    product, total = both(x, 3.0)
    _close(product.numpy(), x.numpy() * 3.0)
    _close(total.numpy(), x.numpy() + 3.0)


def pointwise_in_programs_of_unknown_sizes() -> None:
    DIALECT.implement("add", pointwise(_add))
    try:
        from meta.ir.parser import parse

        module = parse(
            'def main(%x: Tensor[(n, 3), "float32"], %y: Tensor[(3,), "float32"]) -> Tensor[(n, 3), "float32"] {\n'
            '  %0: Tensor[(n, 3), "float32"] = add(%x, %y)\n  %0\n}\n'
        )
        executor = meta.vm.compile(module)
        for rows in (1, 4, 9):
            x, y = _floats(rows, 3), _floats(3)
            assert "triton.add" in executor.explain(x, y)
            _close(executor(x, y).numpy(), x.numpy() + y.numpy())
    finally:
        DIALECT.remove("add")


def attention() -> None:
    """One and several blocks of keys, of sizes that do not fill them; all results against the reference."""
    for heads, queries, keys, features, values in (((2, 1), 70, 90, 20, 8), ((1,), 30, 140, 16, 60), ((), 0, 3, 4, 4)):
        for causal, scale in ((False, None), (True, 0.3)):
            shapes = (queries, features), (keys, features), (keys, values), (queries, values)
            operands = [_floats(*heads, *shape) for shape in shapes]
            results = []
            for dialect in ("triton", "reference"):
                with meta.with_dialect(dialect):
                    y, lse = meta.attention_with_lse(*operands[:3], causal=causal, scale=scale)
                    gradients = meta.attention_with_lse_dx(
                        *operands[:3], y, lse, operands[3], causal=causal, scale=scale
                    )
                results.append([y, lse, *gradients])
            for actual, expected in zip(*results, strict=True):
                np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def attention_with_infinite_scores() -> None:
    for value in (np.inf, -np.inf, np.nan):
        q, k, v, dy = (abs(_floats(2, 20, 8).numpy()) + 0.1 for _ in range(4))
        k[0, 3, 0] = q[1, 5, 0] = value
        results = []
        for dialect in ("triton", "reference"):
            operands = [meta.array(x) for x in (q, k, v)]
            with meta.with_dialect(dialect):
                y, lse = meta.attention_with_lse(*operands)
                results.append([y, lse, *meta.attention_with_lse_dx(*operands, y, lse, meta.array(dy))])
        for actual, expected in zip(*results, strict=True):
            np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def attention_is_refused_above_the_sizes_of_its_blocks() -> None:
    wide = meta.explain("attention_with_lse", *(_floats(2, 4, 136) for _ in range(3)))
    assert "136 features of q, at most 128" in str(wide)
    exact = meta.explain("attention_with_lse", *(_floats(2, 4, 72) for _ in range(3)))
    assert "more than 64 features of float32 without TF32" in str(exact)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        fast = meta.explain("attention_with_lse", *(_floats(2, 4, 72) for _ in range(3)))
        assert fast.chosen == "triton"
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def errors() -> None:
    for wrong in (lambda x: x, 3, None):
        with pytest.raises(ArgumentError, match=r"a function compiled by triton\.jit; decorate it with @triton\.jit"):
            pointwise(wrong)
    with pytest.raises(ArgumentError, match="block is 1000; expected a power of two"):
        pointwise(_add, block=1000)
    DIALECT.implement("concatenate", pointwise(_add))
    try:
        with pytest.raises(KernelError, match="is a list of tensors; expected single tensors for pointwise"):
            meta.concatenate([_floats(2), _floats(2)], 0)
    finally:
        DIALECT.remove("concatenate")


if __name__ == "__main__":
    assert torch.tensor(1.0).item() == 1.0
    outcomes = {}
    for name, program in list(globals().items()):
        if not name.startswith("_") and getattr(program, "__module__", "") == "__main__" and callable(program):
            try:
                program()
                outcomes[name] = ""
            except Exception:  # noqa: BLE001  # the test prints it
                outcomes[name] = traceback.format_exc()
    sys.stdout.write(json.dumps(outcomes))
