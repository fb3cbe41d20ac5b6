"""Tensors from whose shapes a function knows the symbolic sizes that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from meta.dim import SymDim, names
from meta.ir.expr import Block, Call, FunctionExpr, GlobalVar, Var
from meta.ir.type import TensorType, Type, leaf_types
from meta.ir.visitor import walk
from meta.tracing.loop_op import LoopOp
from meta.tree import leaves_of
from meta.vm.lower.open_calls import open_sizes
from meta.vm.lower.types import size_names


def sizes_read(block: Block, functions: Mapping[str, FunctionExpr]) -> frozenset[str]:
    """The names of sizes that running a block needs to know, and that its own calls do not define: those of its values,
    of arguments, and of the steps that its loops repeat."""
    sizes: set[str] = set().union(*(_sizes(atom.type) for atom in block.results))
    for binding in walk(block):
        sizes.update(_sizes(binding.var.type))
        value = binding.value
        if not isinstance(value, Call):
            continue
        sizes.update(*(names(leaf) for leaf in leaves_of(value.args) if isinstance(leaf, SymDim)))
        if isinstance(value.op, LoopOp) and isinstance(step := value.args[0], GlobalVar):
            sizes.update(sizes_read(functions[step.name].body, functions))
    return frozenset(sizes) - open_sizes(FunctionExpr((), block))


def carriers(
    sizes: Iterable[str], given: Sequence[Var], scope: Sequence[Var], params: Sequence[Var]
) -> tuple[Var, ...]:  # fmt: skip
    """Variables that a function which reads `sizes` gets besides those in `given`, to know the sizes.

    scope: the variables around.  params: the parameters of the function around. Where no axis in scope is the size, it
    is computed from the shapes of these (see `meta.vm.build.parameter_sizes`)."""
    found: dict[Var, None] = {}
    pending, solved = sorted(sizes), set[str]()
    while pending:
        size = pending.pop()
        if size in solved or any(_has_axis(v, size) for v in (*given, *found)):
            continue
        solved.add(size)
        carrier = next((v for v in scope if _has_axis(v, size)), None)
        new = [v for v in params if size in _sizes(v.type)] if carrier is None else [carrier]
        found.update(dict.fromkeys(v for v in new if v not in given))
        pending += sorted(frozenset[str]().union(*(_sizes(v.type) for v in new)))
    return tuple(found)


def _sizes(kind: Type) -> frozenset[str]:
    return frozenset[str]().union(*map(size_names, leaf_types(kind)))


def _has_axis(var: Var, size: str) -> bool:
    """Whether the size is an axis of a tensor."""
    kind = var.type
    return isinstance(kind, TensorType) and any(isinstance(d, SymDim) and d.name == size for d in kind.shape)
