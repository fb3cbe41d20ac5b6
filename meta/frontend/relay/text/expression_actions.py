"""Actions of the grammar's rules for expressions and patterns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from meta.errors import did_you_mean
from meta.frontend.relay import ast
from meta.frontend.relay.ast import Expr
from meta.frontend.relay.text import literal
from meta.frontend.relay.text.value_actions import Metadata, Pair, Token, ValueActions, token_place
from meta.limits import MAX_NAME, MAX_NESTING


class SymbolTable:
    """Local variables by "%name" and graph bindings by "%0", with nested blocks.

    A variable ends with its block. A graph binding names an expression: the printer may name one inside a branch and
    use it after the branch, so it lasts until its function ends or its number is used again."""

    __slots__ = ("_shadowed", "names")

    def __init__(self) -> None:
        self.names: dict[str, Expr] = {}
        self._shadowed: list[list[tuple[str, Expr | None]]] = [[]]

    def open(self) -> None:
        self._shadowed.append([])

    def declare(self, name: str, value: Expr) -> None:
        self._shadowed[-1].append((name, self.names.get(name)))
        self.names[name] = value

    def close(self) -> None:
        for name, before in reversed(self._shadowed.pop()):
            if before is not None:
                self.names[name] = before
            elif not name[1].isdigit():
                del self.names[name]

    def clear(self) -> None:
        """Remove all names, at the end of a function of the module."""
        self.names.clear()
        self._shadowed = [[]]


_MAX_SUGGESTIONS = 500
_MAX_SUGGESTION = 64
_INDICES = re.compile(r"(?:\.\d+){1,64}\Z")
# Precedence and Relay's operator of the infix operators.
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


class Spread(NamedTuple):
    """All attributes of a call, written as one argument: `meta[relay.attrs.ReduceAttrs][0]`."""

    attrs: Mapping[str, Any]
    place: ast.Place


class ExpressionActions(ValueActions):
    """Actions for expressions.

    symbols: the names in scope.  arities: the number of fields of each constructor.  loose: attributes written as an
    argument that no call has taken yet; anywhere else they are a mistake.
    """

    def __init__(self, metadata: Metadata) -> None:
        super().__init__(metadata)
        self.symbols = SymbolTable()
        self.arities: dict[str, int] = {}
        self.loose: list[Token] = []

    def deeper(self, token: Token) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.fail(token, f"nested {self.depth} deep", f"at most {MAX_NESTING}")

    def local(self, children: list[Token]) -> ast.Expr:
        token = children[0]
        return self.symbols.names.get(token) or self._fields_of_local(token)

    def _fields_of_local(self, token: Token) -> ast.Expr:
        """`%x.0.1`: the longest name in scope, and fields of that tuple."""
        if len(token) > MAX_NAME:
            self.fail(token, f"a name of {len(token)} characters", f"at most {MAX_NAME}")
        indices = _INDICES.search(token)
        for end in range(len(token) - 1, indices.start() - 1 if indices else len(token), -1):
            if token[end] == "." and (expr := self.symbols.names.get(token[:end])) is not None:
                return self._fields(expr, token[end + 1 :], token)
        return self._undefined(token, token[: indices.start()] if indices else token)

    def _undefined(self, token: Token, base: str) -> NoReturn:
        near = itertools.islice(reversed(self.symbols.names), _MAX_SUGGESTIONS)
        candidates = [name for name in near if not name[1].isdigit() and len(name) < _MAX_SUGGESTION]
        self.fail(
            token,
            f"{base} is not defined here",
            "the name of a parameter or a let variable",
            did_you_mean(base[:_MAX_SUGGESTION], candidates),
        )

    def graph(self, children: list[Token]) -> ast.Expr:
        token = children[0]
        bound = self.symbols.names.get(token)
        if bound is not None:
            return bound
        if len(token) > MAX_NAME:
            self.fail(token, f"a name of {len(token)} characters", f"at most {MAX_NAME}")
        base, _, fields = token.partition(".")
        bound = self.symbols.names.get(base)
        if bound is None:
            self.fail(token, f"{base} is not defined here", f"an earlier binding {base} = ...;")
        return self._fields(bound, fields, token)

    def _fields(self, expr: ast.Expr, fields: str, token: Token) -> ast.Expr:
        place = token_place(token)
        for field in fields.split("."):
            if len(field) > 9:
                self.fail(token, f"field {field[:12]} of a tuple", "an index of at most 9 digits")
            expr = ast.TupleGetItem(expr, int(field), place)
        return expr

    def projection(self, children: list[Any]) -> ast.Expr:
        expr, token = children
        return self._fields(expr, token[1:], token)

    def global_name(self, children: list[Token]) -> ast.GlobalVar:
        return ast.GlobalVar(children[0][1:], token_place(children[0]))

    def name(self, children: list[Token]) -> ast.Expr:
        token = children[0]
        place = token_place(token)
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
        return ast.Constant(literal.scalar(value, dtype), dtype, token_place(token))

    def boolean(self, children: list[Token]) -> ast.Constant:
        token = children[0]
        return ast.Constant(literal.scalar(token == "True", "bool"), "bool", token_place(token))

    def metadata(self, children: list[Token]) -> ast.Constant | Spread:
        """A constant, or attributes of the enclosing call."""
        token = children[0]
        value = self.entry_of_metadata(token)
        if isinstance(value, ast.Constant):
            return ast.Constant(value.value, value.dtype, token_place(token))
        if not isinstance(value, Mapping):
            self.fail(token, f"{token} is not an expression", "a constant, or attributes in a call")
        self.loose.append(token)
        return Spread(value, token_place(token))

    def call(self, children: list[Any]) -> ast.Expr:
        callee, arguments = children
        place = callee.place
        # `Nil` is a call already, so that `Nil()` would call twice.
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
        attrs.pop("attrs_type_key", None)  # the class, which the printer writes for callees other than operators
        return ast.Call(callee, tuple(args), attrs, place)

    def arguments(self, children: list[Any]) -> list[Any]:
        return children

    def infix(self, children: list[Any]) -> ast.Expr:
        """Operands and operators alternate; operators apply by precedence, then from left to right."""
        operands, pending = [children[0]], list[Any]()
        for operator, operand in zip(children[1::2], children[2::2], strict=True):
            while pending and _OPERATORS[pending[-1]][0] >= _OPERATORS[operator][0]:
                self._apply(operands, pending.pop())
            pending.append(operator)
            operands.append(operand)
        while pending:
            self._apply(operands, pending.pop())
        return operands[0]

    def _apply(self, operands: list[Any], token: Token) -> None:
        right, left = operands.pop(), operands.pop()
        place = token_place(token)
        operands.append(ast.Call(ast.OpRef(_OPERATORS[token][1], place), (left, right), place=place))

    def open_group(self, children: list[Token]) -> Token:
        self.symbols.open()
        return children[0]

    def group(self, children: list[Any]) -> ast.Expr:
        """`()`, `(x)`, `(x,)`, `(x, y)`, and a block of bindings in parentheses."""
        self.symbols.close()
        if len(children) == 2:
            return children[1]
        token, *fields = children
        return ast.Tuple((fields[0], *fields[1]) if fields else (), token_place(token))

    def group_rest(self, children: list[Any]) -> list[Any]:
        return [each for each in children if each is not None]

    def conditional(self, children: list[Any]) -> ast.Expr:
        token, condition, then, *others, otherwise = children
        if len(others) > MAX_NESTING:
            self.fail(token, f"a chain of {len(others)} else if", f"at most {MAX_NESTING}")
        for each, value, place in reversed(others):
            otherwise = ast.If(each, value, otherwise, place)
        return ast.If(condition, then, otherwise, token_place(token))

    def else_if(self, children: list[Any]) -> tuple[ast.Expr, ast.Expr, ast.Place]:
        token, condition, then = children
        return condition, then, token_place(token)

    def match(self, children: list[Any]) -> ast.Match:
        token, value, *clauses = children
        return ast.Match(value, tuple(clauses), not token.endswith("?"), token_place(token))

    def clause_head(self, children: list[ast.Pattern]) -> ast.Pattern:
        self.symbols.open()
        pending = [children[0]]
        while pending:
            pattern = pending.pop()
            if isinstance(pattern, ast.VarPattern):
                self.symbols.declare("%" + pattern.var.name, pattern.var)
            elif not isinstance(pattern, ast.WildcardPattern):
                pending.extend(pattern.fields)
        return children[0]

    def clause(self, children: list[Any]) -> tuple[ast.Pattern, ast.Expr]:
        self.symbols.close()
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
        return ast.RefCreate(children[1], token_place(children[0]))

    def reference_read(self, children: list[Any]) -> ast.Expr:
        return ast.RefRead(children[1], token_place(children[0]))

    def reference_write(self, children: list[Any]) -> ast.Expr:
        return ast.RefWrite(children[1], children[2], token_place(children[0]))
