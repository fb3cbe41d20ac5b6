"""The reader of IR text, which `printer.to_text` or a person has written.

    module   = {"def" name header block | "constants" "{" ... "}"}
    header   = "(" [var ":" type {"," var ":" type} [","]] ")" "->" type ["with" value]
    block    = "{" {binding} (atom | tuple) "}"
    binding  = var [":" type] "=" value
    value    = call | tuple | atom "[" int "]" | "if" atom block "else" block | "fn" [name] header block
    call     = name "(" [argument {"," argument} [","]] ")" ["with" value] | (var | global) "(" [atoms] ")"
    argument = [name "="] (atom | "[" atoms "]" | value)
    atom     = "%" name | "@" name | "$" int | constant
    tuple    = "(" [atoms] ")"

The type of a binding's variable may be left out; it is inferred. A comment `# file:line` at the end of a line gives the
span. Parsing is recursive descent with bounded depth; the text is never executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meta.errors import ArgumentError, IRError, RegistryError, did_you_mean
from meta.ir.builder import Module, applied_type
from meta.ir.expr import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Expr,
    FunctionExpr,
    GlobalVar,
    If,
    OpLike,
    OpLookup,
    Tuple,
    TupleGetItem,
    Var,
    arg_types,
    find_op,
    is_atom,
    is_atom_list,
    set_op_lookup,
)
from meta.ir.lexer import Cursor, Token
from meta.ir.literal_parser import (
    checked,
    listed,
    parse_constant,
    parse_constants,
    parse_number,
    parse_type,
    parse_value,
)
from meta.ir.type import FunctionType, TupleType, Type
from meta.limits import MAX_TYPE_LEAVES

__all__ = ["OpLookup", "parse", "parse_function", "set_op_lookup"]


def parse(text: str, ops: OpLookup | None = None, source: str = "") -> Module:
    """The module that `text` describes.

    ops: finds operators by name, by default in the registry.  source: the name of the text in errors; with it, bindings
    without a span comment get the line of the text as their span.
    Raises IRError with line, column and the expected token, ArgumentError for a value that is not a string."""
    if not isinstance(text, str):
        raise ArgumentError(
            "parse", f"the program is a {type(text).__name__}", "a string", "str(module) gives the text of a Module"
        )
    return _Parser(Cursor(text, source), ops or find_op).module()


def parse_function(text: str, ops: OpLookup | None = None, source: str = "") -> FunctionExpr:
    """The only function of `text`; raises IRError when it has none or several."""
    functions = list(parse(text, ops, source).functions.values())
    if len(functions) != 1:
        raise IRError("parse", f"the text has {len(functions)} functions", "one function")
    return functions[0]


class _Header:
    """The header of a function, and the position of its body."""

    __slots__ = ("attrs", "body", "name", "params", "result", "span")

    def __init__(self, cursor: Cursor, name: str) -> None:
        self.name = name
        cursor.expect("(")
        self.params = listed(cursor, _param, ")")[0]
        cursor.expect("->")
        cursor.items = 0
        self.result = parse_type(cursor)
        self.attrs = _facts(cursor)
        cursor.expect("{")
        self.span = cursor.span()
        self.body = cursor.position

    @property
    def type(self) -> FunctionType:
        return FunctionType(tuple(p.type for _, p in self.params), self.result)


def _param(cursor: Cursor) -> tuple[Token, Var]:
    token = cursor.name("var", "a parameter such as %x")
    cursor.expect(":")
    cursor.items = 0
    return token, Var(_var_name(token), parse_type(cursor))


def _var_name(token: Token) -> str:
    """Numbered variables are nameless: the printer counts them anew."""
    name = token.text[1:]
    return "" if name.isdigit() else name


def _facts(cursor: Cursor) -> Mapping[str, Any]:
    if not cursor.accept("with"):
        return {}
    start = cursor.token.start
    value = parse_value(cursor)
    if not isinstance(value, dict):
        cursor.fail_at(start, "the attributes are not a dictionary", 'a dictionary such as {"mutates": {0: 1}}')
    return value  # pyright: ignore[reportUnknownVariableType]


def _function_name(cursor: Cursor) -> str:
    if cursor.token.kind == "string":
        return cursor.string("the name of a function")
    return cursor.name("name", "the name of a function").text


class _Parser:
    def __init__(self, cursor: Cursor, ops: OpLookup) -> None:
        self.cursor = cursor
        self.ops = ops
        self.constants: dict[str, Constant] = {}
        self.globals: dict[str, _Header] = {}
        self.scopes: list[dict[str, Var]] = []
        self.types = 0

    def module(self) -> Module:
        """Headers and constants first, so that bodies may mention what comes later."""
        cursor = self.cursor
        while cursor.token.kind != "end":
            start = cursor.token.start
            if cursor.accept("constants"):
                self.constants.update(parse_constants(cursor))
                continue
            if not cursor.accept("def"):
                cursor.unexpected("'def' or 'constants'")
            header = _Header(cursor, _function_name(cursor))
            if header.name in self.globals:
                cursor.fail_at(start, f"the function '{header.name}' is defined twice")
            self.globals[header.name] = header
            self.skip_body()
        return Module({name: self.function(header) for name, header in self.globals.items()})

    def skip_body(self) -> None:
        depth = 1
        while depth:
            if self.cursor.token.kind == "end":
                self.cursor.unexpected("'}'")
            token = self.cursor.take()
            if token.kind == "mark":
                depth += {"{": 1, "}": -1}.get(token.text, 0)

    def function(self, header: _Header) -> FunctionExpr:
        cursor = self.cursor
        cursor.position = header.body
        self.scopes.append({})
        for token, param in header.params:
            self.define(token, param)
        body = self.block()
        self.scopes.pop()
        if body.type != header.result:
            cursor.fail(f"the body returns {body.type!r}", f"{header.result!r}, as declared")
        return FunctionExpr(tuple(p for _, p in header.params), body, header.attrs, header.name, header.span)

    def block(self) -> Block:
        """A block behind its opening brace, with the closing one."""
        cursor = self.cursor
        bindings: list[Binding] = []
        self.scopes.append({})
        with cursor.nested():
            while cursor.token.kind == "var" and (cursor.looking_at(":", 1) or cursor.looking_at("=", 1)):
                bindings.append(self.binding())
            result = self.tuple() if cursor.looking_at("(") else self.atom("a binding or the result of the block")
            cursor.expect("}")
        self.scopes.pop()
        return Block(tuple(bindings), result)

    def define(self, token: Token, var: Var) -> None:
        if token.text in self.scopes[-1]:
            self.cursor.fail_at(token.start, f"{token.text} is bound twice")
        self.scopes[-1][token.text] = var

    def binding(self) -> Binding:
        cursor = self.cursor
        cursor.items = 0
        token = cursor.name("var", "a variable")
        declared = parse_type(cursor) if cursor.accept(":") else None
        cursor.expect("=")
        if cursor.looking_at("fn"):
            return self.closure(token, declared)
        value = self.if_() if cursor.looking_at("if") else self.value(declared)
        kind = checked(cursor, token.start, lambda: value.type)
        self.count_types(token, kind)
        if declared is not None and declared != kind:
            cursor.fail_at(token.start, f"the value is a {kind!r}", f"{declared!r}, as declared")
        var = Var(_var_name(token), kind, value.span)
        self.define(token, var)
        return Binding(var, value)

    def count_types(self, token: Token, kind: Type) -> None:
        """Count the leaves of a variable's type; raises IRError when the program has too many."""
        self.types += kind.nodes if isinstance(kind, (TupleType, FunctionType)) else 1
        if self.types > MAX_TYPE_LEAVES:
            problem = "the types of the program have too many parts"
            self.cursor.fail_at(token.start, problem, f"at most {MAX_TYPE_LEAVES}", "use fewer or smaller tuples")

    def closure(self, token: Token, declared: Type | None) -> Binding:
        cursor = self.cursor
        cursor.take()
        header = _Header(cursor, "" if cursor.looking_at("(") else _function_name(cursor))
        if declared not in (None, header.type):
            cursor.fail_at(token.start, f"the value is a {header.type!r}", f"{declared!r}, as declared")
        self.count_types(token, header.type)
        var = Var(_var_name(token), header.type, header.span)
        self.define(token, var)
        return Binding(var, self.function(header))

    def if_(self) -> If:
        cursor = self.cursor
        cursor.take()
        cond = self.atom("a condition")
        cursor.expect("{")
        span = cursor.span()
        then = self.block()
        cursor.expect("else")
        place = cursor.expect("{").start
        orelse = self.block()
        if then.type != orelse.type:
            cursor.fail_at(place, f"this branch returns {orelse.type!r}", f"{then.type!r}, as the first branch returns")
        return If(cond, then, orelse, span)

    def value(self, declared: Type | None) -> Expr:
        """A value on one line: a call, a tuple or a field of one."""
        cursor = self.cursor
        token = cursor.token
        if token.kind == "mark" and token.text == "(":
            fields = self.tuple().fields
            return Tuple(fields, cursor.span())
        if token.kind == "name" and token.text != "const":
            return self.op_call(declared)
        callee = self.atom("a value: a call, a tuple, a field %x[0], if or fn")
        if cursor.accept("["):
            index = parse_number(cursor)
            cursor.expect("]")
            if not isinstance(index, int):
                cursor.fail_at(token.start, "the index of a field is not an int")
            return TupleGetItem(callee, index, cursor.span())
        if not isinstance(callee, (Var, GlobalVar)) or not cursor.accept("("):
            cursor.unexpected("'(' or '['")
        args = tuple(listed(cursor, lambda _: self.atom("an argument"), ")")[0])
        attrs = _facts(cursor)
        kind = checked(cursor, token.start, lambda: applied_type(callee, args))
        return Call(callee, args, kind, cursor.span(), attrs)

    def op_call(self, declared: Type | None) -> Call:
        cursor = self.cursor
        token = cursor.take()
        if not cursor.looking_at("("):
            cursor.unexpected("'('")
        op, dialect = self.find_op(token)
        cursor.take()
        args = self.arguments(op, token)
        attrs = _facts(cursor)
        kind = declared or checked(cursor, token.start, lambda: op.infer(arg_types(args)))
        return Call(op, args, kind, cursor.span(), attrs, dialect)

    def find_op(self, token: Token) -> tuple[OpLike, str | None]:
        """The operator of a name that may have a dialect in front."""
        dialect, _, rest = token.text.partition(".")
        names: list[tuple[str, str | None]] = [(token.text, None), (rest, dialect)]
        wrong = ""
        for name, prefix in names[: 2 if rest else 1]:
            try:
                return self.ops(name), prefix
            except RegistryError as error:
                wrong = error.summary
        raise self.cursor.error(token.start, wrong)

    def arguments(self, op: OpLike, token: Token) -> tuple[Any, ...]:
        args = op.schema.args
        values: dict[str, Any] = {}

        def argument(cursor: Cursor) -> None:
            place = cursor.token
            if place.kind == "name" and cursor.looking_at("=", 1):
                cursor.position += 2
                name = place.text
            elif len(values) < len(args):
                name = args[len(values)].name
            else:
                cursor.fail(f"more than {len(args)} arguments", f"{op.schema!r}")
            if name not in op.schema.index:
                hint = did_you_mean(name, op.schema.names)
                cursor.fail_at(place.start, f"{op.name} has no argument '{name}'", f"{op.schema!r}", hint)
            if name in values:
                cursor.fail_at(place.start, f"argument '{name}' is given twice")
            value = self.argument()
            arg = args[op.schema.index[name]]
            plain = not is_atom(value) and not is_atom_list(value)
            if not plain and not arg.is_tensor:
                cursor.fail_at(place.start, f"argument '{name}' of {op.name} is a variable", arg.type.allowed)
            normal = checked(cursor, place.start, lambda: arg.normalize(op.name, value))
            values[name] = normal if plain else value

        listed(self.cursor, argument, ")")
        for arg in args:
            if arg.name not in values:
                if arg.required:
                    self.cursor.fail_at(token.start, f"argument '{arg.name}' is missing", f"{op.schema!r}")
                values[arg.name] = arg.normalize(op.name, arg.default)
        return tuple(values[arg.name] for arg in args)

    def argument(self) -> Any:
        cursor = self.cursor
        if cursor.accept("["):
            return tuple(listed(cursor, lambda _: self.atom("a tensor"), "]")[0])
        if cursor.token.kind in ("var", "global", "ref") or cursor.looking_at("const"):
            return self.atom("a tensor")
        return parse_value(cursor)

    def tuple(self) -> Tuple:
        self.cursor.expect("(")
        return Tuple(tuple(listed(self.cursor, lambda _: self.atom("a field"), ")")[0]))

    def atom(self, what: str) -> Atom:
        cursor = self.cursor
        token = cursor.token
        if cursor.looking_at("const"):
            return parse_constant(cursor)
        match token.kind:
            case "var":
                atom = next((s[token.text] for s in reversed(self.scopes) if token.text in s), None)
            case "global":
                name = cursor.unquoted(token) if token.text.startswith('@"') else token.text[1:]
                header = self.globals.get(name)
                atom = GlobalVar(name, header.type) if header else None
            case "ref":
                atom = self.constants.get(token.text)
            case _:
                cursor.unexpected(what)
        if atom is None:
            cursor.fail(f"{token.text} is not defined here", remedy=did_you_mean(token.text, self.names_in_scope()))
        cursor.take()
        return atom

    def names_in_scope(self) -> list[str]:
        """The text of every atom that may be used here."""
        return [*(n for scope in self.scopes for n in scope), *(f"@{n}" for n in self.globals), *self.constants]
