"""A program and its gradient as two programs: the values that the gradient reads are further results of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meta import dtype as dtypes
from meta.eager.seeds import add_up
from meta.errors import GradientError
from meta.ir.analysis import vars_read
from meta.ir.builder import Builder, Module
from meta.ir.expr import MUTATES, Atom, Binding, Block, Call, FunctionExpr, Tuple, TupleGetItem, Var
from meta.ir.type import TensorType
from meta.ir.visitor import inline, nested_blocks
from meta.op.registry import get
from meta.passes.cse import live_block
from meta.records import record
from meta.tracing.differentiate import gradients, reached
from meta.tracing.emitter import is_key, recording
from meta.tracing.loop_op import LoopOp
from meta.tracing.symbol import Symbol


@record
class Split:
    """A program and its gradient.

    forward: "main" with the values in `extra` as further results.  extra: the number of those.
    flows: the results that gradients flow from.
    held: for each value that the gradient reads, the parameter that it is, or the index of a result of `forward`.
    backward: (*values, *gradients of the flowing results) -> results.
    sources: for each wanted parameter, the kind of its gradient and an index: a "result" of `backward`, an "incoming"
        gradient, a "held" value; None where there is no gradient.
    """

    forward: Module
    extra: int
    flows: tuple[int, ...]
    held: tuple[tuple[str, int], ...]
    backward: Module
    sources: tuple[tuple[str, int] | None, ...]


def split(
    module: Module, positions: Sequence[int], constant: frozenset[int], count: int, recorded: frozenset[int]
) -> Split | None:
    """Differentiate "main" with respect to the parameters at `positions`.

    constant: results that no gradient flows from.  count: the number of results that callers get; gradients flow from
    floating ones among them, and from those that replace the parameters `recorded`, which are written with gradients.
    Returns None if no result depends on the parameters at `positions`. Raises GradientError for operators without a
    gradient, and where the gradient reads a parameter that the program overwrites without gradients."""
    main = module.main
    flows = differentiable_results(main, positions, constant, count, recorded)
    if not flows:
        return None
    emitter = Builder(caller_spans=False)
    params = tuple(Var(p.name, p.type, p.span) for p in main.params)
    dys = tuple(Var(f"dy{i}", main.body.results[i].type) for i in flows)
    with emitter.function("main", (*params, *dys)) as scope, recording(emitter):
        result = inline(emitter, main, params)
        ys = result.fields if isinstance(result, Tuple) else (result,)
        forward_length = len(emitter.bindings)
        incoming: dict[Atom, Any] = {}
        for i, dy in zip(flows, dys, strict=True):
            incoming[ys[i]] = add_up(incoming.get(ys[i]), Symbol(dy))
        arrived = gradients(emitter, incoming, [params[i] for i in positions])
        gradients_wanted: list[Atom | None] = [
            arrived[params[i]].atom if params[i] in arrived else None for i in positions
        ]
        scope.ret([atom for atom in gradients_wanted if atom is not None])
    bindings = scope.function.body.bindings
    forward, rest = _partition(bindings, forward_length, gradients_wanted)
    read = _values_read(rest, gradients_wanted, (*dys, *(b.var for b in rest)))
    straight = _values_read([b for b in rest if _is_straight(b.value)], gradients_wanted, ())
    copies = _copies(main, params, read, straight, recorded)
    forward = (*forward, *copies.values())
    saved_sources, extra = _held(main, params, ys, read, copies)
    results = tuple(dict.fromkeys(a for a in gradients_wanted if a is not None and a not in read and a not in dys))
    return Split(
        module.with_function("main", FunctionExpr(params, Block(forward, Tuple((*ys, *extra))), main.attrs, "main")),
        len(extra),
        flows,
        saved_sources,
        Module({"main": _named((*read, *dys), Block(rest, Tuple(results)))}),
        tuple(_source(atom, results, dys, read) for atom in gradients_wanted),
    )


def differentiable_results(
    main: FunctionExpr, positions: Sequence[int], constant: frozenset[int], count: int, recorded: frozenset[int]
) -> tuple[int, ...]:
    """The positions of the floating results that depend on the parameters at `positions`, among those that callers get
    and those that replace the parameters `recorded`."""
    active = reached(main.body.bindings, frozenset(main.params[i] for i in positions))
    mutated = main.attrs.get(MUTATES, {})
    return tuple(
        i
        for i, y in enumerate(main.body.results)
        if (mutated[i] in recorded if i in mutated else i < count and i not in constant)
        and y in active
        and _is_floating(y.type)
    )


def _is_floating(kind: Any) -> bool:
    return isinstance(kind, TensorType) and dtypes.is_inexact(kind.dtype)


def _partition(
    bindings: Sequence[Binding], forward_length: int, gradients_wanted: Sequence[Atom | None]
) -> tuple[tuple[Binding, ...], tuple[Binding, ...]]:
    """The bindings of the forward program, with fields of its tuples, and the bindings of the gradient that are
    read."""
    forward = list(bindings[:forward_length])
    defined = {b.var for b in forward}
    rest: list[Binding] = []
    for binding in bindings[forward_length:]:
        if isinstance(binding.value, TupleGetItem) and binding.value.value in defined:
            forward.append(binding)
            defined.add(binding.var)
        else:
            rest.append(binding)
    wanted = Tuple(tuple(atom for atom in gradients_wanted if atom is not None))
    return tuple(forward), live_block(Block(tuple(rest), wanted), set()).bindings


def _values_read(
    rest: Sequence[Binding], gradients_wanted: Sequence[Atom | None], own: Sequence[Var]
) -> tuple[Var, ...]:
    """The variables of the forward program that the gradient reads, in order."""
    inside = frozenset(own)
    read = [var for binding in rest for var in sorted(vars_read(binding.value), key=lambda v: v.name)]
    read += [atom for atom in gradients_wanted if isinstance(atom, Var)]
    return tuple(dict.fromkeys(var for var in read if var not in inside))


def _copies(
    main: FunctionExpr, params: Sequence[Var], read: Sequence[Var], straight: Sequence[Var], recorded: frozenset[int]
) -> dict[Var, Binding]:
    """Copies of parameters that are read and overwritten: parameters written with gradients, for which eager code
    takes other memory, and parameters that only branches and loops read, where eager code may need no value.

    straight: what is read outside of branches and loops."""
    builder = Builder(caller_spans=False)
    mutated: Mapping[int, int] = main.attrs.get(MUTATES, {})
    written = {params[i] for i in mutated.values() if i in recorded or params[i] not in straight}
    copied = [var for var in read if var in written]
    for var in copied:
        builder.call(get("copy"), (var,))
    return dict(zip(copied, builder.bindings, strict=True))


def _is_straight(value: Any) -> bool:
    """Whether a value is computed once, whatever the values of tensors are."""
    return not nested_blocks(value) and not (isinstance(value, Call) and isinstance(value.op, LoopOp))


def _held(
    main: FunctionExpr, params: Sequence[Var], ys: Sequence[Atom], read: Sequence[Var], copies: Mapping[Var, Binding]
) -> tuple[tuple[tuple[str, int], ...], tuple[Var, ...]]:
    """Where each value that the gradient reads comes from, and the further results of the forward program."""
    mutates: Mapping[int, int] = main.attrs.get(MUTATES, {})
    overwritten: set[Var] = {params[i] for i in mutates.values()} - copies.keys()
    returned = [i for i in range(len(ys)) if i not in mutates]
    sources: list[tuple[str, int]] = []
    extra: list[Var] = []
    for value in read:
        var = copies[value].var if value in copies else value
        if var in overwritten:
            raise GradientError(
                "vm",
                f"the gradient reads '{var.name}', which the compiled program overwrites",
                "values that stay unchanged until backward",
                "call backward inside the compiled function",
            )
        if not isinstance(var.type, TensorType):
            raise GradientError("vm", f"the gradient reads a value of type {var.type!r}", "tensors",
                                "call backward inside the compiled function")  # fmt: skip
        if var in params and not is_key(var):
            sources.append(("parameter", params.index(var)))
            continue
        place = next((n for n, i in enumerate(returned) if ys[i] is var), None)
        if place is None:
            place = len(returned) + len(extra)
            extra.append(var)
        sources.append(("result", place))
    return tuple(sources), tuple(extra)


def _source(
    atom: Atom | None, results: Sequence[Atom], dys: Sequence[Var], read: Sequence[Var]
) -> tuple[str, int] | None:
    if atom is None:
        return None
    for kind, atoms in (("incoming", dys), ("held", read), ("result", results)):
        if atom in atoms:
            return kind, list(atoms).index(atom)
    return None


def _named(params: tuple[Var, ...], block: Block) -> FunctionExpr:
    """A function of `params`, which get names of their own except for random keys."""
    emitter = Builder(caller_spans=False)
    fresh = tuple(Var(p.name if is_key(p) else f"value{i}", p.type) for i, p in enumerate(params))
    with emitter.function("main", fresh) as scope:
        scope.ret(inline(emitter, FunctionExpr(params, block), fresh))
    return scope.function
