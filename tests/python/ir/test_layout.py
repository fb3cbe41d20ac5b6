"""Layouts of tensors in the memory of others, against NumPy's strides."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from meta.ir.layout import StridedLayout


def _moved(layout: StridedLayout, x: np.ndarray, rng: Random) -> tuple[StridedLayout | None, np.ndarray]:
    """The layout and the array after a random move."""
    axis = rng.randrange(x.ndim)
    match rng.randrange(4):
        case 0:
            axes = tuple(rng.sample(range(x.ndim), x.ndim))
            return layout.transposed(axes), x.transpose(axes)
        case 1:
            begin, step = rng.randrange(x.shape[axis]), rng.choice((1, 2))
            part = x[(slice(None),) * axis + (slice(begin, None, step),)]
            return layout.sliced(axis, begin, part.shape[axis], step), part
        case 2:
            shape = (2, *(3 if n == 1 else n for n in x.shape))
            return layout.broadcast(shape), np.broadcast_to(x, shape)
        case _:
            factors = [f for f in range(1, x.shape[axis] + 1) if x.shape[axis] % f == 0]
            inner = rng.choice(factors)
            split = (*x.shape[:axis], x.shape[axis] // inner, inner, *x.shape[axis + 1 :])
            joined = (*x.shape[:axis], int(np.prod(x.shape[axis:])))
            shape = rng.choice((split, joined))
            return layout.reshaped(shape), x.reshape(shape)


def test_random_moves_agree_with_numpy() -> None:
    """A reshape has a layout exactly where NumPy makes no copy."""
    rng, copies = Random(0), 0
    for _ in range(500):
        shape = tuple(rng.choice((1, 2, 3, 4)) for _ in range(rng.randint(1, 3)))
        base = np.arange(np.prod(shape)).reshape(shape)
        layout, x = StridedLayout.row_major(shape), base
        for _ in range(3):
            after, y = _moved(layout, x, rng)
            assert (after is not None) == np.shares_memory(y, base)
            if after is None:
                copies += 1
                break
            layout, x = after, y
        else:
            strides = [8 * stride for stride in layout.strides]
            memory = base.ravel()[layout.offset :]
            np.testing.assert_array_equal(np.lib.stride_tricks.as_strided(memory, layout.shape, strides), x)
            assert layout.source == shape
    assert copies > 10


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (StridedLayout.row_major((2, 3)), True),
        (StridedLayout((2, 1, 3), (2, 1, 3), (3, 77, 1)), True),  # the stride of an axis of size 1 does not matter
        (StridedLayout((3, 2), (2, 3), (1, 2)), False),
        (StridedLayout((4, 3), (2, 3), (3, 1)), False),
        (StridedLayout((2, 3), (1, 3), (3, 1), 3), False),
    ],
)
def test_is_row_major(layout: StridedLayout, expected: bool) -> None:
    assert layout.is_row_major is expected


def test_tensors_without_elements_have_no_strides() -> None:
    assert StridedLayout.row_major((2, 0)).reshaped((0, 2)) is None
