"""The fuzzer of kernels: its programs repeat and cover what it promises. Some are judged: on CPUs by values, for CUDA
by what TVM's compiler accepts."""

from __future__ import annotations

from typing import Any

import pytest

import meta
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.backend.tvm.lowering import pipeline
from meta.vm.build.generate import finish
from meta.vm.plan.pipeline import Planned
from scripts.fuzz_kernels import arrays, check, random_source
from tests.python.backend.tvm.test_cuda_programs import cuda_target, plan

SOME = [random_source(1, index)[0] for index in range(200)]
FOUND = [
    (1, 8),  # a comparison that several selections share was read from elsewhere
    (1, 39),
    (1, 41),  # a rounding inside of a branch was bound twice
    (2, 46),
]
FOUND_ON_CUDA = [(11, 2), (12, 30)]  # both sides of a selection, loaded twice


def test_programs_are_determined_by_seed_and_index() -> None:
    assert SOME[:20] == [random_source(1, index)[0] for index in range(20)]


@pytest.mark.parametrize("part", ["where(", "logical_", "cast(", "INFINITY", "bitwise_", "greater(", "tanh("])
def test_programs_have_all_kinds_of_operators(part: str) -> None:
    assert sum(part in source for source in SOME) >= 20


@pytest.mark.parametrize(("seed", "index"), [*FOUND, *((1, index) for index in range(4))])
def test_compiled_programs_equal_eager_ones(seed: int, index: int) -> None:
    assert check(*random_source(seed, index)) == ""


@pytest.mark.parametrize(("seed", "index"), [*FOUND_ON_CUDA, (1, 8), (2, 0), (2, 1)])
def test_kernels_compile_for_cuda(seed: int, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source, arguments = random_source(seed, index)
    space: dict[str, Any] = {"meta": meta, "INFINITY": float("inf")}
    exec(compile(source, "<program>", "exec"), space)
    planned = plan(meta.trace(space["function"]).record(*arrays(arguments, 0)).module, monkeypatch)
    with cuda_target(monkeypatch):
        library_of(planned)


def library_of(planned: Planned) -> Any:
    """The code of a program for CUDA, without a GPU."""
    target, passes = targets.target("cuda"), pipeline(checks=planned.checks)
    module = finish(planned, static=True)
    return tvm.relax_build(module, target=target, relax_pipeline=None, tir_pipeline=passes, exec_mode="compiled")
