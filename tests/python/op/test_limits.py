"""Measured limits: rows that dispatch reads, calls that measure them, and the file that has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from math import inf
from typing import Any

import numpy as np
import pytest

import meta
from benchmarks import compile_times, cuda, train
from benchmarks.limits import PROBLEMS, crossing, measurable, rewritten
from benchmarks.problems import sample
from benchmarks.schedules import cpu_conditions, gpu_conditions
from meta._generated import limits
from meta.device import device
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType, tensor_type
from meta.op import work
from meta.op.registry import all_ops, as_type, get
from meta.op.work import LIMITS, MEASURES, Limit
from meta.schema._dsl import TensorLike
from meta.testing.samples import Sample, T
from scripts.src_codegen import limits as codegen
from scripts.src_codegen.limits import Row
from tests.python.backend.tvm.processors import choose_for


class Typed(TensorLike):
    """A tensor without values."""

    def __init__(self, kind: TensorType) -> None:
        self.type = kind


def call_info(sample: Sample, kind: str) -> CallInfo:
    op, on = get(sample.op), device(kind)
    args, kwargs = sample.map(lambda t, _: Typed(tensor_type(t.shape, t.dtype or "float32", on)))
    types: tuple[Any, ...] = tuple(map(as_type, op.schema.bind(op.name, args, kwargs)))
    return CallInfo(op, types, op.infer(types), on)


ROWS = tuple(codegen.rows())
DISPATCH = tuple(row for row in ROWS if row.dialect)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.dialect}-{limit.operators}-{limit.unit}")
def test_limits_name_operators_and_units(limit: Limit) -> None:
    assert limit.unit in MEASURES
    names = [op.name for op in all_ops()]
    assert all(any(fnmatchcase(name, pattern) for name in names) for pattern in limit.operators.split())
    assert limit.least or limit.most is not None
    assert limit.measured


def test_rows_name_the_benchmark_that_measures_them() -> None:
    conditions = {c.name for c in (*cpu_conditions(), *gpu_conditions())}
    rows: dict[str, Callable[[str], Any]] = {
        "limits": PROBLEMS.__contains__,
        "schedules": conditions.__contains__,
        "ops": lambda name: get(name),
        "dialects": lambda name: get(name),
        "train": {**train.parts("cpu"), **train.parts("cuda")}.__contains__,
        "cuda": cuda.GROUPS.__contains__,
        "compile_times": lambda name: getattr(compile_times, name),
    }
    for row in ROWS:
        module, _, name = row.benchmark.partition(": ")
        assert rows[module](name) if name else find_spec(f"benchmarks.{module}"), row


def test_constants_have_the_numbers_of_the_file() -> None:
    for row in ROWS:
        if not row.dialect:
            assert getattr(limits, row.key.upper()) == row.value
    assert len(ROWS) <= 150


def test_calls_that_measure_limits_belong_to_a_limit() -> None:
    assert {f"limits: {name}" for name in PROBLEMS} == {r.benchmark for r in ROWS if r.benchmark.startswith("limits")}


@pytest.mark.parametrize(
    ("row", "limit"), list(zip(DISPATCH, LIMITS, strict=True)), ids=lambda x: getattr(x, "benchmark", "")
)
def test_calls_that_measure_limits_lie_on_both_sides(row: Row, limit: Limit) -> None:
    problems = PROBLEMS.get(row.benchmark.removeprefix("limits: "), ())
    for end in filter(None, (limit.least, limit.most)):
        assert problems
        for problem in problems:
            refused = [limit.refusal(call_info(problem(n), limit.device)) is not None for n in (end // 4, end * 4)]
            assert refused == ([True, False] if end == limit.least else [False, True])


def test_limits_of_another_device_do_not_apply() -> None:
    problem = PROBLEMS["functions"][0]
    assert work.refusal("torch", call_info(problem(64), "cpu")) is not None
    assert work.refusal("torch", call_info(problem(64), "cuda")) is None


@pytest.mark.parametrize(("feature", "is_refused"), [("sse4a", True), ("neon", False)])
def test_limits_of_other_instruction_sets_do_not_apply(
    feature: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    choose_for(feature, monkeypatch, request)
    x, w = T(2, 16, 16, 32), T(64, 3, 3, 32)
    in_tiles = [
        sample("conv2d", x, w, padding=1, channels_last=True),
        sample("conv2d_epilogue", x, w, T(64), None, True, padding=1, channels_last=True),
        sample("conv2d_dx", w, T(2, 16, 16, 64), x.shape, padding=1, channels_last=True),
        sample("conv2d_dw", x, T(2, 16, 16, 64), w.shape, padding=1, channels_last=True),
    ]
    others = [
        sample("conv2d_transpose", T(2, 64, 16, 16), T(64, 32, 3, 3)),
        sample("conv2d", T(2, 32, 16, 16), T(64, 32, 3, 3)),
        sample("conv2d_dx", w, T(2, 8, 8, 64), x.shape, padding=1, stride=2, channels_last=True),
        sample("conv2d_dw", T(2, 16, 16, 3), T(2, 16, 16, 64), (64, 3, 3, 3), padding=1, channels_last=True),
    ]
    assert [work.refusal("torch", call_info(s, "cpu")) is not None for s in in_tiles] == [is_refused] * 4
    assert [work.refusal("torch", call_info(s, "cpu")) for s in others] == [None] * 4


@pytest.mark.parametrize(("feature", "is_refused"), [("sse4a", True), ("avx512f", False)])
def test_limits_of_programs_do_not_apply_to_eager_calls(
    feature: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    choose_for(feature, monkeypatch, request)
    in_tiles = [
        sample("matmul", T(64, 256), T(256, 100)),
        sample("matmul", T(2, 64, 256), T(100, 256), False, True),
        sample("dense", T(8, 64, 256), T(100, 256), T(100)),
        sample("dense", T(1, 1, 256), T(100, 256), T(100)),
    ]
    others = [
        sample("matmul", T(2, 64, 256), T(2, 256, 100)),
        sample("matmul", T(64, 256), T(256, 4)),
        sample("matmul", T(2, 1024), T(1024, 1024)),
        sample("matmul", T(1024), T(1024, 1024)),
        sample("dense", T(64, 256, dtype="bfloat16"), T(100, 256, dtype="bfloat16")),
        sample("dense", T(1, 256, dtype="bfloat16"), T(100, 256, dtype="bfloat16")),
        sample("dense", T(2, 256), T(100, 256)),
    ]
    for calls, expected in ((in_tiles, is_refused), (others, False)):
        for call in (call_info(s, "cpu") for s in calls):
            assert (work.refusal("torch", call, in_program=True) is not None) == expected, call.args
            assert work.refusal("torch", call) is None


def test_crossing_is_the_last_change_of_sides() -> None:
    assert crossing([(100, 0.5), (400, 1.5)], faster_above=True) == 200
    assert crossing([(100, 1.2), (200, 0.9), (800, 1.5)], faster_above=True) == 400
    assert crossing([(100, 1.2), (400, 0.5)], faster_above=False) == 200
    assert crossing([(100, 1.2), (400, 1.5)], faster_above=True) is None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.dialect}{row.device}-{row.key}-{row.unit}")
def test_a_benchmark_rewrites_its_row_alone(row: Row) -> None:
    if not (measurable(row, "cpu") or measurable(row, "cuda")):
        return
    text = codegen.PATH.read_text()
    value = [123, inf] if row.dialect else 123
    new = rewritten(text, replace(row, value=value), '"AVX2", 2030-01-02')
    changed = [(a, b) for a, b in zip(text.splitlines(), new.splitlines(), strict=True) if a != b]
    number = "[123, inf]" if row.dialect else f'{row.key} = [123, "{row.unit}"'
    assert number in changed[0][1]
    assert '"AVX2", 2030-01-02' in changed[-1][1]
    assert all(a.startswith("     ") for a, _ in changed[1:])  # the row goes on


def test_convolutions_of_no_pixels() -> None:
    """Limits that count kernel elements per pixel of the result have nothing to divide by."""
    x, w = meta.ones((0, 5, 5, 8)), meta.ones((8, 3, 3, 8))
    y = meta.conv2d(x, w, channels_last=True)
    assert y.shape == (0, 3, 3, 8)
    dw = meta.conv2d_dw(x, y, w.shape, channels_last=True)
    np.testing.assert_array_equal(dw.numpy(), np.zeros((8, 3, 3, 8)))


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("conv2d", "conv?d"), ("conv2d_dx", "conv?d"), ("conv2d", "conv2d*"), ("conv2d_dw", "conv2d_d?"), ("a", ""),
     ("", "*"), ("attention_with_lse_dx", "*attention*"), ("adaptive_max_pool1d", "adaptive_*_pool1d*"),
     ("softmax", "*softmax")],
)  # fmt: skip
def test_patterns_match_like_fnmatch(name: str, pattern: str) -> None:
    assert work._matches(name, pattern) == fnmatchcase(name, pattern)
