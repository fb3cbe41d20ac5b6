"""Random bits as a pure function of a key and a position: Philox4x32-10 (J. Salmon, M. Moraes, R. Dror and D. Shaw,
2011), the same bits as `meta.backend.tvm.te.philox`."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meta.dtype import significand_bits

Array = NDArray[Any]
Words = NDArray[np.uint64]

ROUNDS: Final = 10
LANES: Final = 256
STREAM: Final = 40
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def words(key: Array, shape: tuple[int, ...], count: int) -> list[Array]:
    """`count` (1, 2 or 4) uint32 arrays of `shape`: the words of each element in the stream `key`, int64
    (seed, offset).

    Elements that need fewer than the four words of a block share it with others that are `LANES` away."""
    seed, offset = _unsigned(key)
    index: Words = np.reshape(np.arange(math.prod(shape), dtype=np.uint64), shape)
    sharing = 4 // count
    block = index // (LANES * sharing) * LANES + index % LANES if count < 4 else index
    counter = [block & _LOW, block >> _HALF, *(np.broadcast_to(v, shape) for v in (offset & _LOW, offset >> _HALF))]
    four = np.stack([word.astype(np.uint32) for word in philox(counter, [seed & _LOW, seed >> _HALF])])
    first = (index // LANES % sharing * count).astype(np.int64)
    return [np.take_along_axis(four, (first + i)[None], 0)[0] for i in range(count)]


def stream_words(key: Array, index: Words, number: int) -> list[Array]:
    """The four words, uint32, of block `number` in the streams of the elements at positions `index` (uint64)."""
    seed, offset = _unsigned(key)
    block = index + (number << STREAM)
    counter = [
        block & _LOW,
        block >> _HALF,
        *(np.broadcast_to(v, index.shape) for v in (offset & _LOW, offset >> _HALF)),
    ]
    return [word.astype(np.uint32) for word in philox(counter, [seed & _LOW, seed >> _HALF])]


def _unsigned(key: Array) -> tuple[Words, Words]:
    """The seed and the offset of a stream, int64, as uint64."""
    seed, offset = np.asarray(key).astype(np.int64).astype(np.uint64)  # two's complement
    return seed, offset


def philox(counter: list[Words], key: list[Words]) -> list[Words]:
    """The block of a counter (four 32-bit words) and a key (two), each word a uint64."""
    c0, c1, c2, c3 = counter
    for i in range(ROUNDS):
        k0, k1 = ((k + np.uint64(w * i & 0xFFFFFFFF)) & _LOW for k, w in zip(key, WEYL, strict=True))
        first, second = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c1, c2, c3 = second >> _HALF ^ c1 ^ k0, second & _LOW, first >> _HALF ^ c3 ^ k1, first & _LOW
    return [c0, c1, c2, c3]


def uniform01(key: Array, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """Uniform numbers in [0, 1) with the significand bits of `dtype`: float64 for that dtype, float32 otherwise."""
    return unit(words(key, shape, 2 if dtype == "float64" else 1), dtype)


def unit(block: list[Array], dtype: str) -> Array:
    """`uniform01` from the words of each element's block."""
    if dtype == "float64":
        bits = (block[0].astype(np.uint64) << _HALF | block[1].astype(np.uint64)) >> np.uint64(11)
        return bits.astype(np.float64) * 2.0**-53
    digits = significand_bits(dtype)
    return (block[0] >> np.uint32(32 - digits)).astype(np.float32) * np.float32(2.0**-digits)


def integer(key: Array, shape: tuple[int, ...], low: int, high: int) -> Array:
    """Uniform int64 in [low, high)."""
    first, second = words(key, shape, 2)
    bits = second.astype(np.uint64) << _HALF | first.astype(np.uint64)
    span = np.uint64(max(high - low, 1))
    offsets: Words = bits % span
    return offsets.astype(np.int64) + np.int64(low)
