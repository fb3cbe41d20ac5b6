"""Errors of sums against float64 as sizes grow, and the loops that bound them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import meta
from benchmarks import accuracy
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library
from meta.backend.tvm import target as targets
from meta.backend.tvm.schedule import patterns
from meta.backend.tvm.schedule.blocks import uses_variable
from meta.backend.tvm.te.reduce import elements_of, reduce_axes
from tests.python.backend.tvm.test_cuda_code import LIMITS

CASES = {case.name: case for case in accuracy.cases()}


@pytest.mark.parametrize("name", [
    "sum, full, tenths", "sum, full 2d, tenths", "sum, last axis, uniform", "sum, outer axis, tenths",
    "sum, outer axis, wide, uniform", "sum, middle axis, tenths", "sum, two axes, uniform", "sum, full, float64",
    "sum, full, float16 to float32", "mean, outer axis", "var, full, N(1e4, 1)", "var, outer axis, N(1e4, 1)",
    "std, middle axis, N(1e4, 1)", "norm, last axis", "logsumexp, outer axis", "cumsum, one axis",
    "cumprod, outer axis", "mse_loss", "cross_entropy", "batch_norm_train, result, mean 10000",
    "batch_norm_train, invstd, mean 10000", "layer_norm, mean 0", "layer_norm_dwb, dscale", "gradient of a bias",
    "gradient of a scalar factor", "adaptive_avg_pool2d to 1", "softmax, last axis",
])  # fmt: skip
def test_errors_are_at_most_twice_as_large_as_in_torch(name: str) -> None:
    case = CASES[name]
    eager, program, reference = accuracy.errors(case, 100_000, "cpu", draws=1)
    assert max(eager, program) <= accuracy.allowed(case, reference)


_FUNCTIONAL = torch.nn.functional
CONTRACTIONS: dict[str, tuple[Any, Any, tuple[int, ...], tuple[int, ...]]] = {
    "conv2d": (lambda x, w: meta.conv2d(x, w, padding=1), lambda x, w: _FUNCTIONAL.conv2d(x, w, padding=1),
               (1, 512, 7, 7), (32, 512, 3, 3)),
    "conv2d, one place": (meta.conv2d, _FUNCTIONAL.conv2d, (2, 512, 9, 9), (32, 512, 1, 1)),
    "conv2d, groups": (lambda x, w: meta.conv2d(x, w, groups=2), lambda x, w: _FUNCTIONAL.conv2d(x, w, groups=2),
                       (1, 512, 9, 9), (32, 256, 3, 3)),
    "conv1d": (meta.conv1d, _FUNCTIONAL.conv1d, (2, 512, 90), (32, 512, 9)),
    "matmul": (meta.matmul, torch.matmul, (64, 512), (512, 64)),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_errors_of_contractions_do_not_grow_with_channels(name: str) -> None:
    """Of kernels and matrices that are constants of a program, which it packs."""
    ours, theirs, *shapes = CONTRACTIONS[name]
    x, w = (torch.from_numpy(np.random.default_rng(i).normal(size=s).astype("float32")) for i, s in enumerate(shapes))
    exact = theirs(x.double(), w.double())

    def error(y: torch.Tensor) -> float:
        return float((y.double() - exact).abs().max())

    array, weight = meta.from_dlpack(x), w.numpy()
    program = meta.vm.compile(meta.trace(lambda x: ours(x, meta.asarray(weight))))
    allowed = 2 * error(theirs(x, w))
    assert error(torch.from_dlpack(program(array))) <= allowed
    assert error(torch.from_dlpack(ours(array, meta.asarray(weight)))) <= allowed


@pytest.mark.parametrize("axis", [0, 1])
def test_float32_sums_count_beyond_2_to_24(axis: int) -> None:
    """Ones of which a sum in sequence stops at 2**24."""
    shape = (20_000_000, 1) if axis == 0 else (1, 20_000_000)
    ones = meta.broadcast_to(meta.array(np.float32(1)), shape)
    assert meta.sum(ones, axis).tolist() == [2e7]
    program = meta.vm.compile(meta.trace(lambda x: meta.sum(meta.broadcast_to(x, shape), axis)), device="cpu")
    assert program(meta.array(np.float32(1))).tolist() == [2e7]


SIZES = [0, 1, 15, 16, 17, 31, 33, 64, 66, 127, 511, 513, 1030]
AXES = [0, 1, 2, (0, 1), (1, 2), (0, 2), (0, 1, 2)]


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=str)
def test_all_elements_are_added_once(order: tuple[int, ...], axes: Any) -> None:
    """Whole numbers, whose sums are exact: an element left out or added twice shows."""
    for size in SIZES:
        x = np.random.default_rng(size).integers(-1000, 1000, (3, size, 5)).astype(np.float32)
        x = np.ascontiguousarray(x.transpose(order))
        np.testing.assert_array_equal(meta.sum(meta.array(x), axes).numpy(), x.sum(axes))


@pytest.mark.parametrize("size", [64, 66, 513])
def test_programs_add_all_elements_once(size: int) -> None:
    for shape in ((3, size, 5), (5, 3, size)):
        x = np.random.default_rng(size).integers(-1000, 1000, shape).astype(np.float32)

        def function(x: Any) -> Any:
            return tuple(meta.sum(x, axes) for axes in AXES)

        results = meta.vm.compile(meta.trace(function), device="cpu")(meta.array(x))
        for axes, result in zip(AXES, results, strict=True):
            np.testing.assert_array_equal(result.numpy(), x.sum(axes))


@pytest.mark.parametrize("values", [
    ([3e38] * 200), ([3e38] * 100 + [-3e38] * 100), ([np.inf] + [1.0] * 2000), ([np.inf, -np.inf] + [1.0] * 2000),
    ([np.nan] + [1.0] * 2000), ([-np.inf] * 2000),
])  # fmt: skip
@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (1, -1), (-1, 3)], ids=str)
def test_sums_with_infinities_and_overflow(values: list[float], shape: Any) -> None:
    """As in torch, where no sum of a part overflows in one and not in the other."""
    x = np.repeat(np.array(values, np.float32), 3).reshape(shape) if shape == (-1, 3) else np.array(values, np.float32)
    x = x.reshape(shape)
    axis = 1 if shape == (1, -1) else 0
    expected = torch.from_numpy(x).sum(axis).numpy()
    result = meta.sum(meta.array(x), axis).numpy()
    if np.isnan(expected).all() or (max(values) < np.inf and min(values) < 0):
        assert not np.isfinite(result).any()
    else:
        np.testing.assert_array_equal(result, expected)


def test_variances_do_not_depend_on_the_mean() -> None:
    """A mean of a million times the deviation loses all digits of a mean in float32."""
    x = np.random.default_rng(0).standard_normal(10_000).astype(np.float32) + np.float32(1e6)
    for function, exact in ((meta.var, np.var), (meta.std, np.std)):
        np.testing.assert_allclose(
            float(function(meta.array(x)).numpy()), exact(x.astype(np.float64), ddof=1), rtol=3e-7
        )


@pytest.mark.parametrize("function", [meta.mean, meta.var])
def test_bfloat16_statistics_are_rounded_once(function: Any) -> None:
    """Against float64 of the same numbers: half a unit of the last of the 8 binary digits."""
    x = meta.cast(meta.array(np.random.default_rng(0).random((3001, 5), np.float32) + np.float32(2)), "bfloat16")
    wide = meta.cast(x, "float32").numpy().astype(np.float64)
    for axis in (0, 1, None):
        exact = wide.mean(axis) if function is meta.mean else wide.var(axis, ddof=1)
        result = function(x, axis)
        assert str(result.dtype) == "bfloat16"
        np.testing.assert_allclose(meta.cast(result, "float32").numpy(), exact, rtol=2**-8)


def test_variances_with_an_outlier_as_the_first_element() -> None:
    """Its error is that of a block of additions to the largest square."""
    x = np.concatenate([[1e8], np.ones(999)]).astype(np.float32)
    variance = float(meta.var(meta.array(x)).numpy())
    np.testing.assert_allclose(variance, np.var(x.astype(np.float64), ddof=1), rtol=32 * 2**-24)


def _sum_function(shape: tuple[Any, ...], axes: tuple[int, ...]) -> Any:
    extents = [tvm.IntImm("int64", d) if isinstance(d, int) else tvm.te.var(d, "int64") for d in shape]
    x = tvm.te.placeholder(extents, "float32", "x")
    return tvm.create_prim_func([x, reduce_axes(x, axes, tvm.te.sum, elements_of(x), "total")])


def _additions_in_sequence(function: Any) -> int:
    """The largest number of additions to one element that a serial loop makes, with the unrolled loops in it; those of
    loops of unknown extent are not counted."""
    numbers: list[int] = []

    def visit(loop: Any) -> None:
        if loop.kind == tvm.tirx.ForKind.SERIAL:
            extent = int(loop.extent) if isinstance(loop.extent, tvm.IntImm) else 0
            numbers.extend(extent * n for n in _additions(loop.body))

    tvm.structural_walk(function, (tvm.For, visit))
    return max(numbers)


def _additions(statement: Any) -> list[int]:
    """How often a statement adds to each element that it adds to, outside of its serial loops."""
    if isinstance(statement, tvm.SeqStmt):
        return [n for part in statement.seq for n in _additions(part)]
    if isinstance(statement, tvm.tirx.IfThenElse):
        return _additions(statement.then_case)
    if isinstance(statement, tvm.For) and statement.kind == tvm.tirx.ForKind.UNROLLED:
        stores: list[Any] = []
        tvm.structural_walk(statement.body, (tvm.BufferStore, stores.append))
        own = any(uses_variable(i, statement.loop_var) for s in stores for i in s.indices)
        return [n * (1 if own else int(statement.extent)) for n in _additions(statement.body)]
    is_sum = isinstance(statement, tvm.BufferStore) and isinstance(statement.value, tvm.tirx.Add)
    if not is_sum or not isinstance(statement.value.a, tvm.TensorLoad):
        return []
    return [1] if statement.value.a.source.same_as(statement.buffer) else []


@pytest.mark.parametrize(("shape", "axes"), [
    ((3_000_000,), (0,)), ((750_000, 4), (0,)), ((2, 375_000, 4), (1,)), ((100_000, 64), (0,)), (("n",), (0,)),
])  # fmt: skip
def test_threads_of_a_gpu_add_few_numbers_in_sequence(shape: Any, axes: Any) -> None:
    """In 32 additions of equal numbers, which round in one direction, the errors add up to 3e-7."""
    tvm.load()
    target = tvm.Target({"kind": "cuda", "arch": "sm_90", **LIMITS}, host=targets.target("cpu"))
    func = patterns.schedule(_sum_function(shape, axes), "reduce", target)
    lowered = tvm.tirx.transform.StmtSimplify()(tvm.IRModule({"main": func}))["main"]
    assert _additions_in_sequence(lowered) <= 16


def test_loops_of_a_gpu_are_not_divided_by_the_bounds_checks_of_numbers() -> None:
    """TVM divides loops by `likely` conditions; those of several numbers of a step gave parts out of bounds."""
    tvm.load()
    target = tvm.Target({"kind": "cuda", "arch": "sm_90", **LIMITS}, host=targets.target("cpu"))
    func = patterns.schedule(_sum_function(("n",), (0,)), "reduce", target)
    source = "".join(m.inspect_source() for m in library.compile_functions({"kernel": func}, target).imports)
    assert len(re.findall(r"for \(int\w* block", source[source.rindex('extern "C"') :])) == 1


def _buffers(func: Any) -> set[str]:
    names: set[str] = set()
    tvm.structural_walk(
        func, (tvm.SBlock, lambda b: names.update(str(buffer.name) for buffer in b.alloc_buffers) and None)
    )
    return names


@pytest.mark.parametrize(("shape", "axes"), [
    ((1_000_000,), (0,)), (("n",), (0,)), ((8, 1_000_000), (1,)), (("n", "m"), (1,)), ((1_000_000, 8), (0,)),
    (("n", "m"), (0,)), ((3_000_000, 33), (0,)), (("vast0", "long1"), (0, 1)),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_long_sums_keep_the_lost_digits(shape: Any, axes: Any, kind: str) -> None:
    tvm.load()
    target = targets.target("cpu")
    if kind == "cuda":
        target = tvm.Target({"kind": "cuda", "arch": "sm_90", **LIMITS}, host=target)
    func = patterns.schedule(_sum_function(shape, axes), "reduce", target)
    is_short = kind == "cuda" and shape[0] == 1_000_000 and len(shape) == 2  # by many threads
    assert _additions_in_sequence(func) <= 8 if is_short else {"high", "low"} <= _buffers(func)


@pytest.mark.parametrize(("shape", "axes"), [((32, 100), (0,)), ((100, 32 * 4), (1,)), ((4, 4), (0, 1))])
def test_short_sums_keep_their_loops(shape: Any, axes: Any) -> None:
    tvm.load()
    assert "high" not in _buffers(patterns.schedule(_sum_function(shape, axes), "reduce", targets.target("cpu")))
