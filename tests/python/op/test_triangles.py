"""tril and triu of rows and columns with diagonals beyond them write no memory outside of the result."""

from __future__ import annotations

import numpy as np
import pytest

import meta


@pytest.mark.parametrize(("name", "shape", "sign"), [("triu", (3, 1), 1), ("tril", (1, 3), -1), ("triu", (3, 2), 1)])
def test_diagonals_outside_of_the_matrix(name: str, shape: tuple[int, int], sign: int) -> None:
    x = np.ones(shape, np.float32)
    for k in (0, sign, 2 * sign, 4 * sign, 10**7 * sign, -(10**7) * sign):
        expected = getattr(np, name)(x, k)
        np.testing.assert_array_equal(getattr(meta, name)(meta.array(x), k).numpy(), expected)
