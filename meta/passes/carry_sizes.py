"""Tensors from whose shapes a function knows the symbolic sizes that it reads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from meta.dim import SymDim, names
from meta.ir.analysis import open_sizes, size_names
from meta.ir.expr import Block, Call, FunctionExpr, GlobalVar, Var
from meta.ir.type import TensorType, Type, leaf_types
from meta.ir.visitor import walk
from meta.tracing.loop_op import LoopOp
from meta.tree import leaves_of


class SizeScope:
    """The variables that a pass may read where it is in a function. functions: the functions of its module."""

    def __init__(self, functions: Mapping[str, FunctionExpr]) -> None:
        self._functions = functions
        self._params: Sequence[Var] = ()
        self._variables: list[Var] = []

    def changed(self, function: FunctionExpr, change: Callable[[Block], Block]) -> FunctionExpr:
        """The function with another body."""
        around = self._params, self._variables
        self._params, self._variables = function.params, list(function.params)
        body = change(function.body)
        self._params, self._variables = around
        return replace(function, body=body)

    @contextmanager
    def block(self) -> Generator[list[Var], None, None]:
        """The variables, to which a block adds those that it binds."""
        outer = len(self._variables)
        yield self._variables
        del self._variables[outer:]

    def carriers(self, body: Block, given: Sequence[Var]) -> tuple[Var, ...]:
        """The variables that a function with this body needs for the sizes that it reads, besides those given."""
        return _carriers(_sizes_read(body, self._functions), given, self._variables, self._params)


def _sizes_read(block: Block, functions: Mapping[str, FunctionExpr]) -> frozenset[str]:
    """The names of sizes that running a block needs to know, and that its own calls do not define: sizes of its values,
    of arguments, and of the steps that its loops repeat."""
    sizes: set[str] = set[str]().union(*(_sizes(atom.type) for atom in block.results))
    for binding in walk(block):
        sizes.update(_sizes(binding.var.type))
        value = binding.value
        if not isinstance(value, Call):
            continue
        sizes.update(*(names(leaf) for leaf in leaves_of(value.args) if isinstance(leaf, SymDim)))
        if isinstance(value.op, LoopOp) and isinstance(step := value.args[0], GlobalVar):
            sizes.update(_sizes_read(functions[step.name].body, functions))
    return frozenset(sizes) - open_sizes(block)


def _carriers(
    sizes: Iterable[str], given: Sequence[Var], scope: Sequence[Var], params: Sequence[Var]
) -> tuple[Var, ...]:  # fmt: skip
    """Variables that a function which reads `sizes` gets besides those in `given`, to know the sizes.

    scope: the variables around.  params: the parameters of the function around. Where no axis in scope is the size, it
    is computed from the shapes of these (see `meta.vm.build`)."""
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
