"""Evaluation of Relay programs on symbols, which emits meta IR.

Operators on tensors are emitted to the program being built. Everything else in Relay (local bindings, tuples, closures,
functions passed to functions, references, data types, matches) is evaluated during conversion and leaves no trace:
calls are inlined, matches on known constructors are decided. Conditionals on tensors (`branches`) and functions that
call themselves (`functions`) remain.
"""

from __future__ import annotations

from typing import Any

from meta.errors import MetaError, NotSupportedError
from meta.frontend.relay import ast
from meta.frontend.relay.convert.branches import Branches
from meta.frontend.relay.convert.call import OpCall, constant, converters
from meta.frontend.relay.convert.emission import Emission
from meta.frontend.relay.convert.functions import Functions
from meta.frontend.relay.convert.traversal import mentions, operands
from meta.frontend.relay.convert.type_mapping import constant_value
from meta.frontend.relay.convert.values import (
    UNCONVERTED,
    Data,
    Frame,
    ReferenceCell,
    RelayClosure,
    Value,
    ValueChoice,
    describe,
)
from meta.frontend.relay.errors import RelayError, UnsupportedError, located
from meta.ir.expr import Span
from meta.limits import MAX_EVALUATED
from meta.tree import is_tuple

MAX_DEPTH = 80
"""Nesting of calls, branches, let-bound values and tuples during conversion."""
MAX_LEAVES = 100_000
"""Values in one tuple, counted as often as it reaches them."""

# What converters raise for operands that an operator never takes in Relay: a tuple for a number, a list that is too
# short, an axis of a scalar. Programs may come from anywhere.
_MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class ExpressionEvaluator:
    """Evaluates the expressions of one program.

    source: the name of the program, which spans of emitted calls carry.  emission: the program being built.
    unsupported: the errors of calls that cannot be converted; the evaluation goes on without their values.
    place: of the expression that is evaluated.
    """

    def __init__(self, program: ast.RelayProgram, source: str) -> None:
        self.source = source
        self.place = ast.NOWHERE
        self.emission = Emission()
        self.branches = Branches(self.emission)
        self.functions = Functions(program, self.emission, self.branches, self.evaluate)
        self.unsupported: dict[str, UnsupportedError] = {}
        self.steps = 0
        self.depth = 0
        self.spans: dict[int, Span] = {}
        # By id, tuples with the number of values they reach and their depth; holding the tuple keeps its id valid.
        self.tuples: dict[int, tuple[Value, int, int]] = {}
        self.shapes: dict[Any, tuple[Any, ...]] = {}

    def evaluate(self, root: ast.Expr, frame: Frame) -> Value:
        """The value of an expression. Raises RelayError with the place of what cannot be converted."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnsupportedError(
                "relay",
                located(root.place, f"calls and branches nest deeper than {MAX_DEPTH} during conversion"),
                "recursion on tensors only, or recursion that known data ends",
            )
        try:
            while isinstance(root, ast.Let):
                self.bind(root, frame)
                root = root.body
            return self.straight(root, frame)
        finally:
            self.depth -= 1

    def straight(self, root: ast.Expr, frame: Frame) -> Value:
        """Evaluate operands first, in order, on an explicit stack: networks are deeper than Python's."""
        stack: list[ast.Expr] = [root]
        while stack:
            node = stack[-1]
            if frame.has(node):
                stack.pop()
                continue
            pending = [child for child in operands(node) if not frame.has(child)]
            if pending:
                stack.extend(reversed(pending))
                continue
            stack.pop()
            frame.values[node] = self.step(node, frame)
        return frame.get(root)

    def bind(self, node: ast.Let, frame: Frame) -> None:
        value = self.evaluate(node.value, frame)
        if isinstance(value, RelayClosure) and value.function is node.value and mentions(value.function, node.var):
            value = RelayClosure(value.function, value.frame, node.var.name, recursive=True)
        frame.values[node.var] = value

    def step(self, node: ast.Expr, frame: Frame) -> Value:
        """Evaluate a node whose operands have values."""
        self.steps += 1
        self.place = node.place
        if self.steps > MAX_EVALUATED:
            problem = f"the program has more than {MAX_EVALUATED} expressions once its functions are inlined"
            raise UnsupportedError("relay", located(node.place, problem))
        if self.unsupported and any(frame.get(child) is UNCONVERTED for child in operands(node)):
            return UNCONVERTED
        match node:
            case ast.Call():
                return self.call(node, frame)
            case ast.TupleGetItem():
                return self.item(frame.get(node.value), node.index, node.place)
            case ast.Tuple():
                return self.joined(tuple(frame.get(field) for field in node.fields), node.place)
            case ast.Constant():
                return constant(constant_value(node))
            case ast.RelayFunction():
                return RelayClosure(node, frame)
            case ast.GlobalVar():
                return self.functions.named(node)
            case ast.OpRef() | ast.ConstructorRef():
                return node
            case ast.Let():
                return self.evaluate(node, frame)
            case ast.If():
                return self.conditional(node, frame)
            case ast.Match():
                return self.match(node, frame.get(node.value), frame)
            case ast.RefCreate():
                self.emission.references.append(ReferenceCell(frame.get(node.value)))
                return self.emission.references[-1]
            case ast.RefRead():
                return _reference(frame.get(node.ref), node.place).value
            case ast.RefWrite():
                _reference(frame.get(node.ref), node.place).value = frame.get(node.value)
                return ()
            case ast.Var():
                raise RelayError("relay", located(node.place, f"the variable %{node.name} has no value here"))

    def joined(self, fields: tuple[Value, ...], place: ast.Place) -> Value:
        """A tuple. Tuples share fields, so the number of values that one reaches grows exponentially with depth."""
        leaves = depth = 1
        for field in fields:
            _, below, levels = self.tuples.get(id(field), (field, 1, 0))
            leaves += below
            depth = max(depth, levels + 1)
        if leaves > MAX_LEAVES or depth > MAX_DEPTH:
            problem = f"a tuple of {leaves} values, nested {depth} deep"
            raise UnsupportedError("relay", located(place, problem), f"at most {MAX_LEAVES} and {MAX_DEPTH}")
        self.tuples[id(fields)] = fields, leaves, depth
        return fields

    def item(self, value: Value, index: int, place: ast.Place) -> Value:
        """Field `index` of a tuple."""
        if isinstance(value, ValueChoice):
            return self.branches.distribute(value, lambda each: self.item(each, index, place), place)
        if not is_tuple(value) or not 0 <= index < len(value):
            raise RelayError("relay", located(place, f"field {index} of {describe(value)}"), "a field of a tuple")
        return value[index]

    # --- branches ----------------------------------------------------------------------------------------------------

    def conditional(self, node: ast.If, frame: Frame) -> Value:
        condition = self.branches.forced(frame.get(node.condition), node.place)
        return self.branches.select(
            condition,
            lambda: self.evaluate(node.then, Frame(frame)),
            lambda: self.evaluate(node.otherwise, Frame(frame)),
            node.place,
        )

    def match(self, node: ast.Match, value: Value, frame: Frame) -> Value:
        if isinstance(value, ValueChoice):
            return self.branches.distribute(value, lambda each: self.match(node, each, frame), node.place)
        for pattern, body in node.clauses:
            inner = Frame(frame)
            if matches(pattern, value, inner.values, node.place):
                return self.evaluate(body, inner)
        raise UnsupportedError("relay", located(node.place, f"no clause of the match fits {describe(value)}"))

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, frame: Frame) -> Value:
        args = tuple(frame.get(arg) for arg in node.args)
        if isinstance(node.callee, ast.OpRef):
            return self.operator(node.callee.name, args, node.attrs, node.place)
        return self.apply(frame.get(node.callee), args, node.place)

    def apply(self, callee: Value, args: tuple[Value, ...], place: ast.Place) -> Value:
        """Call a closure, a constructor or an operator value."""
        match callee:
            case RelayClosure():
                return self.functions.call(callee, args, place)
            case ast.OpRef():
                return self.operator(callee.name, args, {}, place)
            case ast.ConstructorRef():
                return Data(callee.name, args)
            case Data() if not args and not callee.fields:
                return callee
            case ValueChoice():
                return self.branches.distribute(callee, lambda each: self.apply(each, args, place), place)
            case _:
                raise RelayError("relay", located(place, f"{describe(callee)} is called"), "a function")

    def operator(self, name: str, args: tuple[Value, ...], attrs: ast.Attributes, place: ast.Place) -> Value:
        """Emit a call of a Relay operator. One that is not supported is listed in `unsupported`."""
        try:
            return self._emitted(name, args, attrs, place)
        except UnsupportedError as error:
            self.unsupported.setdefault(error.problem, error)
            return UNCONVERTED

    def _emitted(self, name: str, args: tuple[Value, ...], attrs: ast.Attributes, place: ast.Place) -> Value:
        convert = converters.find(name)
        if convert is None:
            problem = located(place, f"the operator {name} is not supported")
            raise UnsupportedError("relay", problem, operators={name: 1})
        builder = self.emission.builder
        builder.span = self.span(place)
        values = tuple(self.branches.forced(arg, place) for arg in args)
        call = OpCall(name, values, attrs, place, builder, self.shapes)
        call.take_options()
        try:
            result = convert(call)
            call.check_all_read()
        except RelayError:
            raise
        except MetaError as error:
            kind = UnsupportedError if isinstance(error, NotSupportedError) else RelayError
            raise kind(
                "relay",
                located(place, f"{_subject(name, error)}: {error.problem}"),
                error.expected,
                remedy=error.remedy,
            ) from error
        except _MISFITS as error:
            problem = f"{name}: its arguments and attributes do not fit together ({type(error).__name__}: {error})"
            raise RelayError("relay", located(place, problem), "operands that Relay accepts") from error
        return result

    def span(self, place: ast.Place) -> Span | None:
        """The line of the program, which emitted calls carry."""
        if not place.line:
            return None
        if place.line not in self.spans:
            self.spans[place.line] = Span(self.source, place.line)
        return self.spans[place.line]


def _subject(name: str, error: MetaError) -> str:
    """A Relay operator, and the operator of meta that raised an error about its operands."""
    return name if error.subject in ("", name) else f"{name}: [{error.subject}]"


def _reference(value: Value, place: ast.Place) -> ReferenceCell:
    if not isinstance(value, ReferenceCell):
        raise RelayError("relay", located(place, f"{describe(value)} is used as a reference"), "a reference")
    return value


def matches(pattern: ast.Pattern, value: Value, bound: dict[ast.Expr, Value], place: ast.Place) -> bool:
    """Whether a value fits a pattern; adds the variables of the pattern to `bound`."""
    match pattern:
        case ast.WildcardPattern():
            return True
        case ast.VarPattern():
            bound[pattern.var] = value
            return True
        case ast.TuplePattern() if is_tuple(value):
            return len(value) == len(pattern.fields) and _all_match(pattern.fields, value, bound, place)
        case ast.ConstructorPattern():
            data = Data(value.name, ()) if isinstance(value, ast.ConstructorRef) else value
            if not isinstance(data, Data):
                problem = f"a match on {describe(value)} against the constructor {pattern.constructor}"
                raise UnsupportedError("relay", located(place, problem), "a value whose constructor is known")
            same = data.constructor == pattern.constructor
            return same and _all_match(pattern.fields, data.fields, bound, place)
        case _:
            return False


def _all_match(
    patterns: tuple[ast.Pattern, ...], values: tuple[Value, ...], bound: dict[ast.Expr, Value], place: ast.Place
) -> bool:
    return all(matches(p, v, bound, place) for p, v in zip(patterns, values, strict=False))
