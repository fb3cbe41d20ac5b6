"""The passes that every program goes through before it is compiled, and results of programs in separate memory.

Passes replace a copy by its operand, and equal values by one. If those are results, a write to one of them would then
change another one, or an input.
"""

from __future__ import annotations

from dataclasses import replace

from meta.ir.analysis import Sources, result_sources
from meta.ir.builder import Module
from meta.ir.expr import MUTATES, Atom, Binding, Block, Call, Tuple, Var
from meta.op.registry import get
from meta.passes.align_products import align_products
from meta.passes.channels_last import channels_last
from meta.passes.cse import cse, dce
from meta.passes.expand_losses import expand_losses
from meta.passes.expand_norms import expand_norms
from meta.passes.expand_quantized import expand_quantized
from meta.passes.fold_batch_norm import fold_batch_norm
from meta.passes.fold_const import fold_const
from meta.passes.fuse_concatenations import fuse_concatenations
from meta.passes.fuse_epilogues import fuse_epilogues, separate_biases
from meta.passes.inline_calls import inline_calls
from meta.passes.integer_products import integer_products
from meta.passes.join_gradients import join_gradients
from meta.passes.join_updates import join_updates
from meta.passes.lift_views import lift_views
from meta.passes.manager import Pipeline
from meta.passes.move_casts import narrow_gathers, widen_sums
from meta.passes.outline_loops import outline_loops
from meta.passes.simplify import drop_stop_gradient, simplify
from meta.passes.split_joins import split_joins


def standard() -> Pipeline:
    """inline_calls, outline_loops, drop_stop_gradient, simplify, integer_products, fold_batch_norm, fold_const,
    expand_quantized, align_products, expand_losses, channels_last, expand_norms, cse, simplify, narrow_gathers,
    widen_sums, fuse_epilogues, lift_views, join_gradients, join_updates, fuse_concatenations, separate_biases,
    split_joins, dce, for a program whose gradients are taken: results stay the same up to rounding."""
    prepared = (inline_calls, outline_loops, drop_stop_gradient, simplify)
    opened = (integer_products, fold_batch_norm, fold_const, expand_quantized)
    expanded = (align_products, expand_losses, channels_last, expand_norms)
    fused = (
        narrow_gathers,
        widen_sums,
        fuse_epilogues,
        lift_views,
        join_gradients,
        join_updates,
        fuse_concatenations,
        separate_biases,
    )
    return Pipeline((*prepared, *opened, *expanded, cse, simplify, *fused, split_joins, dce))


def separate_results(before: Module, after: Module) -> Module:
    """`after`, which passes have made of `before`, with copies of those results that share memory with a parameter or
    an earlier result, and did not in `before`. New values of parameters are left alone."""
    main = after.main
    old, new = result_sources(before.main, certain=True), result_sources(main)
    written = main.attrs.get(MUTATES, {})
    results = list(main.body.results)
    owners: dict[object, Sources] = {i: frozenset({i}) for i in range(len(main.params))}
    copies: list[Binding] = []
    for i, (was, sources) in enumerate(zip(old, new, strict=True)):
        if i in written:
            continue
        if any(source in owners and not owners[source] & was for source in sources):
            copies.append(_copy(results[i]))
            results[i] = copies[-1].var
        else:
            owners.update({source: owners.get(source, was) | was for source in sources})
    if not copies:
        return after
    result = Tuple(tuple(results)) if isinstance(main.body.result, Tuple) else results[0]
    return after.with_function("main", replace(main, body=Block((*main.body.bindings, *copies), result)))


def _copy(atom: Atom) -> Binding:
    call = Call(get("copy"), (atom,), atom.type)
    return Binding(Var("copy", atom.type), call)
