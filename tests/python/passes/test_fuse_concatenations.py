"""Concatenations on the CPU that a transpose reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.ir.expr import Call
from meta.ir.type import tensor_type
from meta.ir.visitor import walk
from meta.passes import fuse_concatenations
from tests.python.vm.programs import program

pytest.importorskip("torch")

SHAPE = 2, 64, 128
"""Large enough for torch's concatenation."""


def gradient_of_split(a: Any, b: Any, c: Any) -> Any:
    return meta.transpose(meta.concatenate([a, b, c], axis=0), (1, 0, 2))


@pytest.mark.parametrize(
    ("axis", "axes", "fused"), [(0, (1, 0, 2), True), (2, (1, 0, 2), False), (0, (1, 2, 0), False)]
)
def test_rows_that_stay_contiguous_are_joined_by_tvm(axis: int, axes: tuple[int, ...], fused: bool) -> None:
    def body(ops: Any, *parts: Any) -> list[Any]:
        return [ops.transpose(ops.concatenate(list(parts), axis), axes)]

    after = fuse_concatenations(program(dict.fromkeys("abc", tensor_type(SHAPE, "float32")), body))
    calls = [b.value for b in walk(after.main) if isinstance(b.value, Call)]
    assert [call.dialect for call in calls] == ["tvm" if fused else None, None]


def test_the_joined_and_transposed_tensor_is_one_kernel() -> None:
    parts = [np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32) for seed in range(3)]
    arrays = [meta.array(part) for part in parts]
    compiled = meta.vm.compile(meta.trace(gradient_of_split))
    np.testing.assert_array_equal(compiled(*arrays).numpy(), np.concatenate(parts).transpose(1, 0, 2))
    with meta.profiler.profile() as profile:
        compiled(*arrays)
    assert [e.operators for e in profile.events if e.kind == "kernel"] == [("tvm.concatenate", "tvm.transpose")]
