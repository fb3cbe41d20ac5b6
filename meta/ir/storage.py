"""Which memory the results of a function are: that of parameters, or of tensors that operators compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.ir.expr import Atom, Block, Call, Expr, FunctionExpr, If, Tuple, TupleGetItem, Var
from meta.ir.visitor import walk

Sources = frozenset[Any]
"""The memory that a tensor may share: the positions of parameters, and variables and constants in place of those."""


def result_sources(function: FunctionExpr, *, certain: bool = False) -> tuple[Sources, ...]:
    """For each result, the tensors whose memory it may be: views have that of their operand, results of branches that
    of either. A call of a function counts as new memory, and so does a result that is a tuple.

    certain: only tensors whose memory it is whichever branch runs."""
    sources = _StorageAnalysis(function, Sources.intersection if certain else Sources.union)
    return tuple(sources.of(atom) for atom in function.body.results)


class _StorageAnalysis:
    """tensors: variable -> its sources.  tuples: variable -> the sources of each of its fields.
    either: the sources of a result that is one of two branches'."""

    def __init__(self, function: FunctionExpr, either: Callable[[Sources, Sources], Sources]) -> None:
        self.either = either
        self.tensors: dict[Atom, Sources] = {p: frozenset({i}) for i, p in enumerate(function.params)}
        self.tuples: dict[Atom, tuple[Sources, ...]] = {}
        for binding in walk(function):
            self.bind(binding.var, binding.value)

    def of(self, atom: Atom) -> Sources:
        return self.tensors.get(atom, frozenset({atom}))

    def bind(self, var: Var, value: Expr) -> None:
        match value:
            case Call() if value.callee is None and value.op.view:  # type: ignore[union-attr]
                self.tensors[var] = self.of(value.args[0])
            case Tuple():
                self.tuples[var] = tuple(map(self.of, value.fields))
            case TupleGetItem():
                fields = self.tuples.get(value.value)
                # Each projection of one field is the same tensor.
                self.tensors[var] = fields[value.index] if fields else frozenset({(value.value, value.index)})
            case If():
                then, orelse = self.fields(value.then), self.fields(value.orelse)
                if isinstance(value.then.result, Tuple) or value.then.result in self.tuples:
                    self.tuples[var] = tuple(map(self.either, then, orelse))
                else:
                    self.tensors[var] = self.either(then[0], orelse[0])
            case _:
                pass

    def fields(self, block: Block) -> tuple[Sources, ...]:
        """The sources of the results of a block, of the fields if they are one tuple."""
        if not isinstance(block.result, Tuple) and block.result in self.tuples:
            return self.tuples[block.result]
        return tuple(map(self.of, block.results))
