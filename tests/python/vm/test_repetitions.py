"""Programs that repeat an operand along several axes: LLVM gives wrong code for nests of loops with remainders."""

from __future__ import annotations

from typing import Any

import numpy as np

import meta

CASES = [
    ((2, 3, 4, 5), (7, 6, 4, 2)),
    ((3, 4, 5), (6, 4, 2)),
    ((4, 3), (2, 5)),
    ((5,), (16,)),
    ((8, 1, 3), (2, 4, 6)),
    ((64, 64), (16, 16)),
]


def test_tiles_of_several_axes() -> None:
    arrays = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape, _ in CASES]

    @meta.trace
    def repeat(*operands: Any) -> Any:
        return tuple(meta.tile(x, repetitions) for x, (_, repetitions) in zip(operands, CASES, strict=True))

    results = meta.vm.compile(repeat)(*map(meta.array, arrays))
    for result, x, (_, repetitions) in zip(results, arrays, CASES, strict=True):
        np.testing.assert_array_equal(result.numpy(), np.tile(x, repetitions))
