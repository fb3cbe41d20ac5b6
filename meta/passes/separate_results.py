"""Results of a program in separate memory.

Passes replace a copy by its operand, and equal values by one. If those are results, a write to one of them would then
change another one, or an input.
"""

from __future__ import annotations

from dataclasses import replace

from meta.ir.expr import MUTATES, Atom, Binding, Block, Call, Tuple, Var
from meta.ir.module import Module
from meta.ir.storage import Sources, result_sources
from meta.op.registry import get


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
