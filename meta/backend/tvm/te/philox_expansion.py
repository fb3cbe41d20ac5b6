"""Random bits of lowered functions: each call of an operator of `philox` becomes a read of words that a statement
before it computes, once for all elements of a thread that share a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.intrinsic import Expr, dtype_of
from meta.backend.tvm.te.elementwise import select
from meta.backend.tvm.te.philox import (
    LANES,
    MULTIPLIERS,
    PHILOX,
    ROUNDS,
    SHARING,
    WEYL,
    cast_lanes,
    elements_of_block,
    halves,
    high_word,
    is_random,
    like,
    list_calls,
    low_word,
)  # fmt: skip


def expand(func: tvm.PrimFunc) -> Any:
    """`func` with the operators of this module expanded. A statement follows those that compute its pairs of words."""
    if not list_calls(func):
        return func
    analyzer = _analyzer(func)

    def sequence(node: tvm.Object) -> Any:
        return _expand_sequence(node, analyzer)

    def store(node: tvm.Object) -> Any:
        statements = _Words(analyzer).before(node)
        return tvm.SeqStmt(statements) if len(statements) > 1 else node

    # Stores that follow each other read the same words, which are computed once.
    return tvm.structural_map(tvm.structural_map(func, (tvm.SeqStmt, sequence)), (tvm.BufferStore, store))


def share_blocks(func: tvm.PrimFunc) -> Any:
    """`func` with loops over elements of random bits, of any number, as loops over the blocks that elements share and a
    loop over the rest. Those whose elements do not follow each other stay."""

    def split(loop: tvm.For) -> Any:
        sharing = _sharing(loop)
        return _split(loop, sharing) if sharing > 1 else loop

    return tvm.structural_map(func, (tvm.For, split))


def _sharing(loop: tvm.For) -> int:
    """The elements that share a block of random bits in a loop of one store over them; 1 in other loops."""
    size, body = loop.extent, loop.body
    calls = [c for c in list_calls(body) if c.op.name in SHARING] if isinstance(body, tvm.BufferStore) else []
    if not calls or not all(call.args[2].same_as(loop.loop_var) for call in calls):
        return 1
    sharing = elements_of_block(body)
    # TVM fails for casts of the variable of a loop without iterations.
    has_chunk = not isinstance(size, tvm.IntImm) or int(size.value) >= sharing * LANES
    return sharing if has_chunk else 1


def _split(loop: tvm.For, sharing: int) -> Any:
    """Loops over whole chunks of `sharing` times LANES elements, and over the elements after them."""
    chunk, lane = (tvm.Var(name, dtype_of(loop.loop_var)) for name in ("chunk", "lane"))
    zero, size = like(chunk, 0), sharing * LANES
    count = loop.extent >> like(chunk, size.bit_length() - 1)
    parts = [_body_at(loop, chunk * like(chunk, size) + like(chunk, part * LANES) + lane) for part in range(sharing)]
    lanes = tvm.For(lane, zero, like(chunk, LANES), tirx.ForKind.SERIAL, tvm.SeqStmt(parts))
    rest = tvm.Var("rest", dtype_of(loop.loop_var))
    start = count * like(chunk, size)
    return tvm.SeqStmt(
        [
            tvm.For(chunk, zero, count, loop.kind, lanes),
            tvm.For(rest, zero, loop.extent - start, tirx.ForKind.SERIAL, _body_at(loop, start + rest)),
        ]
    )


def _body_at(loop: tvm.For, position: Expr) -> Any:
    """A copy of a loop's body at a position, with new variables."""
    values: dict[Any, Expr] = {loop.loop_var: position}

    def rename(let: Expr) -> None:
        values[let.var] = tirx.Var(str(let.var.name), dtype_of(let.var))

    tvm.structural_walk(loop.body, (tirx.Let, rename))
    return tvm.structural_map(loop.body, (tvm.Var, lambda v: values.get(v, v)))


def _analyzer(func: tvm.PrimFunc) -> Any:
    """An analyzer that knows the ranges of the loops and threads of a function."""
    analyzer = tvm.Analyzer()

    def bind_loop(loop: tvm.For) -> None:
        analyzer.bind(loop.loop_var, tvm.Range.from_min_extent(loop.min, loop.extent))

    def bind_thread(node: tvm.Object) -> None:
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
    if len(out) == len(sequence.seq):
        return sequence
    return tvm.SeqStmt(_check_once(out, words) if words.hoist else out)


def _check_once(statements: list[Any], words: _Words) -> list[Any]:
    """The statements with one check of bounds for all, where the last one holds; else each has its own. Without checks
    between them, a GPU loads the elements of a thread at once."""
    checks = [s for s in statements if isinstance(s, tirx.IfThenElse)]
    others = [s for s in statements if not isinstance(s, tirx.IfThenElse)]
    last = checks[-1].condition
    if not all(words.is_own(s) for s in others) or not all(
        s.else_case is None
        and isinstance(s.condition, tirx.LT)
        and tvm.structural_equal(s.condition.b, last.b)
        and words.analyzer.can_prove(s.condition.a <= last.a)
        for s in checks
    ):
        return statements
    return [*others, tirx.IfThenElse(last, tvm.SeqStmt([s.then_case for s in checks]), tvm.SeqStmt(checks))]


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
        self.buffers: list[Any] = []

    def before(self, statement: tvm.Object) -> list[Any]:
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

    def is_own(self, statement: tvm.Object) -> bool:
        """Whether a statement computes words, or binds a variable without reading memory."""
        if isinstance(statement, tirx.Bind):
            loads: list[Any] = []
            tvm.structural_walk(statement.value, (tvm.TensorLoad, loads.append))
            return not loads
        buffer = getattr(statement, "buffer", None)
        return buffer is not None and any(buffer.same_as(b) for b in self.buffers)

    def load(self, call: tvm.Call) -> Expr:
        """The words of a call of an operator of this module; other calls as they are."""
        if not is_random(call):
            return call
        name, (seed, offset, index) = call.op.name.removeprefix(PHILOX), call.args
        if name in ("first", "second"):
            return self.pair(seed, offset, index, tirx.const(name == "first", "bool"))
        sharing = SHARING[call.op.name]
        block, part = (_by_shifts(self.analyzer.simplify(x)) for x in self._place(index, sharing))
        seed, offset = (x.value if isinstance(x, tirx.Broadcast) else x for x in (seed, offset))
        words = self.pair(seed, offset, block, self.analyzer.simplify(part < like(part, sharing // 2)))
        if name == "pair":
            return words
        is_low = tirx.EQ(part & like(part, 1), like(part, 0))
        return _chosen(self.analyzer.simplify(is_low), *halves(words))

    def _place(self, index: Expr, sharing: int) -> tuple[Expr, Expr]:
        """The block of an element, and which of its parts belongs to it; for a vector, both for all elements."""
        if not isinstance(index, tirx.Ramp):
            return _block_and_part(index, sharing)
        lanes = int(index.lanes)
        is_aligned = int(index.stride) == 1 and self.analyzer.can_prove(
            tirx.EQ(tirx.floormod(index.base, like(index.base, lanes)), like(index.base, 0))
        )
        if not is_aligned or LANES % lanes:
            return _block_and_part(index, sharing)
        block, part = _block_and_part(index.base, sharing)  # a vector has neighbours of one part
        return tirx.Ramp(block, like(block, 1), lanes), part

    def pair(self, *arguments: Expr) -> Expr:
        """Two words of a block; see `_pair`."""
        for others, words in self.pairs:
            if all(map(tvm.structural_equal, arguments, others)):
                return words
        words = _pair(*arguments)
        buffer = tirx.decl_buffer((1,), dtype_of(words), "words", scope="local")
        self.buffers.append(buffer)
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
    lanes = like(index, LANES)
    group, lane = tirx.floordiv(index, like(index, LANES * sharing)), tirx.floormod(index, lanes)
    return group * lanes + lane, tirx.floormod(tirx.floordiv(index, lanes), like(index, sharing))


def _by_shifts(x: Expr) -> Expr:
    """An expression with shifts and masks in place of floored quotients and remainders, which TVM has lowered already.
    Simplification may introduce other divisors than powers of two; their dividends are not negative."""

    def shifted(node: tvm.Object) -> Expr:
        divisor, is_quotient = int(node.b), isinstance(node, tirx.FloorDiv)
        if divisor & (divisor - 1):
            return tirx.truncdiv(node.a, node.b) if is_quotient else tirx.truncmod(node.a, node.b)
        if is_quotient:
            return node.a >> like(node.a, divisor.bit_length() - 1)
        return node.a & like(node.a, divisor - 1)

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
    key, offset_words, counter = (halves(name(x)) for x in (seed, offset, index))
    words = _after_rounds((*counter, *offset_words), key, name)
    low, high = (cast_lanes(_chosen(is_first, words[i], words[i + 2]), "uint64") for i in (0, 1))
    out = high << like(high, 32) | low
    for var, bound in reversed(bindings):
        out = tirx.Let(var, bound, out)
    return out


def _after_rounds(counter: tuple[Expr, ...], key: tuple[Expr, Expr], name: Callable[[Expr], Expr]) -> tuple[Expr, ...]:
    """The counter after the rounds. name: binds a variable to a value."""
    for number in range(ROUNDS):
        c0, c1, c2, c3 = counter
        k0, k1 = (k + like(k, w * number & 0xFFFFFFFF) for k, w in zip(key, WEYL, strict=True))
        first, second = name(_product(c0, MULTIPLIERS[0])), name(_product(c2, MULTIPLIERS[1]))
        counter = (high_word(second) ^ c1 ^ k0, low_word(second), high_word(first) ^ c3 ^ k1, low_word(first))
    return counter


def _product(a: Expr, b: int) -> Expr:
    """a * b as uint64."""
    wide = cast_lanes(a, "uint64")
    return wide * like(wide, b)
