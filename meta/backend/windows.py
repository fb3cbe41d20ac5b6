"""Sliding windows along an axis: which elements each of them covers.

The arithmetic uses only `+ * // %` and comparisons, so it serves Python ints, NumPy and TVM expressions.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from meta.records import record


@record
class Windows:
    """The windows along one axis of `size` elements: window i covers `start(i) + r * dilation` for r < kernel.

    Windows of adaptive pooling (`adaptive`) vary in length; `kernel` is the length of the longest.
    """

    size: int
    count: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0
    adaptive: bool = False

    def start(self, i: Any) -> Any:
        """The first position of window i, which may be in the padding."""
        return i * self.size // self.count if self.adaptive else i * self.stride - self.before

    def position(self, i: Any, r: Any) -> Any:
        """The position of element r of window i."""
        return self.start(i) + r * self.dilation

    def inside(self, i: Any, r: Any) -> list[Any]:
        """Conditions for element r of window i to exist; none where it always does."""
        position = self.position(i, r)
        if self.adaptive:
            return [position < _ceil_div((i + 1) * self.size, self.count)]
        conditions = [position >= 0] if self.before else []
        last = (self.count - 1) * self.stride - self.before + (self.kernel - 1) * self.dilation
        return [*conditions, position < self.size] if last >= self.size else conditions

    @property
    def candidates(self) -> int:
        """The number of windows that may cover a position."""
        if self.adaptive:
            # The windows from h * count // size to ((h + 1) * count - 1) // size: most where h * count mod size, a
            # multiple of the greatest common divisor, is largest.
            return (self.size - gcd(self.size, self.count) + self.count - 1) // self.size + 1
        return self.kernel if self.dilation > 1 else -(-self.kernel // self.stride)

    def covering(self, h: Any, j: Any) -> tuple[Any, list[Any]]:
        """Candidate j of the windows that cover position h, and the conditions for it to be one."""
        if self.adaptive:
            i = h * self.count // self.size + j
            return i, [i <= ((h + 1) * self.count - 1) // self.size]
        if self.dilation > 1:
            offset = h + self.before - j * self.dilation
            i = offset // self.stride
            return i, [offset >= 0, offset % self.stride == 0, i < self.count]
        i = (h + self.before) // self.stride - j
        conditions = [i >= 0] if self.candidates > 1 else []
        if (self.size - 1 + self.before) // self.stride >= self.count:
            conditions.append(i < self.count)
        if self.kernel % self.stride:
            conditions.append(i * self.stride + self.kernel > h + self.before)
        return i, conditions

    def elements(self, i: Any, include_pad: bool, most: Any = min, least: Any = max) -> Any:
        """The number of elements of window i, with or without those in the padding, at least 1; an int if all windows
        have as many. `most` and `least` are the minimum and maximum of two values."""
        if self.adaptive:
            return _ceil_div((i + 1) * self.size, self.count) - self.start(i)
        end = self.size + (self.after if include_pad else 0)
        last = self.start(self.count - 1) + (self.kernel - 1) * self.dilation
        if last < end and (include_pad or not self.before):
            return self.kernel
        past = most(_ceil_div(end - self.start(i), self.dilation), self.kernel)
        if include_pad or not self.before:
            return least(past, 1)
        return least(past - least(_ceil_div(-self.start(i), self.dilation), 0), 1)


def _ceil_div(a: Any, b: int) -> Any:
    return (a + (b - 1)) // b


def adaptive_windows(size: int, count: int) -> Windows:
    """The windows of adaptive pooling from `size` elements to `count`; regular ones where they divide."""
    if size % count == 0:
        return Windows(size, count, size // count, size // count)
    # From i * size // count to the quotient of (i + 1) * size rounded up: longest where i * size mod count is largest,
    # a multiple of the greatest common divisor.
    longest = _ceil_div(count - gcd(size, count) + size, count)
    return Windows(size, count, longest, adaptive=True)
