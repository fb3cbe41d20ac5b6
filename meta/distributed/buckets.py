"""Buckets: tensors of one dtype that are communicated together, one after the other in one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import meta
from meta.dtype import itemsize
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Bucket:
    """Arrays of one dtype and device, whose tensors are communicated together."""

    arrays: tuple[NDArray, ...]

    def join(self, tensors: Sequence[Any]) -> Any:
        """Tensors of the arrays' shapes as one vector."""
        flat = [meta.reshape(t, (-1,)) for t in tensors]
        return flat[0] if len(flat) == 1 else meta.concatenate(flat, 0)

    def divide(self, vector: Any) -> tuple[Any, ...]:
        """The inverse of `join`."""
        shapes = [x.shape for x in self.arrays]
        if len(shapes) == 1:
            return (meta.reshape(vector, shapes[0]),)
        ends: list[int] = []
        for shape in shapes[:-1]:
            ends.append((ends[-1] if ends else 0) + math.prod(shape))
        return tuple(meta.reshape(p, s) for p, s in zip(meta.split(vector, ends, 0), shapes, strict=True))


BUCKET_BYTES = 25 << 20
"""Tensors are communicated in buckets of about this size, as torch's DistributedDataParallel does by default."""

MOST_TENSORS = 32
"""Tensors in a bucket, at most: the kernels that join and divide them take long to compile, and one more message takes
less than 50 us."""


def check_bucket_bytes(where: str, value: Any) -> None:
    """Raise ArgumentError for something other than a positive int."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(where, f"bucket_bytes is {value!r}", "an int above 0")


def buckets(
    arrays: Iterable[NDArray], least_bytes: int, apart: Callable[[NDArray], Any] = lambda _: None, parts: int = 1
) -> Iterator[Bucket]:
    """The arrays in buckets of at least that many bytes or MOST_TENSORS arrays, each of one dtype and device, in order;
    large ones one by one.

    apart: arrays for which it differs are in different buckets.
    parts: the number of parts that the arrays are one of; sizes count all parts."""
    # Larger tensors are communicated one by one: a message takes less time than copies into and out of a bucket.
    alone_bytes = 1 << 20
    open_buckets: dict[Any, list[NDArray]] = {}
    sizes: dict[Any, int] = {}
    for x in arrays:
        kind = x.dtype, x.device, apart(x)
        size = parts * math.prod(x.shape) * itemsize(x.dtype)
        if size >= min(least_bytes, alone_bytes):
            yield Bucket((x,))
            continue
        open_buckets.setdefault(kind, []).append(x)
        sizes[kind] = sizes.get(kind, 0) + size
        if sizes[kind] >= least_bytes or len(open_buckets[kind]) == MOST_TENSORS:
            yield Bucket(tuple(open_buckets.pop(kind)))
            del sizes[kind]
    for rest in open_buckets.values():
        yield Bucket(tuple(rest))
