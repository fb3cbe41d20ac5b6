"""Tensors that are parts of the memory of others, and what operators that move elements make of them.

x        (2, 6)                        strides (6, 1)
y = x[:, 2:4]                          strides (6, 1), offset 2
z = transpose(y)                       strides (1, 6), offset 2
"""

from __future__ import annotations

from math import prod

from meta.records import record


@record
class StridedLayout:
    """Where the elements of a tensor are in the memory of a row-major one.

    source: the shape of that tensor.  shape: of this one.  strides: between neighbours along each axis.
    offset: of the first element. Strides and offset count elements."""

    source: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def row_major(shape: tuple[int, ...]) -> StridedLayout:
        return StridedLayout(shape, shape, _row_major_strides(shape))

    @property
    def is_row_major(self) -> bool:
        """Whether the tensor is all of the memory, in its order."""
        expected = _row_major_strides(self.shape)
        alike = all(n == 1 or s == t for n, s, t in zip(self.shape, self.strides, expected, strict=True))
        return alike and self.offset == 0 and prod(self.shape) == prod(self.source)

    def transposed(self, axes: tuple[int, ...]) -> StridedLayout:
        """Axis i of the result is axis axes[i]."""
        shape, strides = tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes)
        return StridedLayout(self.source, shape, strides, self.offset)

    def sliced(self, axis: int, begin: int, size: int, step: int = 1) -> StridedLayout:
        """The elements begin, begin + step, ... of an axis."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + begin * strides[axis]
        shape[axis], strides[axis] = size, strides[axis] * step
        return StridedLayout(self.source, tuple(shape), tuple(strides), offset)

    def broadcast(self, shape: tuple[int, ...]) -> StridedLayout:
        """Repeated along axes of size 1 and new leading axes."""
        added = len(shape) - len(self.shape)
        own = ((1, 0),) * added + tuple(zip(self.shape, self.strides, strict=True))
        strides = tuple(s if n == size else 0 for (n, s), size in zip(own, shape, strict=True))
        return StridedLayout(self.source, shape, strides, self.offset)

    def reshaped(self, shape: tuple[int, ...]) -> StridedLayout | None:
        """The elements in row-major order with another shape; None where they have no strides."""
        if 0 in shape:
            return None
        runs: list[tuple[int, int]] = []  # neighbouring axes that one stride steps through: elements and stride
        for n, stride in zip(self.shape, self.strides, strict=True):
            if n != 1:
                joined = bool(runs) and runs[-1][1] == n * stride
                runs.append((runs.pop()[0] * n if joined else n, stride))
        strides: list[int] = []
        left = step = 1
        for n in reversed(shape):
            if n != 1 and left == 1:
                left, step = runs.pop()
            if left % n:
                return None
            strides.append(step)
            left, step = left // n, step * n
        return StridedLayout(self.source, shape, tuple(reversed(strides)), self.offset) if left == 1 else None


def _row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
