"""Actions of the grammar's rules. lark calls them bottom-up, in the order of the text, while it parses.

Actions do not recurse, so Python's stack does not limit the depth of a program.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from meta.frontend.relay import ast
from meta.frontend.relay.text.expression_actions import ExpressionActions
from meta.frontend.relay.text.value_actions import Metadata, Pair, Token, token_place


class FunctionSignature(NamedTuple):
    type_params: tuple[str, ...]
    params: tuple[ast.Var, ...]
    attrs: dict[str, Any]
    result: ast.Type


class LetBinding(NamedTuple):
    """A `let` variable with its value and the place of the binding."""

    var: ast.Var
    value: ast.Expr
    place: ast.Place


class Actions(ExpressionActions):
    """The state of one parse. Methods are named after the rules; `children` are the results of a rule's parts.

    functions, definitions: of the module, by name.  free: the variables declared by `free_var`.
    """

    def __init__(self, metadata: Metadata) -> None:
        super().__init__(metadata)
        self.functions: dict[str, ast.RelayFunction] = {}
        self.definitions: dict[str, ast.TypeDefinition] = {}
        self.free: list[ast.Var] = []

    # --- modules ---

    def start(self, children: list[Any]) -> ast.RelayProgram:
        self._version(children[0])
        return self._program()

    def expression(self, children: list[Any]) -> ast.RelayProgram:
        """A text that is one expression: the function itself, or the body of one over its free variables."""
        version, body = children
        self._version(version)
        if not isinstance(body, ast.RelayFunction) or self.free:
            body = ast.RelayFunction(tuple(self.free), body, place=_expression_place(body))
        self.functions["main"] = body
        return self._program()

    def _program(self) -> ast.RelayProgram:
        if self.loose:
            self.fail(self.loose[0], f"{self.loose[0]} is not an expression", "attributes in a call")
        return ast.RelayProgram(self.functions, self.definitions)

    def _version(self, token: Token | None) -> None:
        if token is not None and not re.search(r"(?<!\d)0\.0\.[0-5]\b", token):
            self.fail(token, f"unsupported text version {token}", 'version "0.0.5"')

    def global_function(self, children: list[Any]) -> None:
        token, name, signature, body = children
        if name[1:] in self.functions:
            self.fail(name, f"{name} is defined twice")
        self.functions[name[1:]] = self._function(signature, body, token_place(token))
        self.symbols.clear()

    def external_function(self, children: list[Any]) -> None:
        _, name, meta = children
        self.fail(
            name,
            f"{name} is {meta}, which is not a function of Relay",
            "a function of Relay",
            "save the module before it is lowered for a target",
        )

    def type_definition(self, children: list[Any]) -> None:
        token, name, params, constructors = children
        if name in self.definitions:
            self.fail(name, f"type {name} is defined twice")
        self.definitions[str(name)] = ast.TypeDefinition(
            str(name), params or (), constructors or (), token_place(token)
        )

    def extern_definition(self, children: list[Any]) -> None:
        if children[4]:
            self.fail(children[2], f"extern type {children[2]} has constructors", "an extern type without constructors")
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

    def signature(self, children: list[Any]) -> FunctionSignature:
        type_params, parameters, _, result = children
        if result is not None:
            self.depth -= 1
        params: list[ast.Var] = []
        attrs: dict[str, Any] = {}
        self.symbols.open()
        for each in parameters or ():
            if isinstance(each, Pair):
                if each.name != "virtual_device":
                    attrs[each.name] = each.value
            else:
                params.append(each)
                self.symbols.declare("%" + each.name, each)
        return FunctionSignature(type_params or (), tuple(params), attrs, result or ast.UNKNOWN_TYPE)

    def parameters(self, children: list[Any]) -> list[Any]:
        return children

    def variable(self, children: list[Any]) -> ast.Var:
        token, _, annotation = children
        return ast.Var(token[1:], annotation or ast.UNKNOWN_TYPE, token_place(token))

    def virtual_device(self, children: list[Any]) -> None:
        """Devices in the program are ignored."""

    def _function(self, signature: FunctionSignature, body: ast.Expr, place: ast.Place) -> ast.RelayFunction:
        self.symbols.close()
        type_params, params, attrs, result = signature
        return ast.RelayFunction(params, body, result, type_params, attrs, place)

    def function(self, children: list[Any]) -> ast.RelayFunction:
        token, signature, body = children
        return self._function(signature, body, token_place(token))

    # --- blocks and bindings ---

    def open_block(self, _: list[Any]) -> None:
        self.symbols.open()

    def block(self, children: list[Any]) -> ast.Expr:
        self.symbols.close()
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
        self.symbols.declare("%" + var.name, var)
        return var, token_place(token)

    def let_statement(self, children: list[Any]) -> LetBinding:
        (var, place), value = children
        self.depth -= 1
        return LetBinding(var, value, place)

    def graph_binding(self, children: list[Any]) -> None:
        token, value = children
        if "." in token:
            self.fail(token, f"{token} is a field of a tuple and cannot be bound", "a number, as in %0")
        self.symbols.declare(str(token), value)

    def free_variable(self, children: list[Any]) -> None:
        var = children[0]
        self.free.append(var)
        self.symbols.declare("%" + var.name, var)

    def expression_statement(self, children: list[Any]) -> LetBinding:
        """`value;` is evaluated for its effect."""
        place = _expression_place(children[0])
        return LetBinding(ast.Var("", place=place), children[0], place)


def _expression_place(expr: object) -> ast.Place:
    return getattr(expr, "place", ast.NOWHERE)
