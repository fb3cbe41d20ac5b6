"""`Module`: a program, functions by name. `Builder`: write IR binding by binding.

    builder = Builder()
    with builder.function("main", [("x", tensor_type((2, 3)))]) as scope:
        y = builder.call(softmax, (scope.params[0], -1))
        scope.ret(y)
    module = Module({"main": scope.function})

Types are inferred as values are emitted, and each binding remembers the line of user code that caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, TypeVar

from meta.errors import IRError, did_you_mean
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
    OpLike,
    Span,
    Tuple,
    TupleGetItem,
    Var,
    arg_types,
    user_span,
)
from meta.ir.printer import to_text
from meta.ir.type import FunctionType, Type
from meta.limits import MAX_DEPTH
from meta.records import record

Result = Atom | Tuple | Sequence[Atom]


def _no_functions() -> dict[str, FunctionExpr]:
    return {}


@record(eq=False)
class Module:
    """Functions by name. Immutable: `with_function` gives a new one. verified: whether `verify` has accepted it.
    contents: the result of `analysis.contents`, once it has been asked for."""

    functions: Mapping[str, FunctionExpr] = field(default_factory=_no_functions)
    verified: bool = field(default=False, init=False, repr=False)
    contents: Any = field(default=None, init=False, repr=False)

    def __getitem__(self, name: str) -> FunctionExpr:
        """The function called `name`; raises IRError when there is none."""
        function = self.functions.get(name)
        if function is None:
            names = ", ".join(self.functions) or "none"
            hint = did_you_mean(name, self.functions)
            raise IRError("module", f"there is no function '{name}'", f"one of {names}", hint)
        return function

    def __contains__(self, name: str) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    @property
    def main(self) -> FunctionExpr:
        """The entry function; raises IRError when there is no "main"."""
        return self["main"]

    def with_function(self, name: str, function: FunctionExpr) -> Module:
        """This module with `function` added or replaced; the order of the others stays."""
        return Module({**self.functions, name: function})

    def without(self, *names: str) -> Module:
        """This module without the functions called `names`."""
        return Module({name: f for name, f in self.functions.items() if name not in names})

    def __str__(self) -> str:
        return to_text(self, data=False)


class BlockScope:
    """A block being built; `block` is there once its `with` statement has ended."""

    __slots__ = ("_result", "block")

    def __init__(self) -> None:
        self._result: Atom | Tuple | None = None
        self.block: Block

    def ret(self, result: Result) -> None:
        """Set the result of the block, an atom or several; the last call counts."""
        self._result = result if isinstance(result, (*ATOMS, Tuple)) else Tuple(tuple(result))

    def close(self, bindings: Iterable[Binding]) -> None:
        if self._result is None:
            raise IRError("builder", "a block ended without a result", remedy="call ret(...) inside its scope")
        self.block = Block(tuple(bindings), self._result)


class FunctionScope(BlockScope):
    """A function being built; `function` is there once its `with` statement has ended."""

    __slots__ = ("attrs", "name", "params", "span")

    def __init__(self, name: str, params: tuple[Var, ...], attrs: Mapping[str, Any], span: Span | None) -> None:
        super().__init__()
        self.name = name
        self.params = params
        self.attrs = attrs
        self.span = span

    @property
    def function(self) -> FunctionExpr:
        return FunctionExpr(self.params, self.block, self.attrs, self.name, self.span)


_Scope = TypeVar("_Scope", bound=BlockScope)


class Builder:
    """A stack of open blocks; what is emitted goes to the innermost.

    span: the span of everything emitted, in place of the line of the caller.  caller_spans: whether, without `span`,
    the line of the caller is looked up; passes turn it off, because their lines are not the user's.
    """

    __slots__ = ("_blocks", "_caller_spans", "_definitions", "span")

    def __init__(self, span: Span | None = None, caller_spans: bool = True) -> None:
        self._caller_spans = caller_spans
        self._blocks: list[list[Binding]] = [[]]
        self._definitions: dict[Var, Expr] = {}
        self.span = span

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The bindings of the innermost open block so far."""
        return tuple(self._blocks[-1])

    def definition(self, atom: Any) -> Expr | None:
        """The value that this builder bound to a variable in scope; None for parameters, constants, attribute values
        and variables of blocks that have ended."""
        return self._definitions.get(atom) if isinstance(atom, Var) else None

    def bind(self, binding: Binding) -> Var:
        """Append a binding as it is."""
        self._blocks[-1].append(binding)
        self._definitions[binding.var] = binding.value
        return binding.var

    def emit(self, value: Expr, name: str | None = None) -> Var:
        """Bind `value` to a new variable."""
        return self.bind(Binding(Var(name or "", value.type, value.span), value))

    def call(
        self,
        op: OpLike | Var | GlobalVar,
        args: Iterable[Any],
        name: str | None = None,
        dialect: str | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Var:
        """Call an operator on arguments in schema order (see `Call`), or a function on atoms; raises what the type rule
        raises, or IRError for atoms of other types than the function's parameters."""
        return self.emit(self.call_expr(op, args, dialect, attrs), name)

    def call_expr(
        self,
        op: OpLike | Var | GlobalVar,
        args: Iterable[Any],
        dialect: str | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Call:
        """The expression that `call` binds."""
        values = tuple(args)
        kind = applied_type(op, values) if isinstance(op, (Var, GlobalVar)) else op.infer(arg_types(values))
        return Call(op, values, kind, self.next_span(), dict(attrs or {}), dialect)

    def call_function(self, function: Var | GlobalVar, args: Iterable[Atom], name: str | None = None) -> Var:
        """Call a function value on atoms; raises IRError when their types do not match its parameters."""
        return self.call(function, args, name)

    def tuple(self, fields: Iterable[Atom], name: str | None = None) -> Var:
        """Bind a tuple of atoms."""
        return self.emit(Tuple(tuple(fields), self.next_span()), name)

    def get_item(self, value: Atom, index: int, name: str | None = None) -> Var:
        """Bind field `index` of a tuple."""
        return self.emit(TupleGetItem(value, index, self.next_span()), name)

    def if_(self, cond: Atom, then: Callable[[], Result], orelse: Callable[[], Result], name: str | None = None) -> Var:
        """Bind a conditional. `then` and `orelse` are called once each and emit their block by this builder."""
        span = self.next_span()
        blocks: list[Block] = []
        for branch in (then, orelse):
            with self.block() as scope:
                scope.ret(branch())
            blocks.append(scope.block)
        if blocks[0].type != blocks[1].type:
            raise IRError(
                "if",
                f"the branches return {blocks[0].type!r} and {blocks[1].type!r}",
                "one type for both",
                "cast or reshape one of them",
            )
        return self.emit(If(cond, blocks[0], blocks[1], span), name)

    @contextmanager
    def block(self) -> Generator[BlockScope, None, None]:
        """A nested block: what is emitted inside goes there."""
        with self._scope(BlockScope()) as scope:
            yield scope

    @contextmanager
    def function(
        self,
        name: str = "",
        params: Iterable[Var | tuple[str, Type]] = (),
        attrs: Mapping[str, Any] | None = None,
    ) -> Generator[FunctionScope, None, None]:
        """The body of a function; afterwards take it from the scope's `function` (and `emit` it for a closure)."""
        span = self.next_span()
        variables = tuple(p if isinstance(p, Var) else Var(p[0], p[1], span) for p in params)
        with self._scope(FunctionScope(name, variables, dict(attrs or {}), span)) as scope:
            yield scope

    @contextmanager
    def _scope(self, scope: _Scope) -> Generator[_Scope, None, None]:
        if len(self._blocks) > MAX_DEPTH:
            raise IRError("builder", f"blocks nest deeper than {MAX_DEPTH}", remedy="move code into functions")
        depth = len(self._blocks)
        self._blocks.append([])
        try:
            yield scope
            scope.close(self._blocks[-1])
        finally:
            for block in self._blocks[depth:]:
                for binding in block:
                    self._definitions.pop(binding.var, None)
            del self._blocks[depth:]

    def next_span(self) -> Span | None:
        """The span of what is emitted next."""
        return self.span or (user_span() if self._caller_spans else None)


def applied_type(function: Atom, args: Sequence[Atom]) -> Type:
    """The type of `function(*args)`; raises IRError for a value that is not a function or takes other types."""
    kind = function.type
    if not isinstance(kind, FunctionType):
        raise IRError("call", f"a value of type {kind!r} is called", "a function")
    types = tuple(a.type for a in args)
    if types != kind.params:
        raise IRError(
            "call",
            f"arguments of types {list(types)!r} do not fit {kind!r}",
            f"{len(kind.params)} arguments of exactly these types",
        )
    return kind.result
