"""Infinities, NaN, signed zeros, denormals and limits of integer ranges give the same results as torch."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.dtype import FLOATS, HALVES, int_range

VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-30, -1e-30, 1e30, 88.0, 89.0, -104.0, 700.0, -700.0,
          math.inf, -math.inf, math.nan, 0.999999, 1.000001, 20.0, -20.0]  # fmt: skip
RELATIVE = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}

UNARY = [
    "abs", "ceil", "floor", "round", "trunc", "sign", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
    "sqrt", "rsqrt", "reciprocal", "square", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "sigmoid", "relu", "erf", "isnan", "isinf", "isfinite", "logical_not",
]  # fmt: skip
BINARY: dict[str, Callable[..., Any]] = {
    "add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div, "power": torch.pow,
    "maximum": torch.maximum, "minimum": torch.minimum, "atan2": torch.atan2, "equal": torch.eq, "not_equal": torch.ne,
    "less": torch.lt, "greater_equal": torch.ge, "logical_and": torch.logical_and, "logical_xor": torch.logical_xor,
    "mod": torch.remainder, "floor_divide": torch.floor_divide,
}  # fmt: skip
REDUCE: dict[str, Callable[..., Any]] = {
    "sum": torch.sum, "mean": torch.mean, "prod": torch.prod, "max": torch.amax, "min": torch.amin, "all": torch.all,
    "any": torch.any, "argmax": torch.argmax, "argmin": torch.argmin, "logsumexp": torch.logsumexp, "var": torch.var,
    "std": torch.std, "cumsum": torch.cumsum,
}  # fmt: skip
INTEGER: dict[str, Callable[..., Any]] = {
    "add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div, "power": torch.pow,
    "maximum": torch.maximum, "minimum": torch.minimum, "less": torch.lt, "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift, "bitwise_xor": torch.bitwise_xor, "mod": torch.remainder,
    "floor_divide": torch.floor_divide,
}  # fmt: skip


def array(t: Any, dtype: str) -> meta.NDArray:
    return meta.array(t.float().numpy() if dtype == "bfloat16" else t.numpy()).cast(dtype)


def assert_same(result: meta.NDArray, expected: Any, dtype: str) -> None:
    assert result.dtype == str(expected.dtype).removeprefix("torch.")
    a, b = result.numpy().astype(np.float64), expected.double().numpy()
    rtol = RELATIVE.get(dtype, 0.0)
    with np.errstate(invalid="ignore"):
        # A result that torch flushes to zero may be a denormal here.
        near = np.abs(a - b) <= rtol * np.abs(b) + (1e-37 if rtol else 0)
    same = near | (a == b) | (np.isnan(a) & np.isnan(b))
    assert same.all(), f"at {np.argwhere(~same)[0]}: {a[~same][:5]}, torch {b[~same][:5]}"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: str) -> None:
    x = torch.tensor(VALUES).to(getattr(torch, dtype))
    expected = getattr(torch, name)(x)
    if dtype in HALVES and expected.is_floating_point():
        # Rounded once: some of torch's own kernels flush small values.
        expected = getattr(torch, name)(x.double()).to(x.dtype)
    assert_same(getattr(meta, name)(array(x, dtype)), expected, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: str) -> None:
    pairs = torch.tensor(list(itertools.product(VALUES, VALUES))).to(getattr(torch, dtype))
    a, b = pairs[:, 0].contiguous(), pairs[:, 1].contiguous()
    if name == "mod":
        # torch's vectorised fmod gives NaN where the quotient overflows.
        a, b = (t[~(a / b).isinf() | (b == 0) | a.isinf()] for t in (a, b))
    assert_same(getattr(meta, name)(array(a, dtype), array(b, dtype)), BINARY[name](a, b), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", REDUCE)
def test_reduce(name: str, dtype: str) -> None:
    inf, nan = math.inf, math.nan
    rows = [[1, nan, 3], [inf, -inf, 2], [-inf, -inf, -inf], [0, -0.0, -1], [5, 5, nan], [inf, inf, 1], [2, 1, 2]]
    x = torch.tensor(rows).to(getattr(torch, dtype))
    assert_same(getattr(meta, name)(array(x, dtype), 1), REDUCE[name](x, dim=1), dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("name", INTEGER)
def test_integers(name: str, dtype: str) -> None:
    low, high = int_range(dtype)
    values = sorted({low, low + 1, high, high - 1, 0, 1, 2, 3, 7} | ({-1, -2, -3, -7} if low else set()))
    pairs = torch.tensor(list(itertools.product(values, values)), dtype=getattr(torch, dtype))
    if name in ("mod", "floor_divide"):
        # torch raises on the first, and on the second its result depends on the processor.
        pairs = pairs[(pairs[:, 1] != 0) & ~((pairs[:, 0] == low) & (pairs[:, 1] == -1))]
    a, b = pairs[:, 0].contiguous(), pairs[:, 1].contiguous()
    assert_same(getattr(meta, name)(array(a, dtype), array(b, dtype)), INTEGER[name](a, b), dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_integer_division_that_processors_trap(dtype: str) -> None:
    low, _ = int_range(dtype)
    x = meta.array(np.array([low, 5], dtype))
    zero = meta.zeros_like(x)
    assert meta.floor_divide(x, zero).tolist() == meta.mod(x, zero).tolist() == [0, 0]
    if low < 0:
        minus = meta.full_like(x, -1)
        assert meta.floor_divide(x, minus).tolist() == [low, -5]
        assert meta.mod(x, minus).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "value"), [("sum", 0.0), ("prod", 1.0), ("all", True), ("any", False), ("logsumexp", -math.inf)]
)
@pytest.mark.parametrize(("shape", "axis"), [((0,), None), ((3, 0), 1), ((2, 0, 4), (0, 1)), ((0, 3), 0)])
def test_reduction_of_no_elements(name: str, value: float, shape: tuple[int, ...], axis: Any) -> None:
    y = getattr(meta, name)(meta.zeros(shape), axis)
    assert y.numpy().tolist() == np.full(np.sum(np.zeros(shape), axis=axis).shape, value).tolist()


DIALECTS = ["tvm", "reference", "vm"]


def compute(dialect: str, function: Callable[[meta.NDArray], meta.NDArray], x: meta.NDArray) -> meta.NDArray:
    """`function(x)`, eager in a dialect or compiled."""
    if dialect == "vm":
        return meta.vm.compile(meta.trace(function))(x)
    with meta.with_dialect(dialect):
        return function(x)


@pytest.mark.parametrize("dtype", [*FLOATS, "bool", "int8"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_cast_to_bool(dialect: str, dtype: str) -> None:
    x = torch.tensor(VALUES if dtype in FLOATS else [0, 1, 5, 0]).to(getattr(torch, dtype))
    assert_same(compute(dialect, lambda x: x.cast("bool"), array(x, dtype)), x.bool(), "bool")


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_position_of_the_first_zero(dialect: str, name: str) -> None:
    x = meta.array([[-0.0, 0.0, -0.0], [0.0, -0.0, 0.0], [0.0, 0.0, -0.0]])
    assert compute(dialect, lambda x: getattr(meta, name)(x, 1), x).tolist() == [0, 0, 0]


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("name", ["divide", "floor_divide", "mod", "trunc_divide", "trunc_mod"])
def test_zero_as_divisor_in_a_program(name: str, zero: float) -> None:
    x, function = torch.tensor([1.0, -2.0, 0.0, math.nan, math.inf]), getattr(meta, name)
    with np.errstate(all="ignore"):
        expected = {"mod": np.mod, "trunc_mod": np.fmod}.get(name, np.divide)(x.numpy(), np.float32(zero))
    assert_same(compute("vm", lambda x: function(x, zero), array(x, "float32")), torch.tensor(expected), "float32")


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
@pytest.mark.parametrize("name", ["mean", "var", "std"])
def test_mean_of_no_elements_is_nan(name: str, dialect: str) -> None:
    with meta.with_dialect(dialect):
        assert np.isnan(getattr(meta, name)(meta.zeros((2, 0)), 1).numpy()).all()


def test_reference_of_a_gradient_of_no_products() -> None:
    with meta.with_dialect("reference"):
        assert meta.prod_dx(meta.zeros((0, 4)), meta.zeros((0,)), 1).shape == (0, 4)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3, 2)])
def test_no_elements(shape: tuple[int, ...]) -> None:
    x = meta.zeros(shape)
    for y in (meta.exp(x), x + x, x * 2, x**2, meta.cumsum(x, 0), meta.where(x > 0, x, 0), meta.cast(x, "int64") ** 3):
        assert y.shape == shape


ARITHMETIC_METHODS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
BIT_METHODS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@pytest.mark.parametrize("op", [*ARITHMETIC_METHODS, *BIT_METHODS], ids=lambda op: op.__name__)
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_python_operators(op: Callable[[Any, Any], Any], dtype: str) -> None:
    if op in BIT_METHODS and dtype == "float32":
        with pytest.raises(meta.errors.TypeInferenceError, match="has dtype float32"):
            op(meta.array([1.0]), meta.array([2.0]))
        return
    a, b = torch.tensor([5, -3, 2]).to(getattr(torch, dtype)), torch.tensor([2, 2, 3]).to(getattr(torch, dtype))
    x, y = array(a, dtype), array(b, dtype)
    assert_same(op(x, y), op(a, b), dtype)
    assert_same(op(x, 2), op(a, 2), dtype)
    assert_same(op(2, y), op(2, b), dtype)


def test_python_unary_operators() -> None:
    x = meta.array([1.5, -2.0])
    assert (-x).tolist() == [-1.5, 2.0]
    assert (+x).tolist() == [1.5, -2.0]
    assert abs(x).tolist() == [1.5, 2.0]
    assert (~meta.array([True, False])).tolist() == [False, True]


PROMOTION = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize(("a", "b"), list(itertools.product(PROMOTION, PROMOTION)))
def test_promotion_as_in_torch(a: str, b: str) -> None:
    ours = meta.op.registry.get("maximum").infer((_type(a), _type(b)))
    assert ours.dtype == str(torch.promote_types(getattr(torch, a), getattr(torch, b))).removeprefix("torch.")


@pytest.mark.parametrize("number", [True, 2, 2.5])
@pytest.mark.parametrize("dtype", PROMOTION)
def test_promotion_with_numbers_as_in_torch(dtype: str, number: float) -> None:
    ours = meta.op.registry.get("maximum").infer((_type(dtype), number))
    theirs = torch.result_type(torch.zeros(1, dtype=getattr(torch, dtype)), number)
    assert ours.dtype == str(theirs).removeprefix("torch.")


def _type(dtype: str) -> Any:
    from meta.ir.type import tensor_type

    return tensor_type((2,), dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64"])
def test_softsign_of_the_limits_of_integers(dtype: str) -> None:
    low, high = int_range(dtype)
    expected = [low / (1 + abs(low)), high / (1 + high)]
    for name in ("tvm", "reference"):
        with meta.with_dialect(name):
            np.testing.assert_allclose(meta.softsign(meta.array([low, high], dtype=dtype)).numpy(), expected, rtol=1e-6)


def test_incomplete_gamma_functions_of_the_smallest_numbers() -> None:
    a = meta.array([5e-324, 1e-310, 1e-300, 1e-20], dtype="float64")
    np.testing.assert_allclose(meta.igamma(a, 0.5).numpy(), 1.0, rtol=1e-15)
    np.testing.assert_allclose(meta.igammac(a, 0.5).numpy(), 0.0, atol=1e-15)


def test_the_reference_of_zeta_and_logit() -> None:
    """zeta(1, q) is infinite for any q, and logit of integers rounds 1 - eps to float32, as in torch."""
    ones, q = meta.array([1.0, 1.0]), meta.array([math.nan, 2.0])
    flags = meta.array([True, False])
    for dialect in ("tvm", "reference"):
        with meta.with_dialect([dialect]):
            assert meta.zeta(ones, q).numpy().tolist() == [math.inf] * 2
            expected = torch.logit(torch.tensor([True, False]), 1e-5).numpy()
            np.testing.assert_allclose(meta.logit(flags, 1e-5).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
@pytest.mark.parametrize("name", ["igamma", "igammac"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_incomplete_gamma_functions_of_large_numbers(name: str, dialect: str, dtype: str) -> None:
    """Near x = a their series need as many terms as sqrt(a)."""
    a = np.repeat([9e5, 1e6, 1e8, 1e10, 1e20, 2.0**64, 1e30], 5)
    x = a + np.tile([-3.0, -0.1, 0.0, 1.0, 4.0], 7) * np.sqrt(a)
    a, x = a.astype(dtype), x.astype(dtype)
    first, second = torch.tensor(a).double(), torch.tensor(x).double()
    function = torch.special.gammainc if name == "igamma" else torch.special.gammaincc
    normal = torch.special.ndtr((second - first) / first.sqrt() * (1 if name == "igamma" else -1))
    expected = torch.where(first < 1e12, function(first, second), normal)  # torch rounds the quotient of large numbers
    with meta.with_dialect(dialect):
        result = getattr(meta, name)(meta.array(a), meta.array(x)).numpy()
    np.testing.assert_allclose(result, expected.numpy(), rtol=2e-6 if dtype == "float32" else 1e-8)


def test_the_reference_of_incomplete_gamma_functions_ends_for_all_numbers() -> None:
    numbers = meta.array([0.0, 5e-324, 0.5, 1e5, 9e5, 1e7, 2.0**64, 1e300, float("inf")], dtype="float64")
    for name in ("igamma", "igammac"):
        with meta.with_dialect("reference"):
            expected = getattr(meta, name)(numbers[:, None], numbers).numpy()
        np.testing.assert_allclose(
            getattr(meta, name)(numbers[:, None], numbers).numpy(), expected, rtol=1e-9, atol=1e-15
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_beside_narrow_tensors_are_rounded_alike(dtype: str) -> None:
    """A number takes the dtype of the tensor, also where a kernel computes in float32."""
    x = meta.array(np.linspace(0.4, 2.2, 100), dtype)

    def functions(x: Any) -> list[Any]:
        return [
            x + 0.1001,
            x * 1.2345,
            1.2345 / x,
            x**-111.999,
            2.345**x,
            x % 0.1234,
            x < 1.2345,
            meta.atan2(x, 0.1001),
        ]

    eager = functions(x)
    for dialect in ("reference", "vm"):
        if dialect == "vm":
            results: Any = meta.vm.compile(meta.trace(lambda x: tuple(functions(x))))(x)
        else:
            with meta.with_dialect([dialect]):
                results = functions(x)
        for ours, theirs in zip(results, eager, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
