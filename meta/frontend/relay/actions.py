"""What each rule of the grammar makes: lark calls these methods bottom-up, in the order of the text, while it parses.

Nothing here recurses, so that the depth of a program is no matter of Python's stack.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from meta.errors import did_you_mean
from meta.frontend.relay import ast, literal
from meta.frontend.relay.actions_values import Metadata, Pair, Token, ValueActions
from meta.frontend.relay.actions_values import place as _place
from meta.frontend.relay.limits import MAX_NESTING
from meta.frontend.relay.scope import Scope

_MAX_NAME = 4096
_MOST_SUGGESTED = 500
_LONGEST_SUGGESTED = 64
_INDICES = re.compile(r"(?:\.\d+){1,64}\Z")
_UNKNOWN = ast.UnknownType()
# Precedence and Relay's name of what the infix operators stand for.
_OPERATORS = {
    "*": (12, "multiply"),
    "/": (12, "divide"),
    "+": (10, "add"),
    "-": (10, "subtract"),
    "<": (8, "less"),
    ">": (8, "greater"),
    "<=": (8, "less_equal"),
    ">=": (8, "greater_equal"),
    "==": (7, "equal"),
    "!=": (7, "not_equal"),
}


class Signature(NamedTuple):
    type_params: tuple[str, ...]
    params: tuple[ast.Var, ...]
    attrs: dict[str, Any]
    result: ast.Type


class Spread(NamedTuple):
    """The attributes of a call as one argument, `meta[relay.attrs.ReduceAttrs][0]`."""

    attrs: Mapping[str, Any]
    place: ast.Place


class Bindings(NamedTuple):
    """`let` variables with their values, and the place of each."""

    var: ast.Var
    value: ast.Expr
    place: ast.Place


class Actions(ValueActions):
    """The state of one parse. The methods are named after the rules; `children` are the results of a rule's parts."""

    def __init__(self, metadata: Metadata) -> None:
        super().__init__(metadata)
        self.scope = Scope()
        self.functions: dict[str, ast.Function] = {}
        self.definitions: dict[str, ast.TypeDefinition] = {}
        self.arities: dict[str, int] = {}
        self.free: list[ast.Var] = []
        # Attributes seen as an argument that no call has taken yet; they are no expression anywhere else.
        self.loose: list[Token] = []

    def deeper(self, token: Token) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.fail(token, f"nested {self.depth} deep", f"at most {MAX_NESTING}")

    # --- modules ---

    def start(self, children: list[Any]) -> ast.Program:
        self._version(children[0])
        return self._program()

    def expression(self, children: list[Any]) -> ast.Program:
        """A text that is one expression: the function itself, or the body of one over its free variables."""
        version, body = children
        self._version(version)
        if not isinstance(body, ast.Function) or self.free:
            body = ast.Function(tuple(self.free), body, place=_place_of(body))
        self.functions["main"] = body
        return self._program()

    def _program(self) -> ast.Program:
        if self.loose:
            self.fail(self.loose[0], f"{self.loose[0]} is no expression", "attributes in a call")
        return ast.Program(self.functions, self.definitions)

    def _version(self, token: Token | None) -> None:
        if token is not None and not re.search(r"(?<!\d)0\.0\.[0-5]\b", token):
            self.fail(token, f"{token} is a form of the text that this reader does not know", '"0.0.5"')

    def global_function(self, children: list[Any]) -> None:
        token, name, signature, body = children
        if name[1:] in self.functions:
            self.fail(name, f"{name} is defined twice")
        self.functions[name[1:]] = self._function(signature, body, _place(token))
        self.scope.clear()

    def external_function(self, children: list[Any]) -> None:
        _, name, meta = children
        self.fail(
            name,
            f"{name} is {meta}, a function that is not written in Relay",
            "functions of Relay",
            "save the module before it is lowered for a target",
        )

    def type_definition(self, children: list[Any]) -> None:
        token, name, params, constructors = children
        if name in self.definitions:
            self.fail(name, f"type {name} is defined twice")
        self.definitions[str(name)] = ast.TypeDefinition(str(name), params or (), constructors or (), _place(token))

    def extern_definition(self, children: list[Any]) -> None:
        if children[4]:
            self.fail(children[2], f"extern type {children[2]} has constructors", "an extern type has none")
        self.type_definition(children[1:])

    def type_names(self, children: list[Any]) -> tuple[str, ...]:
        return tuple(map(str, children))

    def constructors(self, children: list[Any]) -> tuple[ast.Constructor, ...]:
        return tuple(children)

    def constructor(self, children: list[Any]) -> ast.Constructor:
        name, fields = children
        if name in self.arities:
            self.fail(name, f"constructor {name} is defined twice")
        self.arities[str(name)] = len(fields or ())
        return ast.Constructor(str(name), fields or ())

    # --- functions ---

    def signature(self, children: list[Any]) -> Signature:
        type_params, parameters, _, result = children
        if result is not None:
            self.depth -= 1
        params: list[ast.Var] = []
        attrs: dict[str, Any] = {}
        self.scope.open()
        for each in parameters or ():
            if isinstance(each, Pair):
                if each.name != "virtual_device":
                    attrs[each.name] = each.value
            else:
                params.append(each)
                self.scope.declare("%" + each.name, each)
        return Signature(type_params or (), tuple(params), attrs, result or _UNKNOWN)

    def parameters(self, children: list[Any]) -> list[Any]:
        return children

    def variable(self, children: list[Any]) -> ast.Var:
        token, _, annotation = children
        return ast.Var(token[1:], annotation or _UNKNOWN, _place(token))

    def virtual_device(self, children: list[Any]) -> None:
        """Where a variable lives is decided here anew."""

    def _function(self, signature: Signature, body: ast.Expr, place: ast.Place) -> ast.Function:
        self.scope.close()
        type_params, params, attrs, result = signature
        return ast.Function(params, body, result, type_params, attrs, place)

    def function(self, children: list[Any]) -> ast.Function:
        token, signature, body = children
        return self._function(signature, body, _place(token))

    # --- blocks and bindings ---

    def open_block(self, _: list[Any]) -> None:
        self.scope.open()

    def block(self, children: list[Any]) -> ast.Expr:
        self.scope.close()
        return children[1]

    def body(self, children: list[Any]) -> ast.Expr:
        expr = children.pop()
        for statement in reversed(children):
            if statement is not None:
                var, value, place = statement
                expr = ast.Let(var, value, expr, place)
        return expr

    nested_let = body

    def let_head(self, children: list[Any]) -> tuple[ast.Var, ast.Place]:
        token, var = children
        self.deeper(token)
        self.scope.declare("%" + var.name, var)
        return var, _place(token)

    def let_statement(self, children: list[Any]) -> Bindings:
        (var, place), value = children
        self.depth -= 1
        return Bindings(var, value, place)

    def graph_binding(self, children: list[Any]) -> None:
        token, value = children
        if "." in token:
            self.fail(token, f"{token} is a field of a tuple and cannot be bound", "a number, as in %0")
        self.scope.declare(str(token), value)

    def free_variable(self, children: list[Any]) -> None:
        var = children[0]
        self.free.append(var)
        self.scope.declare("%" + var.name, var)

    def expression_statement(self, children: list[Any]) -> Bindings:
        """`value;` is evaluated for its effect."""
        place = _place_of(children[0])
        return Bindings(ast.Var("", place=place), children[0], place)

    # --- expressions ---

    def local(self, children: list[Token]) -> ast.Expr:
        token = children[0]
        return self.scope.names.get(token) or self._fields_of_local(token)

    def _fields_of_local(self, token: Token) -> ast.Expr:
        """`%x.0.1`: the longest name in scope, and fields of the tuple that it is."""
        if len(token) > _MAX_NAME:
            self.fail(token, f"a name of {len(token)} characters", f"at most {_MAX_NAME}")
        indices = _INDICES.search(token)
        for end in range(len(token) - 1, indices.start() - 1 if indices else len(token), -1):
            if token[end] == "." and (expr := self.scope.names.get(token[:end])) is not None:
                return self._fields(expr, token[end + 1 :], token)
        return self._undefined(token, token[: indices.start()] if indices else token)

    def _undefined(self, token: Token, base: str) -> NoReturn:
        near = itertools.islice(reversed(self.scope.names), _MOST_SUGGESTED)
        known = [name for name in near if not name[1].isdigit() and len(name) < _LONGEST_SUGGESTED]
        self.fail(
            token,
            f"{base} is not defined here",
            "names of parameters and let variables",
            did_you_mean(base[:_LONGEST_SUGGESTED], known),
        )

    def graph(self, children: list[Token]) -> ast.Expr:
        token = children[0]
        found = self.scope.names.get(token)
        if found is not None:
            return found
        if len(token) > _MAX_NAME:
            self.fail(token, f"a name of {len(token)} characters", f"at most {_MAX_NAME}")
        base, _, fields = token.partition(".")
        found = self.scope.names.get(base)
        if found is None:
            self.fail(token, f"{base} is not defined here", f"a binding {base} = ...; above")
        return self._fields(found, fields, token)

    def _fields(self, expr: ast.Expr, fields: str, token: Token) -> ast.Expr:
        place = _place(token)
        for field in fields.split("."):
            if len(field) > 9:
                self.fail(token, f"field {field[:12]} of a tuple", "at most 9 digits")
            expr = ast.TupleGetItem(expr, int(field), place)
        return expr

    def projection(self, children: list[Any]) -> ast.Expr:
        expr, token = children
        return self._fields(expr, token[1:], token)

    def global_name(self, children: list[Token]) -> ast.GlobalVar:
        return ast.GlobalVar(children[0][1:], _place(children[0]))

    def name(self, children: list[Token]) -> ast.Expr:
        token = children[0]
        place = _place(token)
        arity = self.arities.get(token)
        if arity is None:
            return ast.OpRef(str(token), place)
        constructor = ast.ConstructorRef(str(token), place)
        return constructor if arity else ast.Call(constructor, (), place=place)

    def number(self, children: list[Token]) -> ast.Constant:
        token = children[0]
        try:
            value, dtype = literal.number(str(token))
        except literal.LiteralError as error:
            self.fail(token, str(error))
        return ast.Constant(literal.scalar(value, dtype), dtype, _place(token))

    def boolean(self, children: list[Token]) -> ast.Constant:
        token = children[0]
        return ast.Constant(literal.scalar(token == "True", "bool"), "bool", _place(token))

    def metadata(self, children: list[Token]) -> ast.Constant | Spread:
        """A constant, or the attributes of the call around it."""
        token = children[0]
        value = self.entry_of_metadata(token)
        if isinstance(value, ast.Constant):
            return ast.Constant(value.value, value.dtype, _place(token))
        if not isinstance(value, Mapping):
            self.fail(token, f"{token} is no expression", "constants and the attributes of a call")
        self.loose.append(token)
        return Spread(value, _place(token))

    def call(self, children: list[Any]) -> ast.Expr:
        callee, arguments = children
        place = callee.place
        # A constructor without fields is a call already, `Nil()` as well as `Nil`.
        if isinstance(callee, ast.Call) and isinstance(callee.callee, ast.ConstructorRef) and not arguments:
            return callee
        args: list[Any] = []
        attrs: dict[str, Any] = {}
        for each in arguments or ():
            if isinstance(each, Pair):
                attrs[each.name] = each.value
            elif isinstance(each, Spread):
                attrs.update(each.attrs)
                self.loose.pop()
            else:
                args.append(each)
        attrs.pop("attrs_type_key", None)  # the class, which is written where the callee is no operator
        return ast.Call(callee, tuple(args), attrs, (), place)

    def arguments(self, children: list[Any]) -> list[Any]:
        return children

    def infix(self, children: list[Any]) -> ast.Expr:
        """Operands and operators in turn, by precedence and from left to right."""
        operands, pending = [children[0]], list[Any]()
        for at in range(1, len(children), 2):
            while pending and _OPERATORS[pending[-1]][0] >= _OPERATORS[children[at]][0]:
                self._apply(operands, pending.pop())
            pending.append(children[at])
            operands.append(children[at + 1])
        while pending:
            self._apply(operands, pending.pop())
        return operands[0]

    def _apply(self, operands: list[Any], token: Token) -> None:
        right, left = operands.pop(), operands.pop()
        place = _place(token)
        operands.append(ast.Call(ast.OpRef(_OPERATORS[token][1], place), (left, right), place=place))

    def open_group(self, children: list[Token]) -> Token:
        self.scope.open()
        return children[0]

    def group(self, children: list[Any]) -> ast.Expr:
        """`()`, `(x)`, `(x,)`, `(x, y)`, and a block of bindings in parentheses."""
        self.scope.close()
        if len(children) == 2:
            return children[1]
        token, *fields = children
        return ast.Tuple((fields[0], *fields[1]) if fields else (), _place(token))

    def group_rest(self, children: list[Any]) -> list[Any]:
        return [each for each in children if each is not None]

    def conditional(self, children: list[Any]) -> ast.Expr:
        token, condition, then, *others, otherwise = children
        if len(others) > MAX_NESTING:
            self.fail(token, f"a chain of {len(others)} else if", f"at most {MAX_NESTING}")
        for each, value, place in reversed(others):
            otherwise = ast.If(each, value, otherwise, place)
        return ast.If(condition, then, otherwise, _place(token))

    def else_if(self, children: list[Any]) -> tuple[ast.Expr, ast.Expr, ast.Place]:
        token, condition, then = children
        return condition, then, _place(token)

    def match(self, children: list[Any]) -> ast.Match:
        token, value, *clauses = children
        return ast.Match(value, tuple(clauses), not token.endswith("?"), _place(token))

    def clause_head(self, children: list[ast.Pattern]) -> ast.Pattern:
        self.scope.open()
        waiting = [children[0]]
        while waiting:
            pattern = waiting.pop()
            if isinstance(pattern, ast.VarPattern):
                self.scope.declare("%" + pattern.var.name, pattern.var)
            elif not isinstance(pattern, ast.WildcardPattern):
                waiting.extend(pattern.fields)
        return children[0]

    def clause(self, children: list[Any]) -> tuple[ast.Pattern, ast.Expr]:
        self.scope.close()
        return children[0], children[1]

    def wildcard_pattern(self, _: list[Any]) -> ast.Pattern:
        return ast.WildcardPattern()

    def variable_pattern(self, children: list[Any]) -> ast.Pattern:
        return ast.VarPattern(children[0])

    def constructor_pattern(self, children: list[Any]) -> ast.Pattern:
        return ast.ConstructorPattern(str(children[0]), children[1] or ())

    def tuple_pattern(self, children: list[Any]) -> ast.Pattern:
        return ast.TuplePattern(children[0])

    def patterns(self, children: list[Any]) -> tuple[ast.Pattern, ...]:
        return tuple(children)

    def reference(self, children: list[Any]) -> ast.Expr:
        return ast.RefCreate(children[1], _place(children[0]))

    def reference_read(self, children: list[Any]) -> ast.Expr:
        return ast.RefRead(children[1], _place(children[0]))

    def reference_write(self, children: list[Any]) -> ast.Expr:
        return ast.RefWrite(children[1], children[2], _place(children[0]))


def _place_of(expr: Any) -> ast.Place:
    return getattr(expr, "place", ast.NOWHERE)
