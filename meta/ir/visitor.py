"""Walking and rebuilding IR, so that a pass is a table of small functions.

    def double(binding, scope):                       # a rule: what to put in place of a binding, or None
        match binding.value:
            case Call(op=Op(name="add"), args=(x, y)) if x is y:
                return scope.call_expr(multiply, (x, 2.0))

    function = rewrite(function, double)

`rewrite` offers each binding, its operands already rewritten and its nested blocks first, to the rules in order.
The first answer other than None counts: an expression takes the place of the value, an atom that of the variable.
`scope` is the `Builder` of the new code: it takes bindings to put in front, and knows the definitions so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from meta.errors import IRError
from meta.ir.builder import Builder, applied_type
from meta.ir.expr import (
    ATOMS,
    Atom,
    Binding,
    Block,
    Call,
    Expr,
    FunctionExpr,
    GlobalVar,
    If,
    Tuple,
    TupleGetItem,
    Var,
    arg_types,
    is_atom_list,
    operands,
)

Scope = Builder
Rule = Callable[[Binding, Scope], Expr | Atom | None]
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


def map_operands(value: Expr, change: Callable[[Atom], Atom]) -> Expr:
    """`value` with `change` applied to each of its operands, nested blocks excepted; `value` itself when nothing
    changes. A call keeps its type; `retyped` infers it again for operands of other types."""

    def changed(item: Any) -> Any:
        if isinstance(item, ATOMS):
            return change(item)
        if not is_atom_list(item):
            return item
        new = tuple(map(change, item))
        return item if _same(new, item) else new

    match value:
        case Call():
            op = value.op if value.callee is None else change(value.callee)
            args = tuple(map(changed, value.args))
            if op is value.op and _same(args, value.args):
                return value
            if isinstance(op, ATOMS) and not isinstance(op, (Var, GlobalVar)):
                raise IRError("rewrite", "the function of a call was replaced by a tensor")
            return replace(value, op=op, args=args)
        case Tuple():
            fields = tuple(map(change, value.fields))
            return value if _same(fields, value.fields) else replace(value, fields=fields)
        case TupleGetItem():
            new = change(value.value)
            return value if new is value.value else replace(value, value=new)
        case If():
            cond = change(value.cond)
            return value if cond is value.cond else replace(value, cond=cond)
        case FunctionExpr():
            return value


def _same(new: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))


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


def retyped(call: Call) -> Call:
    """`call` with its type inferred again; raises what the type rule of its operator raises."""
    if isinstance(call.op, (Var, GlobalVar)):
        kind = applied_type(call.op, call.args)
    else:
        kind = call.op.infer(arg_types(call.args))
    return call if kind == call.type else replace(call, type=kind)


class _Rewriter:
    """One traversal: the rules, the builder of the new code, and the atoms that replace variables."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self.builder = Builder(caller_spans=False)
        self.substitution: Substitution = {}

    def atom(self, atom: Atom) -> Atom:
        while isinstance(atom, Var) and atom in self.substitution:
            atom = self.substitution[atom]
        return atom

    def block(self, block: Block) -> Block:
        with self.builder.block() as scope:
            for binding in block.bindings:
                self.binding(binding)
            result = block.result
            new = map_operands(result, self.atom) if isinstance(result, Tuple) else self.atom(result)
            scope.ret(new)  # pyright: ignore[reportArgumentType]
        if scope.block.result is block.result and _same_length(scope.block.bindings, block.bindings):
            return block
        return scope.block

    def binding(self, binding: Binding) -> None:
        value = binding.value
        # Most bindings stay as they are, and every pass visits all of them.
        if self.substitution and any(atom in self.substitution for atom in operands(value)):
            self.builder.span = binding.span
            value = map_operands(value, self.atom)
            if isinstance(value, Call) and any(map(_differ_in_type, operands(value), operands(binding.value))):
                value = retyped(value)
        if isinstance(value, (If, FunctionExpr)):
            value = with_blocks(value, tuple(map(self.block, nested_blocks(value))))
        self.builder.span = binding.span
        candidate = binding if value is binding.value else Binding(binding.var, value)
        for rule in self.rules:
            answer = rule(candidate, self.builder)
            if answer is None:
                continue
            if isinstance(answer, ATOMS):
                self.substitution[binding.var] = answer
                return
            candidate = Binding(candidate.var, answer)
            break
        self.bind(binding, candidate)

    def bind(self, old: Binding, new: Binding) -> None:
        if new is old:
            self.builder.bind(old)
            return
        kind = new.value.type
        if kind == old.var.type:
            self.builder.bind(new if new.value is not old.value else old)
            return
        var = Var(old.var.name, kind, old.var.span)
        self.substitution[old.var] = self.builder.bind(Binding(var, new.value))


def _differ_in_type(a: Atom, b: Atom) -> bool:
    return a is not b and a.type != b.type


def _same_length(new: tuple[Binding, ...], old: tuple[Binding, ...]) -> bool:
    return len(new) == len(old) and _same(new, old)


def rewrite(function: FunctionExpr, *rules: Rule) -> FunctionExpr:
    """Apply `rules` to every binding, as the module docstring says; `function` itself when nothing changed.

    A replacement may have another type than what it replaces: calls that read it are then typed again, which raises
    what their type rule raises."""
    body = _Rewriter(rules).block(function.body)
    return function if body is function.body else replace(function, body=body)


def by_op(table: Mapping[str, Rule]) -> Rule:
    """The rule that picks from `table` by the name of the operator that a binding calls."""

    def rule(binding: Binding, scope: Scope) -> Expr | Atom | None:
        value = binding.value
        if not isinstance(value, Call) or isinstance(value.op, (Var, GlobalVar)):
            return None
        rewrite = table.get(value.op.name)
        return rewrite(binding, scope) if rewrite else None

    return rule


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
        result = map_operands(block.result, self.atom) if isinstance(block.result, Tuple) else self.atom(block.result)
        return Block(tuple(bindings), result)  # pyright: ignore[reportArgumentType]

    def value(self, value: Expr) -> Expr:
        if isinstance(value, FunctionExpr):
            return self.function(value)
        new = map_operands(value, self.atom)
        return with_blocks(new, tuple(map(self.block, nested_blocks(new))))
