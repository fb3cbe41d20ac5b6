"""Random bits as a pure function: Philox4x32-10 (J. Salmon, M. Moraes, R. Dror and D. Shaw, "Parallel Random Numbers:
As Easy as 1, 2, 3", 2011).

A key is an int64 tensor (seed, offset). Element i of a tensor is computed from the block with the 128-bit counter
(i, offset) and the 64-bit key seed. An element depends on its position only, so that every schedule on every device
gives the same numbers. `meta.backend.reference.philox` computes the same in NumPy.

A pair of words is an operator of meta. After TVM's last pass `expand` computes it before the statement that reads it.
The rounds are variables, because each reads two products twice; TVM's simplifier fails for variables that are bound in
the condition of a selection or in the value of another variable, as in kernels with several random operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.te.elementwise import select
from meta.backend.tvm.te.intrinsic import Expr, dtype_of, operator
from meta.dtype import significand_bits

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
PHILOX: Final = "meta.philox_"
"""Prefix of the operators of this module."""
WEYL: Final = (0x9E3779B9, 0xBB67AE85)


def words(key: Any, index: Expr) -> tuple[Expr, ...]:
    """The block of four uint32 words at `index` (int64) of the stream `key`."""
    arguments = [x.astype("uint64") for x in (key(0), key(1), index)]
    pairs = [tirx.call_intrin("uint64", pair, *arguments) for pair in _pairs()]
    return tuple(half for pair in pairs for half in _halves(pair))


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


def register_operators() -> None:
    """Make the operators of this module known to TVM, for a function that another process wrote."""
    _pairs()


@cache
def _pairs() -> tuple[Any, Any]:
    """The operators (seed, offset, index), all uint64 -> the words 0 and 1, and the words 2 and 3, as one uint64. They
    are registered with TVM on first use."""
    first, second = (operator(f"{PHILOX.removeprefix('meta.')}{name}", 3) for name in ("first", "second"))
    return first, second


def expand(func: Any) -> Any:
    """`func` with the operators of this module expanded. A statement follows those that compute its pairs of words."""
    if not list_calls(func):
        return func
    return tvm.structural_map(func, [(tvm.BufferStore, _expand_store), (tvm.SeqStmt, _expand_bindings)])


def _expand_store(store: Any) -> Any:
    value, statements = _expand(store.value)
    return tvm.SeqStmt([*statements, tvm.BufferStore(store.buffer, value, store.indices)]) if statements else store


def _expand_bindings(sequence: Any) -> Any:
    """A sequence of statements with the words in the value of a `Bind` computed by statements before it."""
    out: list[Any] = []
    for statement in sequence.seq:
        if isinstance(statement, tirx.Bind):
            value, statements = _expand(statement.value)
            out += statements
            statement = tirx.Bind(statement.var, value) if statements else statement
        out.append(statement)
    return tvm.SeqStmt(out) if len(out) > len(sequence.seq) else sequence


def _expand(value: Expr) -> tuple[Expr, list[Any]]:
    """`value` with loads in place of calls, and the statements that store what they load.

    The words are in memory, which becomes registers: TVM's generators of code put the values of variables in the place
    of the variables wherever they simplify, for which a function of a function of random bits takes minutes."""
    statements: list[Any] = []
    pairs: list[tuple[Any, Expr]] = []

    def load(call: Any) -> Expr:
        if not _is_pair(call):
            return call
        for computed, words in pairs:
            if tvm.structural_equal(computed, call):
                return words
        buffer = tirx.decl_buffer((1,), dtype_of(call), "words", scope="local")
        statements.extend([tirx.AllocBuffer(buffer), tvm.BufferStore(buffer, _words_of(call), [0])])
        pairs.append((call, tirx.BufferLoad(buffer, [0])))
        return pairs[-1][1]

    return tvm.structural_map(value, (tvm.Call, load)), statements


def _words_of(call: Any) -> Expr:
    """The two words of a call as one uint64."""
    bindings: list[tuple[Any, Expr]] = []

    def name(expr: Expr) -> Expr:
        bindings.append((tirx.Var("t", dtype_of(expr)), expr))
        return bindings[-1][0]

    seed, offset, index = (_halves(name(x)) for x in call.args)
    start = 0 if call.op.same_as(_pairs()[0]) else 2
    words = _after_rounds((*index, *offset), seed, name)[start : start + 2]
    low, high = (_cast(word, "uint64") for word in words)
    out = high << _like(high, 32) | low
    for var, bound in reversed(bindings):
        out = tirx.Let(var, bound, out)
    return out


def list_calls(node: Any) -> list[Any]:
    """The calls of the operators of this module in a statement or an expression."""
    calls: list[Any] = []
    tvm.structural_walk(node, (tvm.Call, lambda call: calls.append(call) if _is_pair(call) else None))
    return calls


def _is_pair(call: Any) -> bool:
    return getattr(call.op, "name", "").startswith(PHILOX)


def _after_rounds(counter: tuple[Expr, ...], key: tuple[Expr, Expr], name: Callable[[Expr], Expr]) -> tuple[Expr, ...]:
    """The counter after the rounds. name: binds a variable to a value."""
    for number in range(ROUNDS):
        c0, c1, c2, c3 = counter
        k0, k1 = (k + _like(k, w * number & 0xFFFFFFFF) for k, w in zip(key, WEYL, strict=True))
        first, second = name(_product(c0, MULTIPLIERS[0])), name(_product(c2, MULTIPLIERS[1]))
        counter = (_high(second) ^ c1 ^ k0, _low(second), _high(first) ^ c3 ^ k1, _low(first))
    return counter


def _product(a: Expr, b: int) -> Expr:
    """a * b as uint64."""
    wide = _cast(a, "uint64")
    return wide * _like(wide, b)


def _halves(x: Expr) -> tuple[Expr, Expr]:
    """The low and the high word of a uint64."""
    return _low(x), _high(x)


def _low(x: Expr) -> Expr:
    """The low word of a uint64. Without the mask, TVM rejects the cast: its bounds may exceed uint32."""
    return _cast(x & _like(x, 0xFFFFFFFF), "uint32")


def _high(x: Expr) -> Expr:
    """The high word of a uint64."""
    return _cast(x >> _like(x, 32), "uint32")


def _cast(x: Expr, kind: str) -> Expr:
    """`x` as `kind`, with its lanes."""
    return x.astype(dtype_of(x).replace("uint64" if kind == "uint32" else "uint32", kind))


def _like(x: Expr, value: int) -> Expr:
    """`value` in the dtype and with the lanes of `x`."""
    return tirx.const(value, dtype_of(x))


def _u32(value: int) -> Expr:
    return tirx.const(value, "uint32")


def _u64(value: int) -> Expr:
    return tirx.const(value, "uint64")
