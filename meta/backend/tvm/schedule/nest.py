"""Loop nests of sums in scheduled functions: where they are, and copies of their loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.te.tiles import IN_BLOCKS, TILE
from meta.records import record

Expr = Any
Stmt = Any
Values = Mapping[Any, Expr]
"""Loop variable -> its value in a copy of the loop."""

LANE_SUM: Final = "meta.lane_sum"
"""Annotation of a reduction of the vector lanes, along the last axis of a buffer that nothing else reads."""


@record
class Nest:
    """The loops that add to a sum.

    Attributes:
        steps: the outer loops, all over the reduction.
        inner: the loops inside them: over the elements of the sum, and short ones over the reduction.
        inner_additions: additions to one element in all of `inner`.
        store: `sum[i] = sum[i] + x` in the variables of the loops.
        conditions: the bounds checks of the store.
        sums_lanes: whether the block has the annotation LANE_SUM.
    """

    steps: list[Any]
    inner: list[Any]
    inner_additions: int
    store: Any
    conditions: list[Expr]
    sums_lanes: bool

    @property
    def elements(self) -> list[Any]:
        """The inner loops over the elements of the sum."""
        return [loop for loop in self.inner if uses(self.store.indices, loop.loop_var)]

    @property
    def step_variables(self) -> list[Any]:
        """The variables of the loops over the reduction."""
        elements = self.elements
        inner = [loop for loop in self.inner if not any(loop.same_as(e) for e in elements)]
        return [loop.loop_var for loop in (*self.steps, *inner)]

    def is_long(self, length: int) -> bool:
        """Whether an element is the sum of more than `length` numbers, or of an unknown number."""
        steps = volume_of(self.steps)
        return steps is None or steps * self.inner_additions > length


def _match(outermost: Any) -> Nest | None:
    """The nest of a floating sum without its initial value, if `outermost` is its first loop over the reduction."""
    chain, statement = list[Any](), outermost
    while isinstance(statement, tvm.For):
        chain.append(statement)
        statement = statement.body
    if not isinstance(statement, tvm.SBlockRealize) or not _is_floating_sum(statement.block):
        return None
    block, values = statement.block, statement.iter_values
    reduced = [x for v, x in zip(block.iter_vars, values, strict=True) if int(v.iter_type) == blocks.REDUCE]
    is_step = [uses(reduced, loop.loop_var) for loop in chain]
    if not is_step[0]:
        return None
    count = is_step.index(False) if False in is_step else len(chain)
    inner_additions = volume_of([loop for loop, step in zip(chain[count:], is_step[count:], strict=True) if step])
    if inner_additions is None or any(blocks.as_int(loop.min) != 0 or loop.thread_binding for loop in chain):
        return None
    store = substitute(block.body, {v.var: x for v, x in zip(block.iter_vars, values, strict=True)})
    conditions, sums_lanes = _conjuncts(statement.predicate), LANE_SUM in block.annotations
    return Nest(chain[:count], chain[count:], inner_additions, store, conditions, sums_lanes)


def _is_floating_sum(block: tvm.SBlock) -> bool:
    """Whether the block is one store `sum[i] = sum[i] + x` of floats, without an initial value, and not in tiles
    whose additions are not divided.

    Computes of this package add halves in float32."""
    store = block.body
    if block.init is not None or block.alloc_buffers or block.match_buffers or not isinstance(store, tvm.BufferStore):
        return False
    if TILE in block.annotations and not int(block.annotations[IN_BLOCKS]):
        return False
    if str(store.buffer.dtype) not in ("float32", "float64") or not isinstance(store.value, tvm.tirx.Add):
        return False
    load = store.value.a
    return (
        isinstance(load, tvm.TensorLoad)
        and load.source.same_as(store.buffer)
        and all(tvm.structural_equal(a, b) for a, b in zip(load.indices, store.indices, strict=True))
    )


def map_sums(func: tvm.PrimFunc, rewrite: Callable[[Nest], Stmt | None]) -> Any:
    """`func` with `rewrite(nest)` in place of the nest of each floating sum; where it returns None, the nest stays."""
    body = _rewrite(func.body, rewrite)
    return func if body is func.body else func.with_body(body)


def _rewrite(statement: Stmt, rewrite: Callable[[Nest], Stmt | None]) -> Stmt:
    """The statement with its sums rewritten; the statement itself if it has none."""
    if isinstance(statement, tvm.For):
        nest = _match(statement)
        if nest is not None:
            return rewrite(nest) or statement
        body = _rewrite(statement.body, rewrite)
        return statement if body is statement.body else _copy_loop(statement, statement.loop_var, body)
    if isinstance(statement, tvm.SeqStmt):
        parts = [_rewrite(part, rewrite) for part in statement.seq]
        is_same = all(new is old for new, old in zip(parts, statement.seq, strict=True))
        return statement if is_same else tvm.SeqStmt(parts)
    if isinstance(statement, tvm.SBlockRealize):
        block = statement.block
        body = _rewrite(block.body, rewrite)
        if body is block.body:
            return statement
        block = tvm.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, body, block.init,
            block.alloc_buffers, block.match_buffers, block.annotations,
        )  # fmt: skip
        return tvm.SBlockRealize(statement.iter_values, statement.predicate, block)
    return statement


def copy_loops(loops: Sequence[Any], values: Values, body: Callable[[Values], Stmt]) -> Stmt:
    """Copies of the loops with new variables around `body(values with those variables)`."""
    if not loops:
        return body(values)
    loop, *rest = loops
    variable = tvm.Var(str(loop.loop_var.name), str(loop.loop_var.ty.dtype))
    inner = copy_loops(rest, {**values, loop.loop_var: variable}, body)
    return tvm.For(variable, loop.min, substitute(loop.extent, values), loop.kind, inner, None, loop.annotations)


def _copy_loop(loop: tvm.For, variable: tvm.Var, body: Stmt) -> Stmt:
    return tvm.For(variable, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations)


def if_in_bounds(conditions: Sequence[Expr], values: Values, statement: Stmt) -> Stmt:
    """The statement where all conditions hold, with the variables replaced by their values in the conditions."""
    for condition in conditions:
        statement = tvm.tirx.IfThenElse(tvm.tirx.likely(substitute(condition, values)), statement, None)
    return statement


def _conjuncts(predicate: Expr) -> list[Expr]:
    """The conditions that a predicate joins by `and`."""
    if isinstance(predicate, tvm.tirx.And):
        return [*_conjuncts(predicate.a), *_conjuncts(predicate.b)]
    return [] if isinstance(predicate, tvm.IntImm) and int(predicate) else [predicate]


def substitute(node: tvm.Object, values: Values) -> Any:
    """The node with the variables replaced by their values."""
    replacements = dict(values)
    return tvm.structural_map(node, (tvm.Var, lambda v: replacements.get(v, v))) if replacements else node


def volume_of(loops: Sequence[Any]) -> int | None:
    """The product of the loops' extents; None if one of them is symbolic."""
    return blocks.volume([blocks.as_int(loop.extent) for loop in loops])


def uses(expressions: Sequence[Expr], variable: tvm.Var) -> bool:
    """Whether one of the expressions contains the variable."""
    return any(blocks.uses_variable(e, variable) for e in expressions)


def uses_any(expressions: Sequence[Expr], variables: Sequence[Any]) -> bool:
    """Whether one of the expressions contains one of the variables."""
    return any(uses(expressions, v) for v in variables)
