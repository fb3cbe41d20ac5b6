"""Random bits as a pure function: Philox4x32-10 (J. Salmon, M. Moraes, R. Dror and D. Shaw, "Parallel Random Numbers:
As Easy as 1, 2, 3", 2011).

A key is an int64 tensor (seed, offset). Block b of a stream has the 128-bit counter (b, offset) and the 64-bit key
seed. Elements that need one or two of its four words share blocks with others `LANES` before and after them, which one
thread of a GPU computes as well, and CPUs as further vectors. An element depends on its position only, so that every
schedule on every device gives the same numbers. `meta.backend.reference.philox` computes the same in NumPy.

The words of an element are an operator of meta. After TVM's last pass `philox_expansion` computes them before the
statement that reads them: by then the index of an element on a GPU is the index of its thread, so that its block and
its words are known. The rounds are variables, because each reads two products twice; TVM's simplifier fails for
variables that are bound in the condition of a selection or in the value of another variable, as in kernels with several
random operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.intrinsic import Expr, dtype_of, operator
from meta.backend.tvm.te.elementwise import select
from meta.dtype import significand_bits

ROUNDS: Final = 10
LANES: Final = 256
"""The distance between elements that share a block, and between the elements of a thread on GPUs."""
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
PHILOX: Final = "meta.philox_"
"""Prefix of the operators of this module."""
STREAM: Final = 40
"""Bits of an element's position; the number of a block in the stream of an element is in the bits above."""
SHARING: Final = {f"{PHILOX}pair": 2, f"{PHILOX}word": 4}
"""The elements that share a block, by the operator of their words."""
WEYL: Final = (0x9E3779B9, 0xBB67AE85)


def words(key: Any, index: Expr, count: int) -> tuple[Expr, ...]:
    """The `count` (1, 2 or 4) uint32 words of the element at `index` (int64, row-major) in the stream `key`."""
    arguments = key(0).astype("uint64"), key(1).astype("uint64"), index
    if count == 1:
        return (tirx.call_intrin("uint32", _operators()["word"], *arguments),)
    names = ("pair",) if count == 2 else ("first", "second")
    pairs = [tirx.call_intrin("uint64", _operators()[name], *arguments) for name in names]
    return tuple(half for pair in pairs for half in halves(pair))


def stream_words(key: Any, index: Expr, number: Expr) -> tuple[Expr, ...]:
    """The four words of block `number` (int64) in the stream of the element at `index`: elements that need several
    blocks, in a number that depends on the words, take them from streams of their own."""
    return words(key, index + (number << like(number, STREAM)), 4)


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
    """True with a probability (float32; 24 of its bits count)."""
    return unit(block, "float32") < probability


def is_below(block: tuple[Expr, ...], share: Expr) -> Expr:
    """As `bernoulli`, for a float32 from 0 to 1. Its integers are compared: GPUs convert a quarter as many integers as
    they compare."""
    bits = (block[0] >> _u32(8)).astype("int32")
    return bits < tirx.ceil(share * tirx.const(2.0**24, "float32")).astype("int32")


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


def register_operators() -> None:
    """Make the operators of this module known to TVM, for a function that another process wrote."""
    _operators()


@cache
def _operators() -> dict[str, Any]:
    """Operators of (seed, offset, index), registered with TVM on first use. `first` and `second` are the pairs of words
    of block `index`, and `pair` and `word` the one or two words of element `index`. Pairs are one uint64."""
    names = "first", "second", "pair", "word"
    return {name: operator(PHILOX.removeprefix("meta.") + name, 3) for name in names}


def list_calls(node: tvm.Object) -> list[Any]:
    """The calls of the operators of this module in a statement or an expression."""
    calls: list[Any] = []
    tvm.structural_walk(node, (tvm.Call, lambda call: calls.append(call) if is_random(call) else None))
    return calls


def elements_of_block(node: tvm.Object) -> int:
    """The elements that share a block of random bits in a statement or an expression; 1 without random bits."""
    return max((SHARING.get(str(call.op.name), 1) for call in list_calls(node)), default=1)


def is_random(call: tvm.Call) -> bool:
    return getattr(call.op, "name", "").startswith(PHILOX)


def halves(x: Expr) -> tuple[Expr, Expr]:
    """The low and the high word of a uint64."""
    return low_word(x), high_word(x)


def low_word(x: Expr) -> Expr:
    """The low word of a uint64. Without the mask, TVM rejects the cast: its bounds may exceed uint32."""
    return cast_lanes(x & like(x, 0xFFFFFFFF), "uint32")


def high_word(x: Expr) -> Expr:
    """The high word of a uint64."""
    return cast_lanes(x >> like(x, 32), "uint32")


def cast_lanes(x: Expr, kind: str) -> Expr:
    """`x` as `kind`, with its lanes."""
    return x.astype(dtype_of(x).replace("uint64" if kind == "uint32" else "uint32", kind))


def like(x: Expr, value: int) -> Expr:
    """`value` in the dtype and with the lanes of `x`."""
    return tirx.const(value, dtype_of(x))


def _u32(value: int) -> Expr:
    return tirx.const(value, "uint32")


def _u64(value: int) -> Expr:
    return tirx.const(value, "uint64")
