"""Random bits as a pure function: Philox4x32-10 (J. Salmon, M. Moraes, R. Dror and D. Shaw, "Parallel Random Numbers:
As Easy as 1, 2, 3", 2011).

A key is an int64 tensor (seed, offset). Block b of a stream is that of the 128-bit counter (b, offset) and the 64-bit
key seed. Elements that need one or two of its four words share blocks with others `LANES` before and after them, which
one thread of a GPU computes as well, and CPUs as further vectors. An element depends on its position only, so that
every schedule on every device gives the same numbers. `meta.backend.reference.philox` computes the same in NumPy.

The words of an element are an operator of meta. After TVM's last pass `expand` computes them before the statement that
reads them: by then the index of an element on a GPU is that of its thread, so that its block and its words are known.
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
LANES: Final = 256
"""The distance of elements that share a block: that of the elements of a thread on GPUs."""
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
    return tuple(half for pair in pairs for half in _halves(pair))


def stream_words(key: Any, index: Expr, number: Expr) -> tuple[Expr, ...]:
    """The four words of block `number` (int64) in the stream of the element at `index`: elements that need several
    blocks, in a number that depends on the words, take them from streams of their own."""
    return words(key, index + (number << _like(number, STREAM)), 4)


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
    _operators()


@cache
def _operators() -> dict[str, Any]:
    """Operators of (seed, offset, index), registered with TVM on first use. `first` and `second` are the pairs of words
    of block `index`, and `pair` and `word` the one or two words of element `index`. Pairs are one uint64."""
    names = "first", "second", "pair", "word"
    return {name: operator(PHILOX.removeprefix("meta.") + name, 3) for name in names}


def expand(func: Any) -> Any:
    """`func` with the operators of this module expanded. A statement follows those that compute its pairs of words."""
    if not list_calls(func):
        return func
    analyzer = _analyzer(func)

    def sequence(node: Any) -> Any:
        return _expand_sequence(node, analyzer)

    def store(node: Any) -> Any:
        statements = _Words(analyzer).before(node)
        return tvm.SeqStmt(statements) if len(statements) > 1 else node

    # Stores that follow each other read the same words, which are computed once.
    return tvm.structural_map(tvm.structural_map(func, (tvm.SeqStmt, sequence)), (tvm.BufferStore, store))


def share_blocks(func: Any) -> Any:
    """`func` with loops over elements of random bits, of any number, as loops over the blocks that elements share and a
    loop over the rest. Those whose elements do not follow each other stay."""

    def split(loop: Any) -> Any:
        sharing = _sharing(loop)
        return _split(loop, sharing) if sharing > 1 else loop

    return tvm.structural_map(func, (tvm.For, split)) if list_calls(func) else func


def _sharing(loop: Any) -> int:
    """The elements that share a block of random bits in a loop of one store over them; 1 in other loops."""
    size, body = loop.extent, loop.body
    if not isinstance(body, tvm.BufferStore) or (isinstance(size, tvm.IntImm) and int(size.value) < 2 * LANES):
        return 1
    calls = [call for call in list_calls(body) if call.op.name in SHARING]
    if not calls or not all(call.args[2].same_as(loop.loop_var) for call in calls):
        return 1
    return max(SHARING[str(call.op.name)] for call in calls)


def _split(loop: Any, sharing: int) -> Any:
    """Loops over whole chunks of `sharing` times LANES elements, and over the elements after them."""
    chunk, lane = (tvm.Var(name, dtype_of(loop.loop_var)) for name in ("chunk", "lane"))
    zero, size = _like(chunk, 0), sharing * LANES
    count = loop.extent >> _like(chunk, size.bit_length() - 1)
    parts = [_body_at(loop, chunk * _like(chunk, size) + _like(chunk, part * LANES) + lane) for part in range(sharing)]
    lanes = tvm.For(lane, zero, _like(chunk, LANES), tirx.ForKind.SERIAL, tvm.SeqStmt(parts))
    rest = tvm.Var("rest", dtype_of(loop.loop_var))
    start = count * _like(chunk, size)
    return tvm.SeqStmt(
        [
            tvm.For(chunk, zero, count, loop.kind, lanes),
            tvm.For(rest, zero, loop.extent - start, tirx.ForKind.SERIAL, _body_at(loop, start + rest)),
        ]
    )


def _body_at(loop: Any, position: Expr) -> Any:
    """A copy of a loop's body at a position, with new variables."""
    values: dict[Any, Expr] = {loop.loop_var: position}

    def rename(let: Any) -> None:
        values[let.var] = tirx.Var(str(let.var.name), dtype_of(let.var))

    tvm.structural_walk(loop.body, (tirx.Let, rename))
    return tvm.structural_map(loop.body, (tvm.Var, lambda v: values.get(v, v)))


def _analyzer(func: Any) -> Any:
    """An analyzer that knows the ranges of the loops and threads of a function."""
    analyzer = tvm.Analyzer()

    def bind_loop(loop: Any) -> None:
        analyzer.bind(loop.loop_var, tvm.Range.from_min_extent(loop.min, loop.extent))

    def bind_thread(node: Any) -> None:
        if str(node.attr_key) == "thread_extent":
            analyzer.bind(node.node.var, tvm.Range(0, node.value))

    tvm.structural_walk(func, (tvm.For, bind_loop))
    tvm.structural_walk(func, (tirx.AttrStmt, bind_thread))
    return analyzer


def _expand_sequence(sequence: Any, analyzer: Any) -> Any:
    """A sequence of statements with the words that its stores and bindings read computed by statements before them."""
    words = _Words(analyzer)
    words.hoist = sum(isinstance(s, tirx.IfThenElse) and bool(list_calls(s)) for s in sequence.seq) > 1
    out = [each for statement in sequence.seq for each in words.before(statement)]
    return tvm.SeqStmt(out) if len(out) > len(sequence.seq) else sequence


class _Words:
    """Pairs of words that statements have computed.

    They are in memory, which becomes registers: TVM's generators of code put the values of variables in the place of
    the variables wherever they simplify, for which a function of a function of random bits takes minutes.

    hoist: words that statements under a condition read are computed before the condition, for others that share their
    block: the elements of a thread of a GPU each have a check of bounds, and the compiler would compute a block in
    every one of them again."""

    hoist = False

    def __init__(self, analyzer: Any) -> None:
        self.analyzer = analyzer
        self.statements: list[Any] = []
        self.pairs: list[tuple[tuple[Expr, ...], Expr]] = []

    def before(self, statement: Any) -> list[Any]:
        """A store or a binding that reads words, after the statements that compute them; others as they are."""
        if self.hoist and isinstance(statement, tirx.IfThenElse) and _can_compute_before(statement):
            changed = tvm.structural_map(statement, (tvm.Call, self.load))
            computed, self.statements = self.statements, []
            return [*computed, changed]
        if not isinstance(statement, (tirx.Bind, tvm.BufferStore)):
            return [statement]
        value = tvm.structural_map(statement.value, (tvm.Call, self.load))
        if value.same_as(statement.value):
            return [statement]
        computed, self.statements = self.statements, []
        if isinstance(statement, tirx.Bind):
            return [*computed, tirx.Bind(statement.var, value)]
        return [*computed, tvm.BufferStore(statement.buffer, value, statement.indices)]

    def load(self, call: Any) -> Expr:
        """The words of a call of an operator of this module; other calls as they are."""
        if not _is_random(call):
            return call
        name, (seed, offset, index) = call.op.name.removeprefix(PHILOX), call.args
        if name in ("first", "second"):
            return self.pair(seed, offset, index, tirx.const(name == "first", "bool"))
        sharing = SHARING[call.op.name]
        block, part = (_by_shifts(self.analyzer.simplify(x)) for x in _block_and_part(index, sharing))
        words = self.pair(seed, offset, block, self.analyzer.simplify(part < _like(part, sharing // 2)))
        if name == "pair":
            return words
        is_low = tirx.EQ(part & _like(part, 1), _like(part, 0))
        return _chosen(self.analyzer.simplify(is_low), *_halves(words))

    def pair(self, *arguments: Expr) -> Expr:
        """Two words of a block; see `_pair`."""
        for others, words in self.pairs:
            if all(map(tvm.structural_equal, arguments, others)):
                return words
        words = _pair(*arguments)
        buffer = tirx.decl_buffer((1,), dtype_of(words), "words", scope="local")
        self.statements += [tirx.AllocBuffer(buffer), tvm.BufferStore(buffer, words, [0])]
        self.pairs.append((arguments, tirx.BufferLoad(buffer, [0])))
        return self.pairs[-1][1]


def _can_compute_before(branch: Any) -> bool:
    """Whether the words that a conditional statement reads depend on nothing that it defines."""
    defined: list[Any] = []
    tvm.structural_walk(
        branch,
        [
            (tvm.For, lambda loop: defined.append(loop.loop_var)),
            ((tirx.Bind, tirx.Let), lambda b: defined.append(b.var)),
        ],
    )
    read: list[Any] = []
    for call in list_calls(branch):
        for argument in call.args:
            tvm.structural_walk(argument, (tvm.Var, read.append))
    return not any(any(v.same_as(d) for d in defined) for v in read)


def _block_and_part(index: Expr, sharing: int) -> tuple[Expr, Expr]:
    """The block of an element, and which of its parts belongs to it. sharing: the elements of a block."""
    lanes = _like(index, LANES)
    group, lane = tirx.floordiv(index, _like(index, LANES * sharing)), tirx.floormod(index, lanes)
    return group * lanes + lane, tirx.floormod(tirx.floordiv(index, lanes), _like(index, sharing))


def _by_shifts(x: Expr) -> Expr:
    """An expression with shifts and masks in place of floored quotients and remainders, which TVM has lowered already.
    Simplification may introduce other divisors than powers of two; their dividends are not negative."""

    def shifted(node: Any) -> Expr:
        divisor, is_quotient = int(node.b), isinstance(node, tirx.FloorDiv)
        if divisor & (divisor - 1):
            return tirx.truncdiv(node.a, node.b) if is_quotient else tirx.truncmod(node.a, node.b)
        if is_quotient:
            return node.a >> _like(node.a, divisor.bit_length() - 1)
        return node.a & _like(node.a, divisor - 1)

    return tvm.structural_map(x, ((tirx.FloorDiv, tirx.FloorMod), shifted))


def _chosen(condition: Expr, x: Expr, y: Expr) -> Expr:
    """A selection; one of its sides where the condition is constant."""
    if isinstance(condition, tvm.IntImm):
        return x if int(condition.value) else y
    return select(condition, x, y)


def _pair(seed: Expr, offset: Expr, block: Expr, is_first: Expr) -> Expr:
    """The words 0 and 1 of a block, or 2 and 3, as one uint64."""
    bindings: list[tuple[Any, Expr]] = []

    def name(expr: Expr) -> Expr:
        bindings.append((tirx.Var("t", dtype_of(expr)), expr))
        return bindings[-1][0]

    _, vector, lanes = dtype_of(block).partition("x")
    index = block.astype(f"uint64{vector}{lanes}")
    key, offset_words, counter = (_halves(name(x)) for x in (seed, offset, index))
    words = _after_rounds((*counter, *offset_words), key, name)
    low, high = (_cast(_chosen(is_first, words[i], words[i + 2]), "uint64") for i in (0, 1))
    out = high << _like(high, 32) | low
    for var, bound in reversed(bindings):
        out = tirx.Let(var, bound, out)
    return out


def list_calls(node: Any) -> list[Any]:
    """The calls of the operators of this module in a statement or an expression."""
    calls: list[Any] = []
    tvm.structural_walk(node, (tvm.Call, lambda call: calls.append(call) if _is_random(call) else None))
    return calls


def _is_random(call: Any) -> bool:
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
