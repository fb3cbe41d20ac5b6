"""The fuzzer of kernels: its programs repeat and cover what it promises. Some are judged: on CPUs by values, for CUDA
by what TVM's compiler accepts."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.lowering import pipeline
from meta.vm.build.generate import finish
from meta.vm.plan.pipeline import Planned
from scripts.fuzz_kernels import check, random_source
from tests.python.backend.tvm.test_cuda_programs import cuda_target, plan

SOME = [random_source(1, index)[0] for index in range(200)]


def shared_comparison(x: Any, y: Any, z: Any) -> Any:
    """A comparison that several selections share: where it was kept, vectors of bools were read from elsewhere."""
    c = x > 0.0
    return meta.where(c, x, y) * meta.where(c, z, y)


def roundings_in_a_branch(x: Any, mask: Any) -> Any:
    """The differences are computed where the mask holds; TVM refused a variable there that it simplified twice."""
    return meta.where(mask[0] > 0.0, (x - x) - x, x)


def sides_of_sides(x: Any, y: Any, z: Any) -> Any:
    """A selection between selections, read twice: TVM refused a variable of a side that it simplified twice."""
    c = x < x
    z = meta.where(meta.logical_not(c), meta.where(c, y * y, y), y * y)
    return meta.maximum(z, z)


def masked_by_infinity(x: Any, y: Any, z: Any) -> Any:
    return meta.where(x > 0.0, x, meta.full((), -float("inf"), dtype=x.dtype))


def by_one_condition(x: Any, y: Any, z: Any) -> Any:
    return meta.where(y[:1, :1] == 0.0, 0.0, x * z)


def test_programs_are_determined_by_seed_and_index() -> None:
    assert SOME[:20] == [random_source(1, index)[0] for index in range(20)]


@pytest.mark.parametrize("part", ["where(", "logical_", "cast(", "INFINITY", "bitwise_", "greater(", "tanh("])
def test_programs_have_all_kinds_of_operators(part: str) -> None:
    assert sum(part in source for source in SOME) >= 20


@pytest.mark.parametrize("index", range(6))
def test_compiled_programs_equal_eager_ones(index: int) -> None:
    assert check(*random_source(1, index)) == ""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("function", [shared_comparison, roundings_in_a_branch])
def test_shared_values_inside_of_kernels(function: Any, dtype: str) -> None:
    rng = np.random.default_rng(0)
    inputs = [meta.array(rng.standard_normal((16, 16)), dtype=dtype) for _ in inspect.signature(function).parameters]
    result = meta.vm.compile(meta.trace(function))(*inputs)
    np.testing.assert_array_equal(*(a.astype("float32").numpy() for a in (result, function(*inputs))))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("function", [shared_comparison, sides_of_sides, masked_by_infinity, by_one_condition])
def test_code_for_cuda(function: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: TVM generates code, without what NVRTC refuses of it."""
    inputs = [meta.zeros((2048, 1024), dtype=dtype) for _ in range(3)]
    planned = plan(meta.trace(function).record(*inputs).module, monkeypatch)
    with cuda_target(monkeypatch):
        code = source(library_of(planned).mod)
    assert "__global__" in code
    assert not re.search(r"\binff\b|(half4|bfloat164|float4) \w+ = make_ushort4", code)


def library_of(planned: Planned) -> Any:
    """The code of a program for CUDA, without a GPU."""
    target, passes = targets.target("cuda"), pipeline(checks=planned.checks)
    module = finish(planned, static=True)
    return tvm.relax_build(module, target=target, relax_pipeline=None, tir_pipeline=passes, exec_mode="compiled")


def source(module: Any) -> str:
    """The code of a module and of those that it imports, except of the executable."""
    own = "" if module.kind == "relax.VMExecutable" else str(module.inspect_source())
    return own + "".join(map(source, module.imports))
