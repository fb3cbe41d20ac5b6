"""Conditionals and loops on values of tensors: `meta.cond`, `meta.while_loop` and `meta.scan`.

Eager code decides and repeats in Python, and the tape records the operators. In a traced function each becomes one node
of the program: an `If` with two blocks, or a loop with one body (see `meta.tracing.loop_op`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from sys import getrefcount
from typing import Any, TypeVar

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor
from meta.dim import Dim, same_dim
from meta.dim_expressions import Order
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError
from meta.functional._axes import stacked, unstacked
from meta.ir.expr import Atom, If, Tuple, TupleType, Var, user_span
from meta.ir.type import TensorType, Type
from meta.modes import modes
from meta.schema._dsl import TensorLike
from meta.schema.annotations import explained
from meta.tracing.emitter import Body, Emitter, current_emitter
from meta.tracing.loop_op import element, emit_loop
from meta.tracing.program import record
from meta.tracing.symbol import Symbol
from meta.tree import Tree, flatten, is_sequence, is_tuple, leaves_of

T = TypeVar("T")
Leaves = list[tuple[str, Any]]


@explained
def cond(predicate: Any, then: Callable[..., T], otherwise: Callable[..., T], *operands: Any) -> T:
    """`then(*operands)` if `predicate` is true, else `otherwise(*operands)`.

    predicate: a 0-d bool tensor, the order of two sizes (`x.shape[0] > 4`), or a bool, which decides at once.
    A compiled program computes one branch per call. Both branches return nests of the same structure, with tensors of
    the same shapes and dtypes; they may read tensors around them, and write none. Results share no memory with those.
    Gradients flow through the branch that was taken. Raises ArgumentError otherwise."""
    for name, branch in (("then", then), ("otherwise", otherwise)):
        if not callable(branch):
            problem = f"'{name}' is of class {type(branch).__name__}"
            raise ArgumentError("cond", problem, "functions", "of tensors: meta.where(predicate, then, otherwise)")
    if isinstance(predicate, bool):
        return (then if predicate else otherwise)(*operands)
    if isinstance(predicate, Order):
        device = next((x.device for x in leaves_of(operands) if isinstance(x, Tensor)), "cpu")
        predicate = meta.greater_equal(meta.full((), predicate.distance, "int64", device), 0)
    _check_flag("cond", "the predicate", predicate)
    if not _traced():
        return _own_arrays([(then if predicate.item() else otherwise)(*operands)])
    if modes.transform is not None:
        return modes.transform.cond(predicate, then, otherwise, operands)
    emitter, span = current_emitter(), user_span()
    forms: list[tuple[Leaves, Tree]] = []
    blocks: list[Any] = []
    for branch in (then, otherwise):
        with emitter.nested("cond"), emitter.builder.block() as scope:
            leaves, tree = _flattened("cond", f"the result of {_name(branch)}", branch(*operands))
            forms.append((leaves, tree))
            scope.ret(_packed([emitter.value(x, "cond") for _, x in leaves]))
        blocks.append(scope.block)
    (leaves, tree), (others, other) = forms
    _check_same("cond", f"{_name(then)} returns", f"{_name(otherwise)} returns", (leaves, tree), (others, other))
    if not leaves:
        return tree.build(iter(()))
    var = emitter.builder.emit(If(emitter.value(predicate, "cond"), blocks[0], blocks[1], span))
    return tree.build(iter(_results(emitter, var, len(leaves))))


@explained
def while_loop(
    condition: Callable[[T], Any], body: Callable[[T], T], carry: T, *, max_steps: int | None = None
) -> T:  # fmt: skip
    """Repeat `carry = body(carry)` while `condition(carry)`, a 0-d bool tensor, is true; the last carry.

    carry: a nest of tensors and numbers, which become 0-d tensors. `body` returns the same structure, shapes and
        dtypes.
    max_steps: the most steps; the loop ends after them. A compiled loop has gradients and random numbers only with a
        bound. It then goes through all of the steps (each step after the end costs no more than a test) and takes
        random keys for all of them.
    Raises ArgumentError for a carry that changes its type, GradientError where a gradient goes through a compiled loop
    without a bound."""
    leaves, tree = _flattened("while_loop", "the carry", carry)
    if max_steps is not None and max_steps < 0:
        raise ArgumentError("while_loop", f"max_steps is {max_steps}", "0 or more")
    if not _traced():
        return _while_eagerly(condition, body, (leaves, tree), max_steps)
    if max_steps is not None:

        def step(carry: T, _: object) -> tuple[T, tuple[()]]:
            flag = condition(carry)
            _check_flag("while_loop", f"the result of {_name(condition)}", flag)
            new = cond(flag, lambda: _checked("while_loop", body, (leaves, tree), _own_values(carry)), lambda: carry)
            return new, ()

        return scan(step, tree.build(x for _, x in leaves), length=max_steps)[0]
    if modes.transform is not None:
        return modes.transform.while_loop(condition, body, tree.build(x for _, x in leaves))

    def flag_of(values: Sequence[Any]) -> Any:
        flag = condition(tree.build(iter(values)))
        _check_flag("while_loop", f"the result of {_name(condition)}", flag)
        return flag

    emitter, span = current_emitter(), user_span()
    first = [flag_of([x for _, x in leaves]), *(x for _, x in leaves)]
    start = [emitter.value(x, "while_loop") for x in first]
    params = [Var(name or "carry", x.type) for (name, _), x in zip((("flag", None), *leaves), first, strict=True)]
    with (
        emitter.nested("while_loop", Body("while_loop", None), params),
        emitter.builder.function("while_loop", params) as scope,
    ):
        new = _checked("while_loop", body, (leaves, tree), tree.build(iter(map(Symbol, params[1:]))))
        values = [x for _, x in _flattened("while_loop", "the carry", new)[0]]
        scope.ret([emitter.value(x, "while_loop") for x in (flag_of(values), *values)])
    var = emit_loop(emitter.builder, scope.function, start, (), None, False, span)
    return tree.build(iter(_results(emitter, var, len(start))[1:]))


@explained
def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    carry: object,
    xs: object = None,
    *,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Repeat `carry, y = step(carry, x)` for each element x of `xs` along axis 0; the last carry, and the stacked ys.

    carry: a nest of tensors and numbers, which become 0-d tensors. Each step returns the same structure, shapes and
        dtypes.
    xs: a nest of tensors with axes 0 of one length, or None, for which `length` counts the steps and x is None.
    reverse: from the last element to the first; y still has the place of its x.
    The result y is a nest of tensors, stacked along axis 0. A compiled program has one body, whatever the length, so
    that it compiles in the time of one step; gradients of any order go through it. Steps may read tensors around them;
    they write none while they are traced. Random numbers are the same as in eager code, step by step, unless a
    branch of `cond` draws some: a program takes keys for both branches.
    Raises ArgumentError for a carry that changes its type, and for lengths that differ; TraceError for random numbers
    in a program with a symbolic length."""
    state = _flattened("scan", "the carry", carry)
    elements = _flattened("scan", "xs", xs, numbers=False)
    count = _length(elements[0], length)
    if not _traced():
        return _scan_eagerly(step, state, elements, count, reverse)
    if modes.transform is not None:
        first, rows = (tree.build(x for _, x in pairs) for pairs, tree in (state, elements))
        return modes.transform.scan(step, first, rows, count, reverse)
    emitter, span = current_emitter(), user_span()
    start = [emitter.value(x, "scan") for _, x in state[0]]
    operands = [emitter.value(x, "scan") for _, x in elements[0]]
    params = [Var(name or "carry", x.type) for name, x in state[0]]
    params += [Var(name or "x", element(x.type)) for name, x in elements[0]]
    items: tuple[Leaves, Tree] = ([], Tree("tuple"))
    body = Body("scan", count if isinstance(count, int) else None)
    with emitter.nested("scan", body, params), emitter.builder.function("scan", params) as scope:
        symbols = iter(map(Symbol, params))
        new, item = _stepped(step, state[1].build(symbols), elements[1].build(symbols), state)
        items = _flattened("scan", "the item", item, numbers=True)
        scope.ret([emitter.value(x, "scan") for _, x in (*new, *items[0])])
    if not state[0] and not items[0]:
        return state[1].build(iter(())), items[1].build(iter(()))
    operands += emitter.key_stacks(body, reverse)
    function = replace(scope.function, params=(*params, *body.params))
    var = emit_loop(emitter.builder, function, start, operands, count, reverse, span)
    results = iter(_results(emitter, var, len(state[0]) + len(items[0])))
    return state[1].build(results), items[1].build(results)


# --- eager -----------------------------------------------------------------------------------------------------------


def _while_eagerly(condition: Any, body: object, state: tuple[Leaves, Tree], max_steps: int | None) -> Any:
    carry, steps = state[1].build(x.copy() for _, x in state[0]), 0
    while max_steps is None or steps < max_steps:
        flag = condition(carry)
        if not isinstance(flag, bool):
            _check_flag("while_loop", f"the result of {_name(condition)}", flag)
        if not flag:
            break
        held = [_checked("while_loop", body, state, carry)]
        carry, steps = _own_arrays(held, views=False), steps + 1
    held = [carry]
    del carry
    return _own_arrays(held)


def _scan_eagerly(
    step: Any, state: tuple[Leaves, Tree], elements: tuple[Leaves, Tree], length: Any, reverse: bool
) -> tuple[Any, Any]:
    carry = state[1].build(x.copy() for _, x in state[0])
    if not length:
        return carry, _no_items(step, state, elements)
    parts = [unstacked(x) if length > 1 else [x[0].copy()] for _, x in elements[0]]
    stacks: list[list[Any]] = []
    first: tuple[Leaves, Tree] | None = None
    new: Leaves = []
    for i in reversed(range(length)) if reverse else range(length):
        new, item = _stepped(step, carry, elements[1].build(part[i] for part in parts), state)
        items = _flattened("scan", "the item", item)
        held = [state[1].build(x for _, x in new)]
        new, carry = [], None
        carry = _own_arrays(held, views=any(map(_is_view, items[0])))
        first = first or items
        _check_same("scan", "the first item has", "a later one has", first, items)
        stacks.append([x for _, x in items[0]])
    assert first is not None
    columns = zip(*(reversed(stacks) if reverse else stacks), strict=True)
    held = [carry]
    new, carry = [], None
    return _own_arrays(held), first[1].build(
        stacked(column) if length > 1 else column[0][None].copy() for column in columns
    )


def _own_arrays(held: list[Any], views: bool = True) -> Any:
    """The result of a branch, loop or step, the only item of `held`, with copies of the arrays that something else
    holds: in a program it shares no memory and no gradient with what is around it either. views: whether something
    else may hold views."""
    leaves, tree = flatten(held.pop(), TensorLike)
    shared = [count > _UNSHARED for count in _references(leaves)]
    own = [x.copy() if s or (views and _is_view(("", x))) else x for s, (_, x) in zip(shared, leaves, strict=True)]
    return tree.build(iter(own))


def _is_view(leaf: tuple[str, Any]) -> bool:
    """Whether a tensor may share its memory with another."""
    x = leaf[1]
    return (x._version if isinstance(x, NDArray) else x.aliases) is not None


def _own_values(carry: object) -> Any:
    """Traced tensors that a branch may write."""
    leaves, tree = flatten(carry, TensorLike)
    return tree.build(meta.reshape(x, x.shape).snapshot() for _, x in leaves)


def _references(leaves: Sequence[tuple[str, Any]]) -> list[int]:
    return [getrefcount(x) for _, x in leaves]


_UNSHARED = _references([("", object())])[0]
"""References to an array that leaves alone hold."""


def _no_items(step: object, state: tuple[Leaves, Tree], elements: tuple[Leaves, Tree]) -> Any:
    """The stacks of a loop of no steps."""
    carry = state[1].build(x.type for _, x in state[0])
    x = elements[1].build(element(x.type) for _, x in elements[0])

    def item(carry: object, x: object) -> Any:
        return _stepped(step, carry, x, state)[1]

    traced = record(item, (carry, x), {})
    kinds = traced.main.body.results[: traced.result.count()]
    return traced.result.build(meta.zeros((0, *k.type.shape), dtype=k.type.dtype, device=k.type.device) for k in kinds)  # type: ignore[union-attr]


# --- shared ----------------------------------------------------------------------------------------------------------


def _traced() -> bool:
    return modes.emit is not None and (modes.transform is None or modes.trace is not None)


def _stepped(step: Any, carry: Any, x: Any, state: tuple[Leaves, Tree]) -> tuple[Leaves, Any]:
    """The leaves of the new carry, and the item."""
    result = step(carry, x)
    if not is_tuple(result) or len(result) != 2:
        returned = f"{len(result)} values" if is_sequence(result) else type(result).__name__
        raise ArgumentError("scan", f"{_name(step)} returns {returned}", "a tuple (carry, y)")
    new = _flattened("scan", "the carry", result[0])
    return _same_types("scan", step, state, new), result[1]


def _checked(where: str, body: Any, state: tuple[Leaves, Tree], carry: Any) -> Any:
    """The carry that a body returns."""
    new = _flattened(where, "the carry", body(carry))
    return state[1].build(x for _, x in _same_types(where, body, state, new))


def _same_types(where: str, function: object, state: tuple[Leaves, Tree], new: tuple[Leaves, Tree]) -> Leaves:
    """The leaves of a new carry. Under autocast floating ones are cast to the dtype of the carry."""
    leaves, tree = new
    if modes.autocast is not None and tree == state[1]:
        pairs = zip(leaves, (x.dtype for _, x in state[0]), strict=True)
        leaves = [(n, x.cast(d) if dtypes.is_float(d) and dtypes.is_float(x.dtype) else x) for (n, x), d in pairs]
    _check_same(where, "the carry has", f"{_name(function)} returns", state, (leaves, tree))
    return leaves


def _check_same(
    where: str, what: str, other: str, first: tuple[Leaves, Tree], second: tuple[Leaves, Tree]
) -> None:  # fmt: skip
    """Raise ArgumentError unless two nests have the same structure, shapes and dtypes."""
    if first[1] != second[1]:
        problem = f"{what} the structure {_shown(first[1])}, and {other} {_shown(second[1])}"
        raise ArgumentError(where, problem, "one structure")
    for (name, x), (_, y) in zip(first[0], second[0], strict=True):
        if x.type != y.type:
            place = f" at '{name}'" if name else ""
            raise ArgumentError(
                where, f"{what} {x.type!r}{place}, and {other} {y.type!r}", "one shape, dtype and device",
                "cast or reshape one of them",
            )  # fmt: skip


def _shown(tree: Tree) -> str:
    names = iter("tensor" for _ in range(tree.count()))
    return str(tree.build(names)).replace("'", "")


def _flattened(where: str, what: str, value: object, numbers: bool = True) -> tuple[Leaves, Tree]:
    """The tensors of a nest; numbers become 0-d tensors. Raises ArgumentError for other leaves than those and None."""
    import numpy as np

    leaves, tree = flatten(value, (TensorLike, TensorType, bool, int, float, complex, np.generic))
    for _, leaf in leaves:
        if isinstance(leaf, TensorType) or (not numbers and not isinstance(leaf, TensorLike)):
            raise ArgumentError(where, f"{what} has a {type(leaf).__name__}", "tensors, and nests of them")
    for static in tree.statics():
        if static is not None:
            raise ArgumentError(where, f"{what} has a {type(static).__name__}", "tensors, numbers, and nests of them")
    return [(name, x if isinstance(x, TensorLike) else meta.asarray(x)) for name, x in leaves], tree


def _length(elements: Leaves, length: int | None) -> Dim:
    """The number of steps. Raises ArgumentError where lengths differ, or there is none."""
    for name, x in elements:
        if not x.shape:
            raise ArgumentError("scan", f"xs{_dot(name)} is 0-d", "tensors with an axis 0, whose elements are taken")
    sizes = [(f"xs{_dot(name)}", x.shape[0]) for name, x in elements]
    sizes += [("length", length)] if length is not None else []
    if not sizes:
        raise ArgumentError("scan", "there are neither xs nor a length", "one of them", "pass length=...")
    for name, size in sizes:
        if not same_dim(size, sizes[0][1]):
            problem = f"{sizes[0][0]} has {sizes[0][1]} elements and {name} {size}"
            raise ArgumentError("scan", problem, "one length of all")
    if isinstance(length, int) and length < 0:
        raise ArgumentError("scan", f"length is {length}", "0 or more")
    return sizes[0][1]


def _dot(name: str) -> str:
    return f".{name}" if name else ""


def _check_flag(where: str, what: str, flag: object) -> None:
    """Raise ArgumentError unless `flag` is a 0-d bool tensor."""
    if not isinstance(flag, Tensor):
        raise ArgumentError(where, f"{what} is {type(flag).__name__}", "a 0-d bool tensor")
    kind: Type = flag.type
    if not isinstance(kind, TensorType) or kind.shape or kind.dtype != "bool":
        raise ArgumentError(
            where, f"{what} is {kind!r}", "a 0-d bool tensor", "compare, and reduce with .all() or .any()"
        )


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _packed(atoms: list[Atom]) -> Atom | Tuple:
    return atoms[0] if len(atoms) == 1 else Tuple(tuple(atoms))


def _results(emitter: Emitter, var: Var, count: int) -> list[Any]:
    """The first `count` tensors of a value."""
    if not isinstance(var.type, TupleType):
        return [emitter.result(var)]
    return [emitter.result(emitter.builder.get_item(var, i)) for i in range(count)]


def iterate(op: Any, args: Sequence[Any], call: Callable[..., Sequence[Any]]) -> tuple[Any, ...]:
    """The results of a LoopOp on arrays. call: runs the body on arrays."""
    carry, rest = list(args[: op.carried]), args[op.carried :]
    elements, captured = rest[: op.scanned], rest[op.scanned :]
    if op.length is None:
        while carry[0].item():
            carry = list(call(*carry, *captured))
        return tuple(carry)
    stacks: list[Sequence[Any]] = []
    kinds = op.result.fields[op.carried :]
    length = elements[0].shape[0] if elements else op.length
    parts = [unstacked(x) if length else [] for x in elements]
    for i in reversed(range(length)) if op.reverse else range(length):
        results = call(*carry, *(part[i] for part in parts), *captured)
        carry = list(results[: op.carried])
        stacks.append(results[op.carried :])
    if not length:
        return (*carry, *(meta.zeros((0, *k.shape[1:]), dtype=k.dtype, device=k.device) for k in kinds))
    columns = zip(*(reversed(stacks) if op.reverse else stacks), strict=True)
    return (*carry, *(stacked(column) for column in columns))
