"""Results of CUDA schedules without a GPU: the iterations of all threads, one after the other on the CPU.

It suits schedules whose threads share no reduction."""

from __future__ import annotations

from collections.abc import Callable
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
from meta.ir.expr import CallInfo
from meta.ir.type import flat_types
from meta.op.dispatch import implementations
from meta.op.registry import as_type, get
from tests.python.backend.tvm.test_cuda_code import CUDA, LIMITS, to_cuda
from tests.python.op.test_max_pool import ADAPTIVE, CONTENTS, REGULAR

LARGE = [
    ((1, 2, 24, 31), (24, 31), (), 0, 1, False),
    ((2, 1, 40, 27), (20, 13), (20, 14), (3, 2, 1, 0), 1, True),
    ((1, 1, 60, 40), 12, 12, 0, (4, 3), False),
    ((1, 2, 300), 256, 50, 50, 1, False),
]
"""Windows that several threads share."""


def build_serial_kernel(op: str, *args: Any) -> tuple[Callable[..., list[Any]], int]:
    """A function of arrays like those in `args` that returns the results of an operator's CUDA kernels; the number of
    kernels."""
    gpu = tvm.Target({"kind": "cuda", "arch": "sm_90", **LIMITS}, host=targets.target("cpu"))
    operator = get(op)
    types = tuple(to_cuda(as_type(a)) for a in operator.schema.bind(op, args, {}))
    info = CallInfo(operator, types, operator.declare(*types), CUDA)
    payload = next(i for i in implementations(operator) if i.dialect.name == "tvm").payload
    spec = shape_generic.spec(payload, info, symbolic=False)
    kernels = 0

    def to_serial(loop: Any) -> Any:
        nonlocal kernels
        if loop.kind != tvm.tirx.ForKind.THREAD_BINDING:
            return loop
        kernels += loop.thread_binding.thread_tag == "threadIdx.x"
        return tvm.For(loop.loop_var, loop.min, loop.extent, tvm.tirx.ForKind.SERIAL, loop.body)

    serial = tvm.structural_map(patterns.schedule(unscheduled(spec).function, spec.pattern, gpu), (tvm.For, to_serial))
    kernel = library.compile_functions({"kernel": relax_alignment(serial)}, targets.target("cpu"))["kernel"]

    def run(*arrays: Any) -> list[Any]:
        outs = [meta.zeros(t.shape, dtype=t.dtype) for t in flat_types((info.out,))]
        kernel(*(x._data for x in (*arrays, *outs)))
        return [out.numpy() for out in outs]

    return run, kernels


def check_pooling(op: str, shape: tuple[int, ...], args: Any, kernels: int) -> None:
    x = np.random.default_rng(0).standard_normal(shape)
    run, count = build_serial_kernel(op, meta.array(x.astype("float32")), *args)
    assert count == kernels
    for fill in CONTENTS.values():
        content = meta.array(fill(x).astype("float32"))
        reference = getattr(meta, op)(content, *args)
        outs = reference if isinstance(reference, tuple) else (reference,)
        for ours, out in zip(run(content), outs, strict=True):
            np.testing.assert_array_equal(ours, out.numpy())


@pytest.mark.parametrize("case", [case for case in REGULAR if 0 not in case[0]], ids=repr)
def test_max_pooling_with_indices_in_one_kernel(case: Any) -> None:
    shape, *args = case
    check_pooling(f"max_pool{len(shape) - 2}d_with_indices", shape, args, kernels=1)


@pytest.mark.parametrize("case", LARGE, ids=repr)
def test_max_pooling_of_large_windows_in_two_kernels(case: Any) -> None:
    shape, *args = case
    check_pooling(f"max_pool{len(shape) - 2}d_with_indices", shape, args, kernels=2)


@pytest.mark.parametrize("case", ADAPTIVE, ids=repr)
def test_adaptive_max_pooling_with_indices_in_one_kernel(case: Any) -> None:
    shape, size = case
    check_pooling(f"adaptive_max_pool{len(shape) - 2}d_with_indices", shape, (size,), kernels=1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("shape", "args"),
    [
        ((2, 1, 13, 11), (3, 2, 1, 1, True)),
        ((2, 1, 16, 12), (3, 1, (0, 0), 2, False)),
        ((1, 2, 12, 9), ((5, 2), (2, 3), (2, 1), 1, False)),
        ((2, 1, 8, 8, 32), ((3, 3, 1), (2, 2, 1), (1, 1, 0), (1, 1, 1), False)),  # images with channels last
        ((2, 1, 8, 16, 32), ((2, 3, 1), (2, 1, 1), (0, 0, 0), (1, 1, 1), False)),
    ],
)
def test_gradients_of_max_pooling_in_one_kernel(shape: tuple[int, ...], args: Any, dtype: str) -> None:
    op = f"max_pool{len(shape) - 2}d"
    for fill in CONTENTS.values():
        x = meta.array(fill(np.random.default_rng(0).standard_normal(shape)).astype(dtype))
        y, indices = getattr(meta, f"{op}_with_indices")(x, *args)
        dy = meta.array(np.random.default_rng(1).integers(-8, 8, y.shape).astype(dtype))
        run, count = build_serial_kernel(f"{op}_dx", dy, indices, shape, *args)
        assert count == 1
        np.testing.assert_array_equal(run(dy, indices)[0], getattr(meta, f"{op}_dx")(dy, indices, shape, *args).numpy())


def test_max_pooling_with_a_thread_per_result() -> None:
    check_pooling("max_pool2d", (2, 2, 9, 35), (3, 2, 1), kernels=1)


# Not bfloat16, which CUDA has: for CPUs, TVM does not legalise its loads in bindings, as reductions of pairs have them.
@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8"])
def test_dtypes_of_max_pooling_with_indices(dtype: str) -> None:
    x = meta.array(np.random.default_rng(0).integers(0, 100, (1, 2, 9, 11))).cast(dtype)
    run, kernels = build_serial_kernel("max_pool2d_with_indices", x, 3, 2, 1)
    assert kernels == 1
    for ours, out in zip(run(x), meta.max_pool2d_with_indices(x, 3, 2, 1), strict=True):
        np.testing.assert_array_equal(ours, out.numpy())
