"""Walking and rebuilding IR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from meta.errors import IRError
from meta.ir.builder import Builder
from meta.ir.expr import (
    ATOMS,
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Expr,
    FunctionExpr,
    GlobalVar,
    If,
    Tuple,
    TupleGetItem,
    Var,
    is_atom_list,
    operands,
)

E = TypeVar("E", bound=Expr)
Substitution = dict[Any, Atom]
"""Variable (or constant) -> what takes its place."""


# Reading


def nested_blocks(value: Expr) -> tuple[Block, ...]:
    """The blocks directly inside a value."""
    match value:
        case If():
            return value.then, value.orelse
        case FunctionExpr():
            return (value.body,)
        case _:
            return ()


def walk(node: FunctionExpr | Block) -> Iterator[Binding]:
    """Every binding, in order, those inside a nested block before the binding they are part of."""
    block = node.body if isinstance(node, FunctionExpr) else node
    for binding in block.bindings:
        for inner in nested_blocks(binding.value):
            yield from walk(inner)
        yield binding


def walk_blocks(node: FunctionExpr | Block) -> Iterator[Block]:
    """Every block, nested ones before the one around them."""
    block = node.body if isinstance(node, FunctionExpr) else node
    for binding in block.bindings:
        for inner in nested_blocks(binding.value):
            yield from walk_blocks(inner)
    yield block


def reads(value: Expr | Atom) -> Iterator[Atom]:
    """The atoms that a value and everything nested in it read."""
    yield from operands(value)
    if not isinstance(value, ATOMS):
        for block in nested_blocks(value):
            yield from block_reads(block)


def block_reads(block: Block) -> Iterator[Atom]:
    """The atoms that a block reads: in its values, nested ones too, and as its result."""
    for binding in block.bindings:
        yield from reads(binding.value)
    yield from block.results


def use_counts(node: FunctionExpr | Block) -> Counter[Var]:
    """How often each variable is read; those never read count 0."""
    block = node.body if isinstance(node, FunctionExpr) else node
    return Counter(atom for atom in block_reads(block) if isinstance(atom, Var))


def bound_vars(node: Expr | Block) -> Iterator[Var]:
    """The variables bound inside a value or block: parameters of functions and bindings, at every depth."""
    if isinstance(node, FunctionExpr):
        yield from node.params
    if isinstance(node, Block):
        for binding in node.bindings:
            yield binding.var
            yield from bound_vars(binding.value)
        return
    for block in nested_blocks(node):
        yield from bound_vars(block)


def free_vars(node: Expr | Block) -> tuple[Var, ...]:
    """The variables that a value or block reads but does not bind, in order of first use."""
    atoms = block_reads(node) if isinstance(node, Block) else reads(node)
    bound = set(bound_vars(node))
    return tuple(dict.fromkeys(a for a in atoms if isinstance(a, Var) and a not in bound))


def called_globals(node: FunctionExpr | Block) -> frozenset[str]:
    """Names of the functions of the module that the node mentions."""
    block = node.body if isinstance(node, FunctionExpr) else node
    return frozenset(a.name for a in block_reads(block) if isinstance(a, GlobalVar))


# Rebuilding


def with_operands(value: Expr, atoms: Sequence[Atom]) -> Expr:
    """`value` with other operands, in the order of `operands`, nested blocks excepted; `value` itself when they are the
    same. A call keeps its type."""
    if _same(tuple(atoms), tuple(operands(value))):
        return value
    rest = iter(atoms)
    match value:
        case Call():
            op = value.op if value.callee is None else next(rest)
            if isinstance(op, Constant):
                raise IRError("rewrite", "the function of a call was replaced by a tensor")
            args = [
                next(rest) if isinstance(arg, ATOMS) else tuple(islice(rest, len(arg))) if is_atom_list(arg) else arg
                for arg in value.args
            ]
            return replace(value, op=op, args=tuple(args))
        case Tuple():
            return replace(value, fields=tuple(atoms))
        case TupleGetItem():
            return replace(value, value=atoms[0])
        case If():
            return replace(value, cond=atoms[0])
        case FunctionExpr():
            return value


def _same(new: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))


def with_results(block: Block, atoms: Sequence[Atom]) -> Atom | Tuple:
    """The result of `block` with other atoms; itself when they are the same."""
    result = block.result
    if not isinstance(result, Tuple):
        return atoms[0]
    return result if _same(tuple(atoms), result.fields) else replace(result, fields=tuple(atoms))


def with_blocks(value: Expr, blocks: tuple[Block, ...]) -> Expr:
    """`value` with other nested blocks; `value` itself when they are the same."""
    old = nested_blocks(value)
    if len(blocks) == len(old) and _same(blocks, old):
        return value
    match value:
        case If():
            return replace(value, then=blocks[0], orelse=blocks[1])
        case FunctionExpr():
            return replace(value, body=blocks[0])
        case Call() | Tuple() | TupleGetItem():
            raise IRError("rewrite", f"blocks are given to a {type(value).__name__}", "If or FunctionExpr")


def renamed(function: FunctionExpr) -> FunctionExpr:
    """A copy with new variables, for a function that is used in two places."""
    return _Renamer({}).function(function)


def substituted(value: E, atoms: Mapping[Any, Atom]) -> E:
    """`value` with variables (or constants) replaced, in nested blocks too; `value` itself if none of them changes."""
    changed = {var: atom for var, atom in atoms.items() if atom is not var}
    return _Renamer(changed).value(value) if changed else value  # type: ignore[return-value]  # of the same class


def inline(builder: Builder, function: FunctionExpr, args: tuple[Atom, ...]) -> Atom | Tuple:
    """Emit a copy of the body of `function` applied to `args` into `builder`; what it returns."""
    if len(args) != len(function.params):
        raise IRError("inline", f"{len(args)} arguments for {len(function.params)} parameters")
    block = _Renamer(dict(zip(function.params, args, strict=True))).block(function.body)
    for binding in block.bindings:
        builder.bind(binding)
    return block.result


class _Renamer:
    def __init__(self, substitution: Substitution) -> None:
        self.substitution = substitution

    def fresh(self, var: Var) -> Var:
        new = self.substitution[var] = replace(var)
        return new

    def atom(self, atom: Atom) -> Atom:
        return self.substitution.get(atom, atom)

    def function(self, function: FunctionExpr) -> FunctionExpr:
        return replace(function, params=tuple(map(self.fresh, function.params)), body=self.block(function.body))

    def block(self, block: Block) -> Block:
        bindings: list[Binding] = []
        for old in block.bindings:
            # A closure may call itself, so its variable is renamed before its body is.
            var = self.fresh(old.var)
            bindings.append(Binding(var, self.value(old.value)))
        return Block(tuple(bindings), with_results(block, [self.atom(a) for a in block.results]))

    def value(self, value: Expr) -> Expr:
        if isinstance(value, FunctionExpr):
            return self.function(value)
        new = with_operands(value, [self.atom(a) for a in operands(value)])
        return with_blocks(new, tuple(map(self.block, nested_blocks(new))))
