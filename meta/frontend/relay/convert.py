"""Relay programs -> meta IR, by running them on symbols.

Operators on tensors are emitted to the program being built. All else that Relay has - local bindings, tuples, closures,
functions passed to functions, references, data types and matches on them - is known at conversion and is gone
afterwards: calls are inlined, and matches on known constructors decided. What remains are conditionals on tensors and
functions that call themselves (see `control`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meta.errors import MetaError, NotSupportedError
from meta.frontend.relay import ast
from meta.frontend.relay.call import OpCall, constant
from meta.frontend.relay.control import Control
from meta.frontend.relay.errors import RelayError, UnsupportedError, at
from meta.frontend.relay.table import find
from meta.frontend.relay.types import constant_value
from meta.frontend.relay.values import Choice, Closure, Data, Frame, Value, describe
from meta.ir.span import Span

MAX_STEPS = 250_000
"""Expressions evaluated, each as often as calls of functions repeat it, before a program counts as too large."""
MAX_DEPTH = 80
"""Nesting of calls, branches, let-bound values and tuples while converting."""
MAX_LEAVES = 100_000
"""Values in one tuple, counted as often as it reaches them."""

# What a converter runs into when a program, which may come from anywhere, gives an operator what it never takes:
# a tuple for a number, a list that is too short, an axis of a scalar.
_MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Evaluator(Control):
    """Evaluates expressions of one program; what they compute goes to `builder`."""

    def __init__(self, program: ast.Program, source: str) -> None:
        super().__init__(program)
        self.source = source
        self.steps = 0
        self.depth = 0
        self.spans: dict[int, Span] = {}
        # Tuples made so far by identity, kept alive for it: how many values each stands for, and how deep.
        self.tuples: dict[int, tuple[Value, int, int]] = {}
        self.shapes: dict[Any, tuple[Any, ...]] = {}

    def evaluate(self, root: ast.Expr, frame: Frame) -> Value:
        """The value of an expression. Raises RelayError with the place of what cannot be converted."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnsupportedError(
                "relay",
                at(root.place, f"calls and branches nest deeper than {MAX_DEPTH} while converting"),
                "functions that call themselves with tensors alone, or end on known data",
            )
        try:
            while isinstance(root, ast.Let):
                self.bind(root, frame)
                root = root.body
            return self.straight(root, frame)
        finally:
            self.depth -= 1

    def straight(self, root: ast.Expr, frame: Frame) -> Value:
        """Evaluate operands first, in order, on a stack of its own: networks are deeper than Python's stack."""
        stack: list[ast.Expr] = [root]
        while stack:
            node = stack[-1]
            if frame.has(node):
                stack.pop()
                continue
            pending = [child for child in _operands(node) if not frame.has(child)]
            if pending:
                stack.extend(reversed(pending))
                continue
            stack.pop()
            frame.known[node] = self.step(node, frame)
        return frame.get(root)

    def bind(self, node: ast.Let, frame: Frame) -> None:
        value = self.evaluate(node.value, frame)
        if isinstance(value, Closure) and value.function is node.value and mentions(value.function, node.var):
            value = Closure(value.function, value.frame, node.var.name, recursive=True)
        frame.known[node.var] = value

    def step(self, node: ast.Expr, frame: Frame) -> Value:
        """Evaluate a node whose operands are known."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            wrong = f"the program has more than {MAX_STEPS} expressions once its functions are inlined"
            raise UnsupportedError("relay", at(node.place, wrong))
        match node:
            case ast.Call():
                return self.call(node, frame)
            case ast.TupleGetItem():
                return self.item(frame.get(node.value), node.index, node.place)
            case ast.Tuple():
                return self.joined(tuple(frame.get(field) for field in node.fields), node.place)
            case ast.Constant():
                return constant(constant_value(node))
            case ast.Function():
                return Closure(node, frame)
            case ast.GlobalVar():
                return self.global_function(node)
            case ast.OpRef() | ast.ConstructorRef():
                return node
            case ast.Let():
                return self.evaluate(node, frame)
            case ast.If():
                return self.conditional(node, frame)
            case ast.Match():
                return self.match(node, frame.get(node.value), frame)
            case ast.RefCreate():
                return self.new_ref(frame.get(node.value))
            case ast.RefRead():
                return self.ref(frame.get(node.ref), node.place).value
            case ast.RefWrite():
                self.write(self.ref(frame.get(node.ref), node.place), frame.get(node.value), node.place)
                return ()
            case ast.Var():
                raise RelayError("relay", at(node.place, f"the variable %{node.name} has no value here"))

    def joined(self, fields: tuple[Value, ...], place: ast.Place) -> Value:
        """A tuple, which may share its fields: what it stands for grows exponentially with its depth."""
        leaves = depth = 1
        for field in fields:
            _, below, levels = self.tuples.get(id(field), (field, 1, 0))
            leaves += below
            depth = max(depth, levels + 1)
        if leaves > MAX_LEAVES or depth > MAX_DEPTH:
            wrong = f"a tuple of {leaves} values, nested {depth} deep"
            raise UnsupportedError("relay", at(place, wrong), f"at most {MAX_LEAVES} and {MAX_DEPTH}")
        self.tuples[id(fields)] = fields, leaves, depth
        return fields

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, frame: Frame) -> Value:
        args = tuple(frame.get(arg) for arg in node.args)
        if isinstance(node.callee, ast.OpRef):
            return self.operator(node.callee.name, args, node.attrs, node.place)
        return self.apply(frame.get(node.callee), args, node.place)

    def apply(self, callee: Value, args: tuple[Value, ...], place: ast.Place) -> Value:
        """Call whatever is called that is no operator by name."""
        match callee:
            case Closure():
                return self.function(callee, args, place)
            case ast.OpRef():
                return self.operator(callee.name, args, {}, place)
            case ast.ConstructorRef():
                return Data(callee.name, args)
            case Data() if not args and not callee.fields:
                return callee
            case Choice():
                return self.select(
                    callee.condition,
                    lambda: self.apply(callee.then, args, place),
                    lambda: self.apply(callee.otherwise, args, place),
                    place,
                )
            case _:
                raise RelayError("relay", at(place, f"{describe(callee)} is called"), "functions")

    def operator(self, name: str, args: tuple[Value, ...], attrs: ast.Attributes, place: ast.Place) -> Value:
        """Emit a call of a Relay operator."""
        convert = find(name)
        if convert is None:
            raise UnsupportedError("relay", at(place, f"the operator {name} is not supported"), operators={name: 1})
        self.builder.span = self.span(place)
        values = tuple(self.forced(arg, place) for arg in args)
        call = OpCall(name, values, attrs, place, self.builder, self.shapes)
        try:
            result = convert(call)
            call.check_all_read()
        except RelayError:
            raise
        except MetaError as error:
            kind = UnsupportedError if isinstance(error, NotSupportedError) else RelayError
            raise kind("relay", at(place, f"{name}: {error.summary}")) from error
        except _MISFITS as error:
            wrong = f"{name}: its arguments and attributes do not fit together ({type(error).__name__}: {error})"
            raise RelayError("relay", at(place, wrong), "what the operator takes in Relay") from error
        return result

    def span(self, place: ast.Place) -> Span | None:
        """The line of the program as the place that emitted calls come from."""
        if not place.line:
            return None
        found = self.spans.get(place.line)
        if found is None:
            found = self.spans[place.line] = Span(self.source, place.line)
        return found

    def item(self, value: Value, index: int, place: ast.Place) -> Value:
        if isinstance(value, Choice):
            return self.select(
                value.condition,
                lambda: self.item(value.then, index, place),
                lambda: self.item(value.otherwise, index, place),
                place,
            )
        if not isinstance(value, tuple) or not 0 <= index < len(value):  # pyright: ignore[reportUnknownArgumentType]
            raise RelayError("relay", at(place, f"field {index} of {describe(value)}"), "fields of a tuple")
        return value[index]  # pyright: ignore[reportUnknownVariableType]


def mentions(root: ast.Function, var: ast.Var) -> bool:
    """Whether a function reads `var`."""
    return any(node is var for node in nodes(root))


def nodes(root: ast.Expr) -> Iterator[ast.Expr]:
    """Every expression that `root` is made of, each once."""
    seen: set[ast.Expr] = set()
    stack: list[ast.Expr] = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        stack.extend(reversed(children(node)))


def children(node: ast.Expr) -> tuple[ast.Expr, ...]:
    """The expressions directly inside a node, those not evaluated with it too."""
    match node:
        case ast.Let():
            return (node.value, node.body)
        case ast.If():
            return (node.condition, node.then, node.otherwise)
        case ast.Function():
            return (node.body,)
        case ast.Match():
            return (node.value, *(body for _, body in node.clauses))
        case ast.Call():
            return (node.callee, *node.args)
        case _:
            return _operands(node)


def _operands(node: ast.Expr) -> tuple[ast.Expr, ...]:
    """The expressions whose values a node needs before it is evaluated itself."""
    match node:
        case ast.Call():
            return node.args if isinstance(node.callee, ast.OpRef) else (node.callee, *node.args)
        case ast.Tuple():
            return node.fields
        case ast.TupleGetItem():
            return (node.value,)
        case ast.If():
            return (node.condition,)
        case ast.Match():
            return (node.value,)
        case ast.RefCreate():
            return (node.value,)
        case ast.RefRead():
            return (node.ref,)
        case ast.RefWrite():
            return (node.ref, node.value)
        case _:
            return ()
