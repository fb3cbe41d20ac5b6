"""Crossover limits: rows that dispatch reads, and calls that measure them."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from benchmarks.crossovers import PROBLEMS, crossing, render
from benchmarks.problems import sample
from meta.device import device
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType, tensor_type
from meta.op import crossover
from meta.op.crossover import LIMITS, MEASURES, Limit
from meta.op.registry import all_ops, as_type, get
from meta.schema._dsl import TensorLike
from meta.testing.samples import Sample, T
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


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.dialect}-{limit.operators}-{limit.unit}")
def test_limits_name_operators_and_units(limit: Limit) -> None:
    assert limit.unit in MEASURES
    assert any(fnmatchcase(op.name, limit.operators) for op in all_ops())
    assert limit.least or limit.most is not None
    assert limit.measured


def test_calls_that_measure_limits_belong_to_a_limit() -> None:
    assert set(PROBLEMS) <= {(limit.operators, limit.unit) for limit in LIMITS}


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.dialect}-{limit.operators}-{limit.unit}")
def test_calls_that_measure_limits_lie_on_both_sides(limit: Limit) -> None:
    problem = PROBLEMS.get((limit.operators, limit.unit))
    for end in filter(None, (limit.least, limit.most)):
        assert problem is not None
        refused = [limit.refusal(call_info(problem(work), limit.device)) is not None for work in (end // 4, end * 4)]
        assert refused == ([True, False] if end == limit.least else [False, True])


def test_limits_of_another_device_do_not_apply() -> None:
    problem = PROBLEMS["sin", "real elements"]
    assert crossover.refusal("torch", call_info(problem(64), "cpu")) is not None
    assert crossover.refusal("torch", call_info(problem(64), "cuda")) is None


@pytest.mark.parametrize(("vendor", "is_refused"), [("AuthenticAMD", True), ("ARM", False)])
def test_limits_of_another_vendor_do_not_apply(
    vendor: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    choose_for(vendor, monkeypatch, request)
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
    assert [crossover.refusal("torch", call_info(s, "cpu")) is not None for s in in_tiles] == [is_refused] * 4
    assert [crossover.refusal("torch", call_info(s, "cpu")) for s in others] == [None] * 4


@pytest.mark.parametrize(("vendor", "is_refused"), [("AuthenticAMD", True), ("GenuineIntel", False)])
def test_limits_of_programs_do_not_apply_to_eager_calls(
    vendor: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    choose_for(vendor, monkeypatch, request)
    in_tiles = [
        sample("matmul", T(64, 256), T(256, 100)),
        sample("matmul", T(2, 64, 256), T(100, 256), False, True),
        sample("dense", T(8, 64, 256), T(100, 256), T(100)),
    ]
    others = [
        sample("matmul", T(2, 64, 256), T(2, 256, 100)),
        sample("matmul", T(64, 256), T(256, 4)),
        sample("matmul", T(2, 1024), T(1024, 1024)),
        sample("matmul", T(1024), T(1024, 1024)),
        sample("dense", T(64, 256, dtype="bfloat16"), T(100, 256, dtype="bfloat16")),
    ]
    for calls, expected in ((in_tiles, is_refused), (others, False)):
        for call in (call_info(s, "cpu") for s in calls):
            assert (crossover.refusal("torch", call, in_program=True) is not None) == expected, call.args
            assert crossover.refusal("torch", call) is None


def test_crossing_is_the_last_change_of_sides() -> None:
    assert crossing([(100, 0.5), (400, 1.5)], faster_above=True) == 200
    assert crossing([(100, 1.2), (200, 0.9), (800, 1.5)], faster_above=True) == 400
    assert crossing([(100, 1.2), (400, 0.5)], faster_above=False) == 200
    assert crossing([(100, 1.2), (400, 1.5)], faster_above=True) is None


def test_rows_are_rendered_as_they_are_written() -> None:
    text = Path(crossover.__file__).read_text()
    assert all(render(limit) in text for limit in LIMITS)


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
     ("", "*"), ("scaled_dot_product_attention_dx", "*_attention*"), ("adaptive_max_pool1d", "adaptive_*_pool1d*"),
     ("softmax", "*softmax")],
)  # fmt: skip
def test_patterns_match_like_fnmatch(name: str, pattern: str) -> None:
    assert crossover._matches(name, pattern) == fnmatchcase(name, pattern)
