"""Facts about IR: which variables are live where, which storage they stand for, who calls whom, how much memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import index as to_int
from typing import Literal

from meta.ir.expr import (
    INPLACE,
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Tuple,
    TupleGetItem,
    Var,
)
from meta.ir.module import Module
from meta.ir.type import TensorType, TupleType, Type
from meta.ir.visitor import block_reads, called_globals, free_vars, nested_blocks, reads, walk

Live = frozenset[Var]


def vars_read(value: Expr | Atom) -> Live:
    """The variables from outside that a value reads, those of nested blocks included."""
    return frozenset(free_vars(value) if isinstance(value, (If, Function)) else _vars(reads(value)))


def _vars(atoms: Iterator[Atom]) -> Iterator[Var]:
    return (atom for atom in atoms if isinstance(atom, Var))


def last_uses(node: Function | Block) -> dict[Var, int]:
    """For each variable that the block reads, the index of the last of its bindings to do so; the number of bindings
    for those that the result reads."""
    block = node.body if isinstance(node, Function) else node
    out: dict[Var, int] = {}
    for i, binding in enumerate(block.bindings):
        out.update(dict.fromkeys(vars_read(binding.value), i))
    out.update(dict.fromkeys(_vars(iter(block.results)), len(block.bindings)))
    return out


def dying(node: Function | Block) -> tuple[tuple[Var, ...], ...]:
    """For each binding of the block, the variables bound in the block that nobody reads after it."""
    block = node.body if isinstance(node, Function) else node
    last = last_uses(block)
    out: list[list[Var]] = [[] for _ in range(len(block.bindings) + 1)]
    for i, binding in enumerate(block.bindings):
        out[last.get(binding.var, i)].append(binding.var)
    return tuple(map(tuple, out[:-1]))


def visit_live(node: Function | Block, visit: Callable[[Binding, Live], None]) -> None:
    """Call `visit(binding, live)` for every binding at every depth, last to first, with the variables bound before
    it that are still read after it. What a closure captures counts as live throughout its body."""
    block = node.body if isinstance(node, Function) else node
    _visit_live(block, frozenset(), visit)


def _visit_live(block: Block, live_out: Live, visit: Callable[[Binding, Live], None]) -> None:
    live = live_out | frozenset(_vars(iter(block.results)))
    for binding in reversed(block.bindings):
        after = live - {binding.var}
        visit(binding, after)
        captured = frozenset(free_vars(binding.value)) if isinstance(binding.value, Function) else frozenset[Var]()
        for inner in nested_blocks(binding.value):
            _visit_live(inner, after | captured, visit)
        live = after | (vars_read(binding.value) - {binding.var})


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Storage of one tensor. index: which parameter, -1 for none."""

    kind: Literal["parameter", "constant", "local"]
    type: Type
    index: int = -1

    @property
    def nbytes(self) -> int:
        """Raises TypeInferenceError when the size is symbolic."""
        return to_int(self.type.nbytes) if isinstance(self.type, TensorType) else 0


Leaf = frozenset[Buffer]
"""The buffers that one tensor of a value may lie in."""


def leaf_types(kind: Type) -> tuple[Type, ...]:
    """The types of the tensors (and functions) that a value is made of, nested tuples flattened."""
    if isinstance(kind, TupleType):
        return tuple(leaf for field in kind.fields for leaf in leaf_types(field))
    return (kind,)


class Storage:
    """Which buffers each variable of a function may stand for.

    A call makes new buffers, but for views, results that overwrite an argument (INPLACE) and calls of functions,
    which may also return storage they were given. Tuples and conditionals hand on the buffers of their parts, a
    closure holds those of what it captures."""

    def __init__(self, function: Function) -> None:
        self._leaves: dict[Var, tuple[Leaf, ...]] = {}
        self._constants: dict[Constant, Buffer] = {}
        for i, param in enumerate(function.params):
            self._leaves[param] = tuple(frozenset({Buffer("parameter", t, i)}) for t in leaf_types(param.type))
        self._block(function.body)

    def leaves(self, atom: Atom) -> tuple[Leaf, ...]:
        """One set of possible buffers for each tensor of the value."""
        if isinstance(atom, Var):
            return self._leaves.get(atom) or tuple(frozenset[Buffer]() for _ in leaf_types(atom.type))
        if isinstance(atom, Constant):
            return (frozenset({self._constants.setdefault(atom, Buffer("constant", atom.type))}),)
        return (frozenset(),)

    def buffers(self, atom: Atom) -> Leaf:
        """All buffers of all tensors of the value."""
        return frozenset[Buffer]().union(*self.leaves(atom))

    def constants(self) -> tuple[Buffer, ...]:
        return tuple(self._constants.values())

    def _block(self, block: Block) -> None:
        for binding in block.bindings:
            if isinstance(binding.value, Function):
                for param in binding.value.params:
                    self._leaves[param] = tuple(frozenset({Buffer("parameter", t)}) for t in leaf_types(param.type))
            for inner in nested_blocks(binding.value):
                self._block(inner)
            self._leaves[binding.var] = self._value(binding.value)
        for atom in block_reads(block):
            self.leaves(atom)

    def _value(self, value: Expr) -> tuple[Leaf, ...]:
        match value:
            case Tuple():
                return tuple(leaf for field in value.fields for leaf in self.leaves(field))
            case TupleGetItem():
                kind = value.value.type
                fields = kind.fields if isinstance(kind, TupleType) else ()
                start = sum(len(leaf_types(f)) for f in fields[: value.index])
                return self.leaves(value.value)[start : start + len(leaf_types(value.type))]
            case If():
                branches = [[x for a in block.results for x in self.leaves(a)] for block in (value.then, value.orelse)]
                return tuple(a | b for a, b in zip(*branches, strict=True))
            case Function():
                return (frozenset[Buffer]().union(*map(self.buffers, free_vars(value))),)
            case Call():
                return self._call(value)

    def _call(self, call: Call) -> tuple[Leaf, ...]:
        new = [frozenset({Buffer("local", kind)}) for kind in leaf_types(call.type)]
        if isinstance(call.op, (Var, GlobalVar)):
            given = frozenset[Buffer]().union(*map(self.buffers, [call.op, *call.args]))
            return tuple(leaf | given for leaf in new)
        if call.op.view and call.args and isinstance(call.args[0], (Var, Constant)):
            new[0] = self.buffers(call.args[0])
        for output, position in call.attrs.get(INPLACE, {}).items():
            new[output] = self.buffers(call.args[position])
        return tuple(new)


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes a call of a function needs: what it is given, its constants, the most that lives at once of what it
    makes, and of that the results."""

    parameters: int
    constants: int
    locals: int
    results: int

    @property
    def peak(self) -> int:
        return self.parameters + self.constants + self.locals


def estimate_memory(function: Function) -> MemoryEstimate:
    """The memory of a call by liveness, each tensor freed after its last use, padding and workspaces not counted.

    Functions that it calls count by their results only. Raises TypeInferenceError when a size is symbolic."""
    storage = Storage(function)
    most = 0

    def visit(binding: Binding, live: Live) -> None:
        nonlocal most
        at_once = [*live, binding.var, *vars_read(binding.value)]
        most = max(most, _local_bytes(storage, at_once))

    visit_live(function, visit)
    given = frozenset[Buffer]().union(*map(storage.buffers, function.params))
    results = [a for a in function.body.results if isinstance(a, Var)]
    return MemoryEstimate(
        parameters=sum(b.nbytes for b in given),
        constants=sum(b.nbytes for b in storage.constants()),
        locals=most,
        results=_local_bytes(storage, results),
    )


def _local_bytes(storage: Storage, variables: list[Var]) -> int:
    buffers = frozenset[Buffer]().union(*map(storage.buffers, variables))
    return sum(b.nbytes for b in buffers if b.kind == "local")


def call_graph(module: Module) -> dict[str, frozenset[str]]:
    """For each function of the module, the names of those that it mentions."""
    return {name: called_globals(function) for name, function in module.functions.items()}


def reachable(module: Module, root: str = "main") -> frozenset[str]:
    """The names of the functions that `root` needs, itself included."""
    graph = call_graph(module)
    seen: set[str] = set()
    pending = [root]
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending += graph.get(name, ())
    return frozenset(seen)


def op_counts(node: Function | Block) -> dict[str, int]:
    """How often each operator is called, by name, at every depth; sorted by name."""
    out: dict[str, int] = {}
    for binding in walk(node):
        if isinstance(binding.value, Call) and binding.value.callee is None:
            out[binding.value.op_name] = out.get(binding.value.op_name, 0) + 1
    return dict(sorted(out.items()))
