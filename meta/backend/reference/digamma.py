"""The derivative of the gamma function's logarithm, which several families need."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

BERNOULLI: Final = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""The Bernoulli numbers of even index, from the second."""


def digamma(x: float) -> float:
    if x == 0:
        return -math.copysign(math.inf, x)
    if x == -math.inf or (x < 0 and x == np.floor(x)):
        return math.nan
    if x < 0:
        return digamma(1 - x) - math.pi / math.tan(math.pi * (x - round(x)))
    total = 0.0
    while x < 20:
        total -= 1 / x
        x += 1
    tail = sum(number / (2 * k + 2) * (1 / x) ** (2 * k + 2) for k, number in enumerate(BERNOULLI))
    return total + math.log(x) - 0.5 / x - tail
