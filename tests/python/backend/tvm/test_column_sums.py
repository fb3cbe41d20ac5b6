"""Sums over outer axes on CUDA without a GPU: two kernels, and their results with the threads of a phase in turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library, shape_generic
from meta.backend.tvm import target as targets
from meta.backend.tvm.kernel import unscheduled
from meta.backend.tvm.schedule import patterns
from meta.backend.tvm.schedule.buffers import relax_alignment
from meta.interpreter.run import run as interpret
from meta.ir.expr import CallInfo
from meta.ir.type import flat_types, tensor_type
from meta.op.dispatch import implementations
from meta.op.registry import get
from tests.python.backend.tvm.test_cuda_code import CUDA, LIMITS, to_cuda
from tests.python.backend.tvm.test_cuda_programs import kernel_calls, plan, run_serially
from tests.python.vm.programs import flat, program, randoms


@cache
def scheduled(op: str, args: tuple[Any, ...], symbolic: bool = False) -> Any:
    """The function of an operator's CUDA kernel; args: types and values."""
    tvm.load()
    gpu = tvm.Target({"kind": "cuda", "arch": "sm_90", **LIMITS}, host=targets.target("cpu"))
    operator = get(op)
    types = tuple(map(to_cuda, args))
    info = CallInfo(operator, types, operator.declare(*types), CUDA)
    payload = next(i for i in implementations(operator) if i.dialect.name == "tvm").payload
    spec = shape_generic.spec(payload, info, symbolic=symbolic)
    return patterns.schedule(unscheduled(spec).function, spec.pattern, gpu)


def count_kernels(func: Any) -> int:
    count = 0

    def visit(loop: Any) -> None:
        nonlocal count
        count += loop.thread_binding is not None and loop.thread_binding.thread_tag == "blockIdx.x"

    tvm.structural_walk(func, (tvm.For, visit))
    return count


def run(op: str, *args: Any, symbolic: bool = False) -> list[Any]:
    """The results of the CUDA kernels of an operator on arrays, by their threads one after the other."""
    types = tuple(a.type if isinstance(a, meta.NDArray) else a for a in args)
    kernel = serial_kernel(op, types, symbolic)
    outs = [meta.zeros(t.shape, dtype=t.dtype) for t in flat_types((get(op).declare(*types),))]
    kernel(*(a._data for a in args if isinstance(a, meta.NDArray)), *(out._data for out in outs))
    return [out.numpy() for out in outs]


@cache
def serial_kernel(op: str, types: tuple[Any, ...], symbolic: bool) -> Any:
    def to_serial(loop: Any) -> Any:
        return tvm.For(loop.loop_var, loop.min, loop.extent, tvm.tirx.ForKind.SERIAL, loop.body)

    func = scheduled(op, types, symbolic)
    bound = tvm.tirx.ForKind.THREAD_BINDING
    serial = tvm.structural_map(func, (tvm.For, lambda loop: to_serial(loop) if loop.kind == bound else loop))
    return library.compile_functions({"kernel": relax_alignment(serial)}, targets.target("cpu"))["kernel"]


def random(shape: Sequence[int], dtype: str = "float32", mean: float = 0.0, seed: int = 0) -> Any:
    x = np.random.default_rng(seed).standard_normal(shape) + mean
    return meta.array(x.astype("float32")).cast(dtype)


def check_stats(x: Any, *, symbolic: bool = False, rtol: float = 5e-7) -> None:
    mean, variance, invstd = run("batch_norm_stats", x, 1e-5, -1, symbolic=symbolic)
    wide = x.cast("float64").numpy()
    others = tuple(range(wide.ndim - 1))
    exact = wide.var(others)
    np.testing.assert_allclose(mean, wide.mean(others), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(variance, exact, rtol=rtol)
    np.testing.assert_allclose(invstd, 1 / np.sqrt(exact + 1e-5), rtol=rtol)


@pytest.mark.parametrize("symbolic", [False, True])
def test_mean_and_variance_in_one_read(symbolic: bool) -> None:
    """Squares about a mean: of ordinary numbers, of one far from the others, of two blocks of equal ones."""
    x = random((1000, 24))
    check_stats(x, symbolic=symbolic)
    outlier, steps = x.numpy().copy(), np.zeros((1000, 24), np.float32)
    outlier[0] = 1e4
    steps[:8] = 3.0
    check_stats(meta.array(outlier), symbolic=symbolic, rtol=2e-6)
    check_stats(meta.array(steps), symbolic=symbolic, rtol=2e-6)
    check_stats(random((1000, 24), mean=1000.0), symbolic=symbolic, rtol=2e-5)  # the mean has 24 binary digits


def test_rows_of_several_axes_and_columns_that_fill_no_load() -> None:
    check_stats(random((8, 5, 25, 16), "float16", 3.0))
    check_stats(random((3, 100, 7)))


@pytest.mark.parametrize("symbolic", [False, True])
def test_sums_of_gradients_in_one_read(symbolic: bool) -> None:
    dy, x = random((1000, 24), seed=1), random((1000, 24))
    mean, invstd = random((24,), seed=2), random((24,), seed=3)
    dw, db = run("batch_norm_sums", dy, x, mean, invstd, -1, symbolic=symbolic)
    grad, difference = dy.numpy().astype("float64"), x.numpy().astype("float64") - mean.numpy()
    np.testing.assert_allclose(dw, (grad * difference * invstd.numpy()).sum(0), rtol=1e-5, atol=5e-5)
    np.testing.assert_allclose(db, grad.sum(0), rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize("shape", [(2000, 40), (300, 3, 10), (3, 500, 70)])
def test_sums_of_columns(shape: tuple[int, ...]) -> None:
    axis = 1 if shape[0] == 3 else 0
    x = random(shape)
    (total,) = run("sum", x, axis, False)
    np.testing.assert_allclose(total, x.numpy().sum(axis, dtype="float64"), rtol=1e-5, atol=5e-5)


def test_sums_without_a_number() -> None:
    """Infinities and NaN stay in their columns."""
    x = random((1000, 24)).numpy().copy()
    x[500, 1], x[20, 2], x[900, 2], x[7, 3] = np.inf, np.inf, -np.inf, np.nan
    (total,) = run("sum", meta.array(x), 0, False)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(total, x.sum(0, dtype="float64"), rtol=1e-5, atol=5e-5)


def types_of(op: str, shape: tuple[int, ...], dtype: str) -> tuple[Any, ...]:
    x, c = tensor_type(shape, dtype), tensor_type(shape[-1:])
    return {"batch_norm_stats": (x, 1e-5, -1), "batch_norm_sums": (x, x, c, c, -1)}[op]


@pytest.mark.parametrize(("op", "shape", "dtype", "vector", "loads"), [
    ("batch_norm_stats", (64, 112, 112, 64), "bfloat16", "uint4", 8),
    ("batch_norm_sums", (64, 7, 7, 2048), "bfloat16", "uint4", 8),
    ("batch_norm_sums", (802816, 64), "float32", "float4", 8),
])  # fmt: skip
def test_loads_of_16_bytes(op: str, shape: tuple[int, ...], dtype: str, vector: str, loads: int) -> None:
    """Each element is loaded once, and no addition is atomic."""
    func = scheduled(op, types_of(op, shape, dtype))
    assert count_kernels(func) == 2
    tvm.register_global_func("tvm_callback_cuda_compile", lambda code: bytes(16), override=True)
    gpu = tvm.Target({"kind": "cuda", "arch": "sm_90", **LIMITS}, host=targets.target("cpu"))
    module = library.compile_functions({"kernel": func}, gpu)
    code = "".join(m.inspect_source() for m in module.imports)
    assert code.count(f"*({vector}*)(x") == loads
    assert "atomic" not in code[code.rindex('extern "C"') :]


def blocks_of(func: Any) -> set[str]:
    """The names of a function's blocks."""
    names: set[str] = set()
    tvm.structural_walk(func, (tvm.SBlock, lambda block: names.add(str(block.name_hint))))
    return names


@pytest.mark.parametrize("op", ["batch_norm_stats", "batch_norm_sums", "batch_norm_train"])
def test_symbolic_columns_are_split_into_parts(op: str) -> None:
    shape, c = (802816, 64), tensor_type((64,))
    train = (tensor_type(shape, "bfloat16"), c, c, c, c, 0.1, 1e-5, 1)
    func = scheduled(op, train if op == "batch_norm_train" else types_of(op, shape, "bfloat16"), symbolic=True)
    assert {"column_parts", "column_totals"} <= blocks_of(func)


def test_elementwise_operators_before_sums_are_part_of_their_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program: the gradient of relu and a cast, then sums of channels and statistics."""

    def body(ops: Any, y: Any, dy: Any, x: Any, c: Any) -> list[Any]:
        grad = ops.relu_dx(y, ops.cumsum(dy, axis=1))
        sums = ops.batch_norm_sums(grad, ops.cumsum(x, axis=1), c, c, axis=-1)
        stats = ops.batch_norm_stats(ops.multiply(ops.cumsum(y, axis=1), 2.0), axis=-1)
        get = ops.builder.get_item
        return [*(get(sums, i) for i in (0, 1)), *(get(stats, i) for i in (0, 1, 2))]

    rows = dict.fromkeys(("y", "dy", "x"), (20, 15, 16))
    module = program({**rows, "c": (16,)}, body)
    planned = plan(module, monkeypatch)
    fused = [planned.kernels[c] for c in kernel_calls(planned) if len(planned.kernels[c]) > 1]
    bundle = ("tvm.cumsum",) * 3
    assert sorted(fused) == [bundle, ("tvm.multiply", "tvm.batch_norm_stats"), ("tvm.relu_dx", "tvm.batch_norm_sums")]
    names = [blocks_of(f) for f in planned.module.functions.values() if isinstance(f, tvm.PrimFunc)]
    assert sum("column_parts" in n for n in names) == 2
    arrays = randoms(*rows.values(), (16,))
    with meta.with_dialect("reference"):
        expected = flat(interpret(module, *arrays))
    for ours, theirs in zip(run_serially(planned, arrays), expected, strict=True):
        exact = theirs.numpy()
        np.testing.assert_allclose(meta.from_dlpack(ours).numpy(), exact, rtol=1e-5, atol=1e-6 * abs(exact).max())


@pytest.mark.parametrize("rank", [2, 3])
def test_gradients_of_pools_are_cast_in_the_kernel_that_sums_them(rank: int) -> None:
    spatial, window = ((7, 8), (3, 2, 1)) if rank == 2 else ((7, 8, 6), ((3, 3, 1), (2, 2, 1), (1, 1, 0)))
    x = random((2, 3, *spatial), "float16")
    y, indices = getattr(meta, f"max_pool{rank}d_with_indices")(x, *window)
    args = (y, indices, x.shape, *get(f"max_pool{rank}d").schema.bind("max_pool", (x, *window), {})[1:])
    (ours,) = run(f"max_pool{rank}d_dx", *args)
    np.testing.assert_array_equal(ours, getattr(meta, f"max_pool{rank}d_dx")(*args).numpy())
    types = tuple(a.type if isinstance(a, meta.NDArray) else a for a in args)
    assert count_kernels(scheduled(f"max_pool{rank}d_dx", types)) == 1


def test_few_rows_are_not_split() -> None:
    assert "column_parts" not in blocks_of(scheduled("sum", (tensor_type((100, 64)), 0, False)))
