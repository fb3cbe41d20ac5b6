"""Random bits as a pure function: Philox4x32-10 (J. Salmon, M. Moraes, R. Dror and D. Shaw, "Parallel Random Numbers:
As Easy as 1, 2, 3", 2011).

A key is an int64 tensor (seed, offset). Element i of a tensor is computed from the block with the 128-bit counter
(i, offset) and the 64-bit key seed. An element depends on its position only, so that every schedule on every device
gives the same numbers. `meta.backend.reference.philox` computes the same in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.te.elementwise import let, select
from meta.dtype import significand_bits

Expr = Any

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
WEYL: Final = (0x9E3779B9, 0xBB67AE85)


def with_words(key: Any, index: Expr, body: Callable[[tuple[Expr, ...]], Expr]) -> Expr:
    """`body` of the block of four uint32 words at `index` (int64) of the stream `key`."""
    seed, offset = key(0), key(1)
    counter = (*_halves(index), *_halves(offset))
    return _with_philox(counter, _halves(seed), body)


def unit(block: tuple[Expr, ...], dtype: str) -> Expr:
    """A float in [0, 1) from a block of words, an exact multiple of 2**-24 in float32, 2**-53 in float64, 2**-11 in
    float16 and 2**-8 in bfloat16."""
    if dtype == "float64":
        high, low = block[0].astype("uint64"), block[1].astype("uint64")
        bits = (high << _u64(32) | low) >> _u64(11)
        return bits.astype("int64").astype("float64") * tirx.const(2.0**-53, "float64")
    digits = significand_bits(dtype)
    # Through int32, for which CPUs have a vector conversion to floats.
    bits = (block[0] >> _u32(32 - digits)).astype("int32")
    return (bits.astype("float32") * tirx.const(2.0**-digits, "float32")).astype(dtype)


def bernoulli(block: tuple[Expr, ...], probability: Expr) -> Expr:
    """True with a probability (float32, of which 24 bits count)."""
    return unit(block, "float32") < probability


def position(index: Sequence[Any], shape: Sequence[Any]) -> Expr:
    """The row-major position of an element, int64."""
    out: Expr = tirx.const(0, "int64")
    for i, size in zip(index, shape, strict=True):
        out = out * size + i
    return out


def integer(block: tuple[Expr, ...], low: Expr, high: Expr) -> Expr:
    """An int64 in [low, high): 64 bits modulo n = high - low; each has a probability within 2**-64 of 1/n."""
    bits = block[1].astype("uint64") << _u64(32) | block[0].astype("uint64")
    span = (high - low).astype("uint64")
    span = select(tirx.EQ(span, _u64(0)), _u64(1), span)
    return low + tirx.truncmod(bits, span).astype("int64")


def _with_philox(
    counter: tuple[Expr, ...], key: tuple[Expr, Expr], body: Callable[[tuple[Expr, ...]], Expr], number: int = 0
) -> Expr:
    """`body` of the counter after the rounds from `number` on.

    The products are variables: a round reads each twice, and TVM's passes take time in proportion to an expression that
    is written out in full, which doubles with every round or two."""
    if number == ROUNDS:
        return body(counter)
    c0, c1, c2, c3 = counter
    k0, k1 = (k + _u32(w * number & 0xFFFFFFFF) for k, w in zip(key, WEYL, strict=True))

    def rest(first: Expr, second: Expr) -> Expr:
        mixed = (_high(second) ^ c1 ^ k0, _low(second), _high(first) ^ c3 ^ k1, _low(first))
        return _with_philox(mixed, key, body, number + 1)

    return let(
        _product(c0, MULTIPLIERS[0]),
        lambda first: let(_product(c2, MULTIPLIERS[1]), lambda second: rest(first, second)),
    )


def _product(a: Expr, b: int) -> Expr:
    """a * b as uint64."""
    return a.astype("uint64") * _u64(b)


def _halves(x: Expr) -> tuple[Expr, Expr]:
    """The low and the high word of an int64."""
    return _low(x.astype("uint64")), _high(x.astype("uint64"))


def _low(x: Expr) -> Expr:
    """The low word of a uint64. Without the mask, TVM rejects the cast: its bounds may exceed uint32."""
    return (x & _u64(0xFFFFFFFF)).astype("uint32")


def _high(x: Expr) -> Expr:
    """The high word of a uint64."""
    return (x >> _u64(32)).astype("uint32")


def _u32(value: int) -> Expr:
    return tirx.const(value, "uint32")


def _u64(value: int) -> Expr:
    return tirx.const(value, "uint64")
