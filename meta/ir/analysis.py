"""Facts about IR: last uses of variables, the call graph, the operators and devices of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from meta.dim import names
from meta.ir.builder import Module
from meta.ir.expr import Atom, Block, Call, Expr, FunctionExpr, GlobalVar, If, Tuple, TupleGetItem, Var
from meta.ir.type import TensorType, Type, flat_types
from meta.ir.visitor import called_globals, free_vars, nested_blocks, reads, walk
from meta.records import record


def vars_read(value: Expr | Atom) -> frozenset[Var]:
    """The variables from outside that a value reads, also in nested blocks."""
    return frozenset(free_vars(value) if isinstance(value, (If, FunctionExpr)) else _vars(reads(value)))


def _vars(atoms: Iterator[Atom]) -> Iterator[Var]:
    return (atom for atom in atoms if isinstance(atom, Var))


def last_uses(node: FunctionExpr | Block) -> dict[Var, int]:
    """For each variable that the block reads, the index of the last of its bindings to do so; the number of bindings
    for those that the result reads."""
    block = node.body if isinstance(node, FunctionExpr) else node
    out: dict[Var, int] = {}
    for i, binding in enumerate(block.bindings):
        out.update(dict.fromkeys(vars_read(binding.value), i))
    out.update(dict.fromkeys(_vars(iter(block.results)), len(block.bindings)))
    return out


def dying(node: FunctionExpr | Block) -> tuple[tuple[Var, ...], ...]:
    """For each binding of the block, the variables bound in the block that are not read after it."""
    block = node.body if isinstance(node, FunctionExpr) else node
    last = last_uses(block)
    out: list[list[Var]] = [[] for _ in range(len(block.bindings) + 1)]
    for i, binding in enumerate(block.bindings):
        out[last.get(binding.var, i)].append(binding.var)
    return tuple(map(tuple, out[:-1]))


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


def op_counts(node: FunctionExpr | Block) -> dict[str, int]:
    """How often each operator is called, by name, at every depth; sorted by name."""
    out: dict[str, int] = {}
    for binding in walk(node):
        if isinstance(binding.value, Call) and binding.value.callee is None:
            out[binding.value.op_name] = out.get(binding.value.op_name, 0) + 1
    return dict(sorted(out.items()))


@record
class Contents:
    """What a module has, for passes that have nothing to do without it.

    operators: the names of the operators that it calls; the namespace of those that have one; "" for calls of
        functions, "fn" for closures, "if" for conditionals.
    devices: the kinds of the devices of its tensors."""

    operators: frozenset[str]
    devices: frozenset[str]

    def has(self, *names: str) -> bool:
        """Whether one of `names` is among the operators."""
        return not self.operators.isdisjoint(names)


def contents(module: Module) -> Contents:
    """The contents of a module, which are computed once."""
    found: Contents | None = module.contents
    if found is None:
        bindings = [b for function in module.functions.values() for b in walk(function)]
        calls = [b.value for b in bindings if isinstance(b.value, Call)]
        names = {"" if isinstance(c.op, (Var, GlobalVar)) else c.op.name.partition("::")[0] for c in calls}
        names |= {"fn" if isinstance(b.value, FunctionExpr) else "if" for b in bindings if nested_blocks(b.value)}
        params = (p for function in module.functions.values() for p in function.params)
        kinds = {v.type for v in (*params, *(b.var for b in bindings))}
        devices = {t.device.kind for t in flat_types(kinds)}
        found = Contents(frozenset(names), frozenset(devices))
        object.__setattr__(module, "contents", found)
    return found


def recursive_functions(calls: Mapping[str, Set[str]]) -> set[str]:
    """The functions on cycles of a call graph, and those on paths between cycles."""
    callers: dict[str, set[str]] = {name: set() for name in calls}
    for name, called in calls.items():
        for each in called:
            callers[each].add(name)
    return _trimmed(_trimmed(set(calls), calls, callers), callers, calls)


def _trimmed(names: set[str], after: Mapping[str, Set[str]], before: Mapping[str, Set[str]]) -> set[str]:
    """`names` without those from which every path along `after` ends."""
    left = {name: len(after[name] & names) for name in names}
    pending = [name for name, count in left.items() if not count]
    while pending:
        name = pending.pop()
        del left[name]
        for each in before[name]:
            if each in left:
                left[each] -= 1
                pending += [each] if not left[each] else []
    return set(left)


def callees_first(calls: Mapping[str, Set[str]]) -> list[str]:
    """The names of the functions of a call graph, each after those that it calls; recursive ones in any order."""
    order: dict[str, None] = {}
    opened: set[str] = set()
    stack = list(reversed(tuple(calls)))
    while stack:
        name = stack[-1]
        if name in opened:
            order.setdefault(stack.pop())
            continue
        opened.add(name)
        stack += sorted(n for n in calls[name] if n not in opened)
    return list(order)


def is_open(call: Call) -> bool:
    """Whether values decide the shape of the call's result."""
    is_resolved = getattr(call.op, "resolve", None) is not None
    return is_resolved and not all(t.is_static for t in flat_types((call.type,)))


def open_sizes(body: Block | FunctionExpr) -> frozenset[str]:
    """The names of sizes that open calls define."""
    calls = (b.value for b in walk(body) if isinstance(b.value, Call) and is_open(b.value))
    return frozenset(name for call in calls for t in flat_types((call.type,)) for name in size_names(t))


def size_names(kind: Type) -> frozenset[str]:
    """The names that the sizes of a tensor are computed from."""
    return frozenset[str]().union(*map(names, kind.shape)) if isinstance(kind, TensorType) else frozenset()


# --- the memory of results: parameters, or tensors that operators compute --------------------------------------------

Sources = frozenset[Any]
"""The memory that a tensor may share: the positions of parameters, and variables and constants in place of those."""


def result_sources(function: FunctionExpr, *, certain: bool = False) -> tuple[Sources, ...]:
    """For each result, the tensors whose memory it may be: a view shares the memory of its operand, the result of a
    conditional the memory of either branch's result. A call of a function counts as new memory, and so does a result
    that is a tuple.

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
