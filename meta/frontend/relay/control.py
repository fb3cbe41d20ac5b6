"""Control flow of Relay programs: functions, conditionals, references and matches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from meta.dim import Dim
from meta.frontend.relay import ast
from meta.frontend.relay.errors import RelayError, UnsupportedError, at
from meta.frontend.relay.types import convert_type, match_types, value_type
from meta.frontend.relay.values import (
    Choice,
    Closure,
    Data,
    Frame,
    OpaqueError,
    Ref,
    Value,
    describe,
    is_tensors,
    leaves,
    number,
    rebuilt,
)
from meta.ir.builder import BlockScope, Builder
from meta.ir.expr import Atom, Binding, Block, Function, GlobalVar, If, Tuple, Var
from meta.ir.type import FunctionType, TupleType, Type
from meta.tracing import recording
from meta.tracing.symbol import Symbol

Thunk = Callable[[], Value]


class Control:
    """The part of the evaluator that is about control flow.

    builder: where the program grows.  functions: the functions of the module made so far, but "main".
    refs: all references, in the order of their creation.  speculating: how many branches are being evaluated whose
    condition is not known to hold when the program runs.
    """

    def __init__(self, program: ast.Program) -> None:
        self.program = program
        self.builder = Builder(caller_spans=False)
        self.functions: dict[str, Function] = {}
        self.refs: list[Ref] = []
        self.speculating = 0
        self._globals: dict[str, Closure] = {}
        self._recursive: frozenset[str] | None = None
        self._emitted: dict[tuple[str, tuple[Type, ...]], GlobalVar] = {}
        self._local: list[dict[tuple[Any, ...], Var]] = [{}]

    def evaluate(self, root: ast.Expr, frame: Frame) -> Value:
        raise NotImplementedError

    # --- functions ---------------------------------------------------------------------------------------------------

    def global_function(self, node: ast.GlobalVar) -> Closure:
        found = self._globals.get(node.name)
        if found is None:
            function = self.program.functions.get(node.name)
            if function is None:
                raise RelayError("relay", at(node.place, f"there is no function @{node.name}"))
            found = Closure(function, None, node.name, node.name in self.recursive)
            self._globals[node.name] = found
        return found

    @property
    def recursive(self) -> frozenset[str]:
        """The functions of the module that call themselves, also by way of others."""
        if self._recursive is None:
            self._recursive = _recursive(self.program)
        return self._recursive

    def function(self, closure: Closure, args: tuple[Value, ...], place: ast.Place) -> Value:
        """Call a function: in place, or as a function of the program where it calls itself on tensors."""
        function = closure.function
        if len(args) != len(function.params):
            wrong = f"{describe(closure)} takes {len(function.params)} arguments, {len(args)} are given"
            raise RelayError("relay", at(place, wrong))
        if closure.recursive and all(map(is_tensors, args)):
            return self.emitted(closure, args, place)
        if closure.recursive and any(isinstance(a, Closure) for a in args) and not any(map(_has_data, args)):
            return self.emitted(closure, args, place)
        frame = Frame(closure.frame)
        frame.known.update(zip(function.params, args, strict=True))
        return self.evaluate(function.body, frame)

    def emitted(self, closure: Closure, args: tuple[Value, ...], place: ast.Place) -> Value:
        """Call a function that calls itself: one function of the program for each type of arguments (and each choice of
        functions among them)."""
        if self.speculating:
            wrong = f"{describe(closure)} calls itself, in a branch that returns no tensors"
            raise UnsupportedError("relay", at(place, wrong), "branches that return tensors")
        tensors = tuple(a for a in args if is_tensors(a))
        types = tuple(map(value_type, tensors))
        result = self.result_type(closure, args, place)
        is_global = closure.frame is None and len(tensors) == len(args)
        target = self._global(closure, types, result) if is_global else self._closure(closure, args, types, result)
        flat = [self.packed(a) for a in tensors]
        made = self.builder.call_function(target, flat)
        return self.unpacked(made)

    def result_type(self, closure: Closure, args: tuple[Value, ...], place: ast.Place) -> Type:
        """The type that a recursive function says it returns, for arguments of these types."""
        bound: dict[str, Dim | Type] = {}
        for param, arg in zip(closure.function.params, args, strict=True):
            if is_tensors(arg):
                match_types(param.type, value_type(arg), bound)
        return convert_type(closure.function.result, place, f"result of {describe(closure)}", bound)

    def _global(self, closure: Closure, types: tuple[Type, ...], result: Type) -> GlobalVar:
        key = (closure.name, types)
        if key not in self._emitted:
            name, count = closure.name, 0
            while name in self.functions or name == "main":
                count += 1
                name = f"{closure.name}_{count}"
            self._emitted[key] = GlobalVar(name, FunctionType(types, result))
            self.functions[name] = Function((), Block((), Tuple(())))  # keeps the name until the body is there
            outer, self.builder = self.builder, Builder(caller_spans=False)
            local, self._local = self._local, [{}]
            try:
                with recording(self.builder):
                    self.functions[name] = self._body(closure, dict(enumerate(types)), (), name)
            finally:
                self.builder, self._local = outer, local
        return self._emitted[key]

    def _closure(self, closure: Closure, args: tuple[Value, ...], types: tuple[Type, ...], result: Type) -> Var:
        """A local function: what it and the functions among its arguments capture stays free."""
        fixed = tuple((i, a) for i, a in enumerate(args) if not is_tensors(a))
        ids = tuple((i, id(a.function), id(a.frame)) if isinstance(a, Closure) else (i, a) for i, a in fixed)
        key = (id(closure.function), id(closure.frame), types, ids)
        for known in reversed(self._local):
            if key in known:
                return known[key]
        var = Var(closure.name or "function", FunctionType(types, result))
        self._local[-1][key] = var
        positions = [i for i, a in enumerate(args) if is_tensors(a)]
        made = self._body(closure, dict(zip(positions, types, strict=True)), fixed, closure.name)
        return self.builder.bind(Binding(var, made))

    def _body(
        self, closure: Closure, types: Mapping[int, Type], fixed: tuple[tuple[int, Value], ...], name: str
    ) -> Function:
        """The function that `closure` is for parameters of these types and values, by position."""
        function = closure.function
        params = [Var(clean(function.params[i].name), kind) for i, kind in types.items()]
        frame = Frame(closure.frame)
        frame.known.update((function.params[i], value) for i, value in fixed)
        self._local.append({})
        try:
            with self.builder.function(name, params) as scope:
                for at_position, var in zip(types, params, strict=True):
                    frame.known[function.params[at_position]] = self.unpacked(var)
                value = self.forced(self.evaluate(function.body, frame), function.place)
                self.check_tensors(value, function.place, f"what {describe(closure)} returns")
                scope.ret(self.packed(value))
        finally:
            self._local.pop()
        return scope.function

    def packed(self, value: Value) -> Atom:
        """A tensor or nested tuples of them as one atom."""
        if isinstance(value, Symbol):
            return value.atom
        return self.builder.tuple([self.packed(field) for field in value])

    def unpacked(self, var: Var) -> Value:
        """The value that a variable stands for."""
        if isinstance(var.type, TupleType):
            return tuple(self.unpacked(self.builder.get_item(var, i)) for i in range(len(var.type.fields)))
        return Symbol(var)

    def check_tensors(self, value: Value, place: ast.Place, what: str) -> None:
        """Raise UnsupportedError unless a value is made of tensors."""
        try:
            leaves(value)
        except OpaqueError as error:
            wrong = at(place, f"{what} holds {describe(error.value)}")
            raise UnsupportedError("relay", wrong, "tensors and tuples of them") from None

    # --- conditionals ------------------------------------------------------------------------------------------------

    def conditional(self, node: ast.If, frame: Frame) -> Value:
        condition = self.forced(frame.get(node.condition), node.place)
        return self.select(
            condition,
            lambda: self.evaluate(node.then, Frame(frame)),
            lambda: self.evaluate(node.otherwise, Frame(frame)),
            node.place,
        )

    def select(self, condition: Value, then: Thunk, otherwise: Thunk, place: ast.Place) -> Value:
        """One of two values by a condition: decided now where it is known, as a conditional of the program where the
        values are tensors, else as a Choice."""
        if not isinstance(condition, Symbol) or condition.ndim != 0 or condition.dtype != "bool":
            raise RelayError("relay", at(place, f"the condition is {describe(condition)}"), "a bool tensor () ")
        known = number(condition)
        if known is not None:
            return then() if known else otherwise()
        before = [ref.value for ref in self.refs]
        try:
            return self._emit_if(condition, then, otherwise, before, place)
        except OpaqueError:
            self._restore(before)
        return self._choice(condition, then, otherwise, before, place)

    def _emit_if(
        self, condition: Symbol, then: Thunk, otherwise: Thunk, before: list[Value], place: ast.Place
    ) -> Value:
        """The If, whose branches also return what the references hold after them."""
        forms: list[Value] = []
        blocks: list[Block] = []
        span = self.builder.span
        for branch in (then, otherwise):
            with self._block() as scope:
                value = self.forced(branch(), place)
                held = tuple(ref.value if is_tensors(ref.value) else () for ref in self.refs[: len(before)])
                self._check_writes(before, place)
                form = (value, held)
                atoms = [leaf.atom for leaf in leaves(form)]
                scope.ret(atoms[0] if len(atoms) == 1 else atoms)
            forms.append(form)
            blocks.append(scope.block)
            self._restore(before)
        if value_type(forms[0]) != value_type(forms[1]):
            given = f"{value_type(forms[0][0])!r} and {value_type(forms[1][0])!r}"
            raise RelayError("relay", at(place, f"the branches return {given}"), "values of one type")
        count = len(leaves(forms[0]))
        if not count:
            return forms[0][0]
        made = self.builder.emit(If(condition.atom, blocks[0], blocks[1], span))
        items: Iterator[Symbol] = iter([Symbol(made)]) if count == 1 else iter(self.unpacked(made))
        value, held = rebuilt(forms[0], items)
        for i, ref in enumerate(self.refs[: len(before)]):
            if forms[0][1][i] is not before[i] or forms[1][1][i] is not before[i]:
                ref.value = held[i] if is_tensors(before[i]) else before[i]
        return value

    def _choice(self, condition: Symbol, then: Thunk, otherwise: Thunk, before: list[Value], place: ast.Place) -> Value:
        self.speculating += 1
        try:
            values = [then(), otherwise()]
        finally:
            self.speculating -= 1
        if any(ref.value is not old for ref, old in zip(self.refs, before, strict=False)):
            wrong = at(place, "a branch that returns no tensors writes to a reference")
            raise UnsupportedError("relay", wrong, "branches that return tensors")
        return Choice(condition, *values)

    @contextmanager
    def _block(self) -> Generator[BlockScope, None, None]:
        self._local.append({})
        try:
            with self.builder.block() as scope:
                yield scope
        finally:
            self._local.pop()

    def forced(self, value: Value, place: ast.Place) -> Value:
        """A value without Choices between tensors: those become conditionals. Raises OpaqueError for others."""
        if isinstance(value, Choice):
            return self.select(
                value.condition,
                lambda: self.forced(value.then, place),
                lambda: self.forced(value.otherwise, place),
                place,
            )
        if isinstance(value, tuple):
            return tuple(self.forced(field, place) for field in value)  # pyright: ignore[reportUnknownVariableType]
        return value

    # --- references --------------------------------------------------------------------------------------------------

    def new_ref(self, value: Value) -> Ref:
        made = Ref(value)
        self.refs.append(made)
        return made

    def ref(self, value: Value, place: ast.Place) -> Ref:
        if not isinstance(value, Ref):
            raise RelayError("relay", at(place, f"{describe(value)} is used as a reference"), "references")
        return value

    def write(self, ref: Ref, value: Value, place: ast.Place) -> None:
        del place
        ref.value = value

    def _restore(self, values: list[Value]) -> None:
        for ref, value in zip(self.refs, values, strict=False):
            ref.value = value

    def _check_writes(self, before: list[Value], place: ast.Place) -> None:
        for ref, old in zip(self.refs, before, strict=False):
            if ref.value is not old and not (is_tensors(old) and is_tensors(ref.value)):
                wrong = at(place, f"a branch writes {describe(ref.value)} to a reference that holds {describe(old)}")
                raise UnsupportedError("relay", wrong, "tensors in references that branches write")

    # --- data types --------------------------------------------------------------------------------------------------

    def match(self, node: ast.Match, value: Value, frame: Frame) -> Value:
        if isinstance(value, Choice):
            return self.select(
                value.condition,
                lambda: self.match(node, value.then, frame),
                lambda: self.match(node, value.otherwise, frame),
                node.place,
            )
        for pattern, body in node.clauses:
            inner = Frame(frame)
            if self.matches(pattern, value, inner, node.place):
                return self.evaluate(body, inner)
        raise UnsupportedError("relay", at(node.place, f"no clause of the match fits {describe(value)}"))

    def matches(self, pattern: ast.Pattern, value: Value, frame: Frame, place: ast.Place) -> bool:
        """Whether a value fits a pattern; binds the variables of the pattern in `frame`."""
        match pattern:
            case ast.WildcardPattern():
                return True
            case ast.VarPattern():
                frame.known[pattern.var] = value
                return True
            case ast.TuplePattern() if isinstance(value, tuple):
                fields: tuple[Value, ...] = value  # pyright: ignore[reportUnknownVariableType]
                pairs = zip(pattern.fields, fields, strict=False)
                return len(fields) == len(pattern.fields) and all(self.matches(p, v, frame, place) for p, v in pairs)
            case ast.ConstructorPattern():
                data = Data(value.name, ()) if isinstance(value, ast.ConstructorRef) else value
                if not isinstance(data, Data):
                    wrong = f"a match on {describe(value)} against the constructor {pattern.constructor}"
                    raise UnsupportedError("relay", at(place, wrong), "values whose constructor is known")
                pairs = zip(pattern.fields, data.fields, strict=False)
                return data.constructor == pattern.constructor and all(
                    self.matches(p, v, frame, place) for p, v in pairs
                )
            case _:
                return False


def _has_data(value: Value) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_data, value))  # pyright: ignore[reportUnknownArgumentType]
    return isinstance(value, (Data, Choice, Ref, ast.ConstructorRef))


def clean(name: str) -> str:
    """A name that IR text can hold."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "_" for c in name)
    return kept if kept[:1].isalpha() or kept[:1] == "_" else f"p{kept}"


def _recursive(program: ast.Program) -> frozenset[str]:
    from meta.frontend.relay.convert import nodes

    calls = {
        name: {n.name for n in nodes(function) if isinstance(n, ast.GlobalVar) and n.name in program.functions}
        for name, function in program.functions.items()
    }
    return frozenset(name for name in calls if name in _reached(calls, name))


def _reached(calls: Mapping[str, set[str]], start: str) -> set[str]:
    """The functions called from `start`, directly or not."""
    seen: set[str] = set()
    stack = list(calls[start])
    while stack:
        name = stack.pop()
        if name not in seen:
            seen.add(name)
            stack.extend(calls[name])
    return seen
