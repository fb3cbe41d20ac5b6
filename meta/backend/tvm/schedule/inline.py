"""Producers computed inside the blocks that read them, each value once.

    y[i] = f(x[i])                      let y = f(x[i]), z = g(y, y):
    z[i] = g(y[i], y[i])          =>    w[i] = h(z, y)
    w[i] = h(z[i], y[i])

TVM's `compute_inline` writes the producer's expression in place of every load, so that a chain of operators that read
their operand twice grows to 2**n expressions. Here a block reads a producer at a number of *sites*: the different
positions at which it needs the element. Each site is computed once, and bound to a variable if several expressions
read it. Consumers take in their producers in reverse order, so that all loads of a producer are known when its turn
comes.

A site in an operand of `if_then_else` may be out of bounds where the condition does not hold. It is bound to a variable
only if the block needs the same element unconditionally; otherwise every load is a site.

The caller's rule refuses producers with too many sites, which then keep their buffers. That bounds the expressions of
a block by a multiple of the operators: chains of shifted reads, such as `x[1:] + x[:-1]`, need new elements in each
step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.intrinsic import shared
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock
from meta.records import record

Expr = Any


@record
class Producer:
    """A spatial block of an intermediate buffer.

    Attributes:
        block: the block.
        consumers: the blocks that read the buffer in the function as it was given.
        sites: how often all blocks together would compute an element, 0 if elements are loads of another buffer.
        divisions: the divisions in a position at which they would compute it, at most.
        operands: the buffers that one of them would read, at most.
    """

    block: ComputeBlock
    consumers: Sequence[ComputeBlock]
    sites: int
    divisions: int = 0
    operands: int = 0

    @property
    def is_repeated_little(self) -> bool:
        """Whether consumers grow by a bounded factor."""
        return (
            self.sites <= limits.INLINED_SITES
            and self.divisions <= limits.INLINED_DIVISIONS
            and self.operands <= limits.INLINED_OPERANDS
        )


Rule = Callable[[Producer], bool]
"""Whether a producer is computed inside its consumers."""


def inline_spatial(func: tvm.PrimFunc, rule: Rule, *, share_in_sums: bool = True) -> Any:
    """`func` with the producers that `rule` accepts computed in the blocks that read them.

    Producers whose consumers are not single stores keep their buffers, see `inline_blocks`.
    share_in_sums: whether reductions bind values to variables."""
    nests = _nests(func)
    for nest in nests:
        nest.shares = share_in_sums or nest.block is None or nest.block.is_spatial
    readers: dict[Any, list[_Nest]] = {}
    for nest in nests:
        for buffer in nest.buffers():
            readers.setdefault(buffer, []).append(nest)
    allocated = set(func.body.block.alloc_buffers) if nests else set[Any]()
    changed, removed, unread = list[_Nest](), list[_Nest](), list[_Nest]()
    for nest in reversed(nests):
        if nest.buffer not in allocated or not nest.is_producer():
            continue
        consumers = [c for c in readers.get(nest.buffer, ()) if c not in unread]
        if not consumers:  # one of several results, which the program does not use
            unread.append(nest)
            removed.append(nest)
            continue
        if not all(c.is_store for c in consumers):
            continue
        roots = [(n, n.sites(nest)) for n in nests if n not in removed and n.is_store]
        roots = [(n, sites) for n, sites in roots if sites]
        all_sites = [s for _, sites in roots for s in sites]
        count = 0 if nest.is_copy() else sum(s.count for s in all_sites)
        divisions = max(map(_count_divisions, all_sites), default=0)
        operands = max((len(root.operands() | nest.operands()) for root, _ in roots), default=0)
        if rule(Producer(nest.block, [c.block for c in consumers], count, divisions, operands)):
            for root, sites in roots:
                root.take(nest, sites)
                changed.append(root)
            removed.append(nest)
    return _rebuilt(func, nests, changed, removed) if removed else func


def inline_blocks(sch: tvm.Schedule, rule: Rule, *, share_in_sums: bool = True) -> Any:
    """A schedule with the producers that `rule` accepts computed in their consumers.

    Consumers that are more than a store of an expression, such as a search for a maximum and its position, are left to
    TVM."""
    func = sch.mod["main"]
    inlined = inline_spatial(func, rule, share_in_sums=share_in_sums)
    sch = sch if inlined is func else tvm.Schedule(inlined, error_render_level="fast")
    params = func.params
    for block in blocks.list_blocks(sch):
        if not block.is_spatial or any(w.same_as(p) for w in block.written_buffers for p in params):
            continue
        consumers = blocks.list_readers(sch, block)
        if not consumers or all(map(_is_store, consumers)) or not rule(Producer(block, consumers, len(consumers))):
            continue
        try:
            sch.compute_inline(block.rv)
        except tvm.ScheduleError:
            continue  # for instance an index map without an inverse; the block keeps its buffer
    return sch


class _Site:
    """An element of a producer that a block needs.

    Attributes:
        indices: its position, in terms of the block's axes.
        eager, lazy: the loads of it, and those in operands of `if_then_else`.
    """

    def __init__(self, indices: Sequence[Expr]) -> None:
        self.indices = indices
        self.eager = 0
        self.lazy = 0

    @property
    def count(self) -> int:
        """How often it is computed."""
        return 1 if self.eager else self.lazy

    @property
    def is_shared(self) -> bool:
        return bool(self.eager) and self.eager + self.lazy > 1


class _Part:
    """An expression of a block, the value of `variable`, or without one what the block stores.

    Attributes:
        loads: the loads of each buffer.
        lazy: the addresses of the loads in operands of `if_then_else`, or in indices of other loads.
    """

    def __init__(self, variable: tvm.Var | None, value: Expr) -> None:
        self.variable = variable
        self.set(value)

    def set(self, value: Expr) -> None:
        self.value = value
        self.loads: dict[Any, list[Any]] = {}
        self.lazy: set[int] = set()
        self.positions: set[int] = set()

        def load(node: tvm.Object) -> None:
            self.loads.setdefault(node.source, []).append(node)
            self._mark(self.positions, node.indices)

        def call(node: tvm.Object) -> None:
            if getattr(node.op, "name", "").endswith(".if_then_else"):
                self._mark(self.lazy, node.args[1:])

        tvm.structural_walk(value, [(tvm.TensorLoad, load), (tvm.Call, call)])

    def _mark(self, addresses: set[int], nodes: Iterable[Any]) -> None:
        for node in nodes:
            if not isinstance(node, (tvm.Var, tvm.IntImm)):
                tvm.structural_walk(node, (tvm.TensorLoad, lambda load: addresses.add(load.__chandle__())))


class _Nest:
    """Loops around one block, or another statement under the root."""

    def __init__(self, statement: tvm.Object) -> None:
        self.statement = statement
        inner = statement
        while isinstance(inner, tvm.For):
            inner = inner.body
        self.realize: Any = inner if isinstance(inner, tvm.SBlockRealize) else None
        node: Any = None if self.realize is None else self.realize.block
        self.block: Any = None if node is None else blocks.describe(None, node)
        self.buffer: Any = None
        self.is_store = node is not None and _is_store(self.block)
        if self.is_store:
            self.buffer = inner.block.body.buffer
            self.parts = [_Part(None, _operand(inner.block))]
        self.analyzer: Any = None
        self.shares = True

    def buffers(self) -> set[Any]:
        """The buffers that the statement reads."""
        if self.is_store:
            return set(self.parts[0].loads)
        read: set[Any] = set()
        tvm.structural_walk(
            self.statement,
            [
                (tvm.SBlock, lambda block: read.update(r.source for r in block.reads)),
                (tvm.TensorLoad, lambda load: read.add(load.source)),
                (tvm.Var, read.add),
            ],
        )
        return read

    def operands(self) -> set[Any]:
        """The buffers that the block reads with what it took in."""
        return {buffer for part in self.parts for buffer in part.loads}

    def is_producer(self) -> bool:
        """Whether the block computes each element of its buffer from others, at its own position."""
        node = self.block.node
        return (
            self.is_store
            and self.block.is_spatial
            and node.init is None
            and not len(node.alloc_buffers)
            and blocks.is_one(self.realize.predicate)
            and self.buffer not in self.parts[0].loads
            and len(node.body.indices) in (0, len(node.iter_vars))  # a block of a number has an axis of extent 1
            and all(
                blocks.is_one(v.dom.extent) if i is None or isinstance(i, tvm.IntImm) else i.same_as(v.var)
                for i, v in zip_longest(node.body.indices, node.iter_vars)
            )
        )

    def is_copy(self) -> bool:
        """Whether each element is a load of another buffer, as in a transpose, or a cast of one."""
        value = self.parts[-1].value
        while isinstance(value, tvm.tirx.Cast):
            value = value.value
        return isinstance(value, tvm.TensorLoad)

    def sites(self, producer: _Nest) -> list[_Site]:
        """The elements of a producer that the block needs."""
        sites: list[_Site] = []
        for part in self.parts:
            for load in part.loads.get(producer.buffer, ()):
                address = load.__chandle__()
                is_alone = address in part.positions or not self.shares
                site = None if is_alone else self._find(sites, load.indices)
                if site is None:
                    site = _Site(self._simplified(load.indices))
                    sites.append(site)
                if address in part.lazy or address in part.positions:
                    site.lazy += 1
                else:
                    site.eager += 1
        return sites

    def _find(self, sites: Sequence[_Site], indices: Sequence[Expr]) -> _Site | None:
        indices = self._simplified(indices)
        return next((s for s in sites if all(map(tvm.structural_equal, s.indices, indices))), None)

    def _simplified(self, indices: Sequence[Expr]) -> list[Expr]:
        return [i if isinstance(i, (tvm.Var, tvm.IntImm)) or _has_loads(i) else self._simplify(i) for i in indices]

    def _simplify(self, index: Expr) -> Expr:
        if self.analyzer is None:
            self.analyzer = tvm.Analyzer()
            for axis in self.block.node.iter_vars:
                self.analyzer.bind(axis.var, axis.dom)
        return self.analyzer.simplify(index)

    def take(self, producer: _Nest, sites: Sequence[_Site]) -> None:
        """Compute a producer at `sites`, which are all that the block needs, in place of loads."""
        copies = producer.is_copy()
        several = [s for s in sites if s.is_shared and not copies]
        variables = [tvm.Var("value", str(producer.buffer.dtype)) for _ in several]
        new = list[_Part]()
        for site, variable in zip(several, variables, strict=True):
            new.extend(producer.parts_at(site.indices, variable))
        for part in [p for p in self.parts if producer.buffer in p.loads]:
            positions = part.positions

            def replace(load: tvm.TensorLoad, positions: set[int] = positions) -> Expr:
                if not load.source.same_as(producer.buffer):
                    return load
                if load.__chandle__() not in positions:
                    found = self._find(several, load.indices)
                    if found is not None:
                        return variables[several.index(found)]
                return producer.value_at(self._simplified(load.indices))

            part.set(tvm.structural_map(part.value, (tvm.TensorLoad, replace)))
        self.parts = [*new, *self.parts]

    def parts_at(self, indices: Sequence[Expr], variable: tvm.Var) -> list[_Part]:
        """The parts that compute the element at a position as the value of `variable`."""
        return [_Part(variable, self.value_at(indices))]

    def value_at(self, indices: Sequence[Expr]) -> Expr:
        """The element at a position."""
        axis_vars = [v.var for v in self.block.node.iter_vars]
        axes = dict(zip(axis_vars, indices or [tvm.tirx.const(0, str(v.ty.dtype)) for v in axis_vars], strict=True))
        return tvm.structural_map(self.parts[-1].value, (tvm.Var, lambda v: axes.get(v, v)))

    def rebuilt(self, buffers: dict[Any, Any]) -> Any:
        """The statement with the block's new expression."""
        node = self.block.node
        value = self.parts[-1].value
        for part in reversed(self.parts[:-1]):
            value = tvm.tirx.Let(part.variable, shared(part.value), value)
        body = _with_operand(node, value)
        args = (node.iter_vars, [], [], node.name_hint, body, node.init)
        new = tvm.SBlock(*args, node.alloc_buffers, node.match_buffers, node.annotations)
        reads, writes = tvm.read_write_region(new, buffers)
        if node.init is not None:
            reads = [r for r in reads if not r.source.same_as(self.buffer)]
        args = (node.iter_vars, reads, writes, node.name_hint, body, node.init)
        new = tvm.SBlock(*args, node.alloc_buffers, node.match_buffers, node.annotations)
        return _around(self.statement, tvm.SBlockRealize(self.realize.iter_values, self.realize.predicate, new))


def _is_store(block: ComputeBlock) -> bool:
    """Whether a block is one store of an expression, or one addition to a reduction."""
    node = block.node
    return isinstance(node.body, tvm.BufferStore) and not len(node.match_buffers) and _operand(node) is not None


def _around(statement: tvm.Object, realize: tvm.SBlockRealize) -> Any:
    if not isinstance(statement, tvm.For):
        return realize
    loop, body = statement, _around(statement.body, realize)
    return tvm.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations)


def _nests(func: tvm.PrimFunc) -> list[_Nest]:
    """The statements under the root of a function, in order."""
    if not isinstance(func.body, tvm.SBlockRealize) or str(func.body.block.name_hint) != "root":
        return []
    body = func.body.block.body
    return [_Nest(s) for s in (body.seq if isinstance(body, tvm.SeqStmt) else [body])]


def _operand(node: tvm.Object) -> Expr | None:
    """The expression that a block stores, or adds to a reduction; None for other reductions."""
    value = node.body.value
    if node.init is None:
        return value
    accumulates = isinstance(getattr(value, "a", None), tvm.TensorLoad) and value.a.source.same_as(node.body.buffer)
    return value.b if accumulates else None


def _with_operand(node: tvm.Object, operand: Expr) -> Any:
    """The block's store with another such expression."""
    store = node.body
    value = operand if node.init is None else type(store.value)(store.value.a, operand)
    return tvm.BufferStore(store.buffer, value, store.indices)


def _count_divisions(site: _Site) -> int:
    divisions: list[Any] = []
    for index in site.indices:
        if not isinstance(index, (tvm.Var, tvm.IntImm)):
            tvm.structural_walk(index, ((tvm.tirx.FloorDiv, tvm.tirx.FloorMod), divisions.append))
    return len(divisions)


def _has_loads(index: Expr) -> bool:
    loads: list[Any] = []
    tvm.structural_walk(index, (tvm.TensorLoad, loads.append))
    return bool(loads)


def _rebuilt(func: tvm.PrimFunc, nests: Sequence[_Nest], changed: Sequence[_Nest], removed: Sequence[_Nest]) -> Any:
    root = func.body.block
    gone = {n.buffer for n in removed}
    allocated = [b for b in root.alloc_buffers if b not in gone]
    buffers = {b: b for b in (*blocks.list_buffers(func),)}
    changed = [*changed, *(n for n in nests if n.is_store and not gone.isdisjoint(n.block.read_buffers))]
    statements = [n.rebuilt(buffers) if n in changed else n.statement for n in nests if n not in removed]
    body = statements[0] if len(statements) == 1 else tvm.SeqStmt(statements)
    args = (root.iter_vars, root.reads, root.writes, root.name_hint, body, root.init, allocated)
    new = tvm.SBlock(*args, root.match_buffers, root.annotations)
    return tvm.PrimFunc(func.params, tvm.SBlockRealize([], True, new), func.ret_type, func.attrs)
