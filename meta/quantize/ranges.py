"""Ranges of values, and the scales and zero points that follow from them.

    low = -1.0, high = 4.1:   scale = 5.1 / 255 = 0.02,   zero point = round(1.0 / 0.02) = 50,   integers 0 to 255

A range includes 0, which padding and activations need to be exact.
"""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.eager.ndarray import NDArray
from meta.model.model import Model
from meta.modes import no_grad

LEVELS = 255
"""The largest integer of inputs; weights are -127 to 127."""


class Range(Model):
    """The range of the values in all batches so far.

    percentile: the share of a batch's values, in percent, that its range leaves neither below nor above; 100 for all.
    rate: the least weight of a batch in the mean of ranges: 0 for the mean of all batches, 0.01 for the mean of about
        the last 100; None for the union of the ranges."""

    low: NDArray
    high: NDArray
    batches: NDArray

    def build(self, percentile: float = 100.0, rate: float | None = None) -> None:
        self.percentile, self.rate = percentile, rate
        for name in ("low", "high"):
            self.buffer(name, meta.zeros(()))
        self.buffer("batches", meta.zeros(()))

    def forward(self, x: Tensor) -> None:
        """Take the range of a batch into account."""
        with no_grad():
            values, share = x.cast("float32"), self.percentile / 100
            if share < 1:
                low, high = meta.quantile(values, 1 - share), meta.quantile(values, share)
            else:
                low, high = meta.min(values), meta.max(values)
            low, high, count = meta.minimum(low, 0.0), meta.maximum(high, 0.0), self.batches + 1.0
            if self.rate is None:
                low, high = meta.minimum(self.low, low), meta.maximum(self.high, high)
            else:
                weight = meta.maximum(1.0 / count, self.rate)
                low, high = self.low + (low - self.low) * weight, self.high + (high - self.high) * weight
            new: Any = (low, high, count)
            for buffer, value in zip((self.low, self.high, self.batches), new, strict=True):
                buffer.update(value)

    def step(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point, 0-d; the scale is 1 if all values were 0."""
        with no_grad():
            scale = positive((self.high - self.low) / LEVELS)
            return scale, meta.clip(meta.round(-self.low / scale), 0, LEVELS)


def weight_scale(w: Tensor) -> Tensor:
    """The scale of each output channel, the first axis of w, in a shape that broadcasts to w."""
    with no_grad():
        return positive(meta.max(meta.abs(w), tuple(range(1, w.ndim)), True) / 127)


def positive(scale: Tensor) -> Tensor:
    """A scale with 1 in place of 0, for values that all are 0."""
    return meta.where(meta.equal(scale, 0), 1.0, scale)
