"""The classes of nodes in Relay JSON: a row of `NODES` for each, with a function that builds its value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from meta.frontend.relay import ast
from meta.frontend.relay.dtypes import is_dtype, none_if_empty, plain_attribute
from meta.frontend.relay.json.graph import NodeGraph
from meta.limits import MAX_DIMENSION, MAX_DIMENSIONS

_Exprs: TypeAlias = "tuple[ast.Expr, ...]"


class JsonNode:
    """A node whose value is being built: its place, its fields, and checks of the values that it refers to."""

    __slots__ = ("constructors", "graph", "index")

    def __init__(self, graph: NodeGraph, index: int, constructors: dict[int, ast.Constructor]) -> None:
        self.graph = graph
        self.index = index
        self.constructors = constructors

    @property
    def place(self) -> ast.Place:
        return ast.Place(0, self.index)

    def error(self, problem: str, expected: str = "") -> Exception:
        return self.graph.error(problem, expected, self.index)

    def checked(self, value: Any, classes: Any, expected: str) -> Any:
        """`value`; raises RelayError unless it is of one of `classes`."""
        if not isinstance(value, classes):
            kind = value.kind if isinstance(value, ast.Opaque) else type(value).__name__
            raise self.error(f"a {self.graph.kind(self.index)} with {kind}", expected)
        return value

    def text(self, name: str) -> str:
        return self.graph.text(self.index, name)

    def expr(self, value: object) -> ast.Expr:
        return self.checked(value, ast.EXPRESSIONS, "an expression")

    def exprs(self, value: object) -> _Exprs:
        return tuple(self.expr(each) for each in self.items(value))

    def type(self, value: Any) -> ast.Type:
        return ast.UNKNOWN_TYPE if value is None else self.checked(value, ast.TYPES, "a type")

    def types(self, value: object) -> tuple[ast.Type, ...]:
        return tuple(self.type(each) for each in self.items(value))

    def patterns(self, value: object) -> tuple[ast.Pattern, ...]:
        return tuple(self.checked(each, ast.PATTERNS, "a pattern") for each in self.items(value))

    def var(self, value: object) -> ast.Var:
        return self.checked(value, ast.Var, "a variable")

    def items(self, value: Any) -> tuple[Any, ...]:
        return () if value is None else self.checked(value, tuple, "a list")

    def mapping(self, value: object) -> dict[str, Any]:
        return {} if value is None else self.checked(value, dict, "a map")

    def names(self, value: object) -> tuple[str, ...]:
        return tuple(self.checked(each, ast.NamedType, "a type parameter").name for each in self.items(value))


Row: TypeAlias = "tuple[tuple[str, ...], Callable[..., Any]]"
NODES: dict[str, Row] = {}
"""By class: the fields that refer to nodes, and the function that builds the value from the values of these."""


def _node(names: str, *fields: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for `names`, the names of one class in several releases."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        NODES.update(dict.fromkeys(names.split(), (fields, function)))
        return function

    return enter


# --- modules ---


@_node("IRModule relay.Module", "functions", "type_definitions")
def _module(node: JsonNode, functions: object, types: object) -> ast.RelayProgram:
    members = node.mapping(functions)
    for name, value in members.items():
        if not isinstance(value, ast.RelayFunction):
            kind = value.kind if isinstance(value, ast.Opaque) else type(value).__name__
            raise node.error(
                f"function @{name} is a {kind}", "a function of Relay; save the module before it is lowered"
            )
    definitions = node.mapping(types)
    for value in definitions.values():
        node.checked(value, ast.TypeDefinition, "type definitions")
    return ast.RelayProgram(members, definitions)


@_node("relay.TypeData TypeData", "header", "type_vars", "constructors")
def _type_data(node: JsonNode, header: object, type_params: object, constructors: object) -> ast.TypeDefinition:
    name: str = node.checked(header, ast.NamedType, "a name").name
    declared: list[ast.Constructor] = []
    for each in node.items(constructors):
        constructor: ast.ConstructorRef = node.checked(each, ast.ConstructorRef, "constructors")
        declared.append(node.constructors[constructor.place.column])
    return ast.TypeDefinition(name, node.names(type_params), tuple(declared), node.place)


@_node("relay.Constructor Constructor", "inputs")
def _constructor(node: JsonNode, fields: object) -> ast.Expr:
    name = node.text("name_hint")
    node.constructors[node.index] = ast.Constructor(name, node.types(fields))
    return ast.ConstructorRef(name, node.place)


# --- expressions ---


@_node("relay.Var", "vid", "type_annotation")
def _var(node: JsonNode, name: object, annotation: object) -> ast.Expr:
    return ast.Var(name if isinstance(name, str) else node.text("name_hint"), node.type(annotation), node.place)


@_node("relay.Id")
def _id(node: JsonNode) -> str:
    return node.text("name_hint")


@_node("GlobalVar relay.GlobalVar")
def _global(node: JsonNode) -> ast.Expr:
    return ast.GlobalVar(node.text("name_hint"), node.place)


@_node("Op relay.Op")
def _op(node: JsonNode) -> ast.Expr:
    return ast.OpRef(node.graph.string(node.index) or "", node.place)


@_node("relay.Constant")
def _constant(node: JsonNode) -> ast.Expr:
    return ast.Constant(*node.graph.array(node.index, node.graph.integer(node.index, "data")), node.place)


@_node("relay.Call", "op", "args", "attrs")
def _call(node: JsonNode, op: object, args: object, attrs: object) -> ast.Expr:
    return ast.Call(node.expr(op), node.exprs(args), node.mapping(attrs), node.place)


@_node("relay.Tuple", "fields")
def _tuple(node: JsonNode, fields: object) -> ast.Expr:
    return ast.Tuple(node.exprs(fields), node.place)


@_node("relay.TupleGetItem", "tuple_value")
def _field(node: JsonNode, value: object) -> ast.Expr:
    index = node.graph.integer(node.index, "index")
    if not 0 <= index < 10**9:
        raise node.error(f"field {index} of a tuple")
    return ast.TupleGetItem(node.expr(value), index, node.place)


@_node("relay.Let", "var", "value", "body")
def _let(node: JsonNode, var: Any, value: object, body: object) -> ast.Expr:
    return ast.Let(node.var(var), node.expr(value), node.expr(body), node.place)


@_node("relay.If", "cond", "true_branch", "false_branch")
def _if(node: JsonNode, condition: Any, then: object, otherwise: object) -> ast.Expr:
    return ast.If(node.expr(condition), node.expr(then), node.expr(otherwise), node.place)


@_node("relay.Function", "params", "body", "ret_type", "type_params", "attrs")
def _function(
    node: JsonNode, params: object, body: object, result: object, type_params: object, attrs: object
) -> ast.Expr:
    variables = tuple(node.var(each) for each in node.items(params))
    plain = {name: none_if_empty(plain_attribute(value)) for name, value in node.mapping(attrs).items()}
    return ast.RelayFunction(variables, node.expr(body), node.type(result), node.names(type_params), plain, node.place)


@_node("DictAttrs", "__dict__")
def _dict_attrs(node: JsonNode, values: Any) -> dict[str, Any]:
    return node.mapping(values)


@_node("relay.RefCreate", "value")
def _ref_create(node: JsonNode, value: object) -> ast.Expr:
    return ast.RefCreate(node.expr(value), node.place)


@_node("relay.RefRead", "ref")
def _ref_read(node: JsonNode, ref: object) -> ast.Expr:
    return ast.RefRead(node.expr(ref), node.place)


@_node("relay.RefWrite", "ref", "value")
def _ref_write(node: JsonNode, ref: object, value: object) -> ast.Expr:
    return ast.RefWrite(node.expr(ref), node.expr(value), node.place)


@_node("relay.Match", "data", "clauses")
def _match(node: JsonNode, value: object, clauses: object) -> ast.Expr:
    checked: list[tuple[ast.Pattern, ast.Expr]] = []
    for each in node.items(clauses):
        pair: _Clause = node.checked(each, _Clause, "clauses")
        checked.append((pair.pattern, pair.body))
    return ast.Match(node.expr(value), tuple(checked), node.graph.field(node.index, "complete") != "0", node.place)


class _Clause:
    __slots__ = ("body", "pattern")

    def __init__(self, pattern: ast.Pattern, body: ast.Expr) -> None:
        self.pattern = pattern
        self.body = body


@_node("relay.Clause", "lhs", "rhs")
def _clause(node: JsonNode, pattern: object, body: object) -> _Clause:
    return _Clause(node.checked(pattern, ast.PATTERNS, "a pattern"), node.expr(body))


@_node("relay.PatternWildcard")
def _wildcard(_: JsonNode) -> ast.Pattern:
    return ast.WildcardPattern()


@_node("relay.PatternVar", "var")
def _variable_pattern(node: JsonNode, var: Any) -> ast.Pattern:
    return ast.VarPattern(node.var(var))


@_node("relay.PatternTuple", "patterns")
def _tuple_pattern(node: JsonNode, fields: object) -> ast.Pattern:
    return ast.TuplePattern(node.patterns(fields))


@_node("relay.PatternConstructor", "constructor", "patterns")
def _constructor_pattern(node: JsonNode, constructor: object, fields: object) -> ast.Pattern:
    name: str = node.checked(constructor, ast.ConstructorRef, "a constructor").name
    return ast.ConstructorPattern(name, node.patterns(fields))


# --- types ---


@_node("relay.TensorType TensorType", "shape")
def _tensor(node: JsonNode, shape: Any) -> ast.Type:
    dims = node.items(shape)
    dtype = node.graph.field(node.index, "dtype")
    if len(dims) > MAX_DIMENSIONS or not is_dtype(dtype):
        raise node.error(f"a tensor of {len(dims)} dimensions and {dtype[:40]}", f"at most {MAX_DIMENSIONS} dimensions")
    return ast.TensorType(tuple(_dimension(node, each) for each in dims), dtype)


def _dimension(node: JsonNode, value: object) -> int | str | None:
    if isinstance(value, ast.NamedType):
        return value.name
    if isinstance(value, bool) or (isinstance(value, int) and not 0 <= value <= MAX_DIMENSION):
        raise node.error(f"a dimension of size {value}")
    return value if isinstance(value, (int, str)) else None


@_node("TupleType relay.TupleType", "fields")
def _tuple_type(node: JsonNode, fields: object) -> ast.Type:
    return ast.TupleType(node.types(fields))


@_node("FuncType relay.FuncType", "arg_types", "ret_type", "type_params")
def _function_type(node: JsonNode, params: object, result: object, type_params: object) -> ast.Type:
    return ast.FuncType(node.types(params), node.type(result), node.names(type_params))


@_node("relay.RefType RelayRefType relay.RelayRefType", "value")
def _ref_type(node: JsonNode, value: object) -> ast.Type:
    return ast.RefType(node.type(value))


@_node("TypeVar GlobalTypeVar relay.TypeVar relay.GlobalTypeVar")
def _type_name(node: JsonNode) -> ast.Type:
    return ast.NamedType(node.text("name_hint"))


@_node("TypeCall relay.TypeCall", "func", "args")
def _type_call(node: JsonNode, head: object, args: object) -> ast.Type:
    return ast.NamedType(node.checked(head, ast.NamedType, "a name").name, node.types(args))


@_node("IncompleteType relay.IncompleteType")
def _unknown_type(_: JsonNode) -> ast.Type:
    return ast.UNKNOWN_TYPE


# --- numbers and dimensions ---


@_node("IntImm")
def _integer(node: JsonNode) -> int | bool:
    value = node.graph.integer(node.index, "value")
    return bool(value) if node.graph.fields(node.index).get("dtype") in ("bool", "uint1") else value


@_node("FloatImm")
def _float(node: JsonNode) -> float:
    text = node.graph.field(node.index, "value")
    try:
        return float(text[:400]) if text else math.nan
    except ValueError:
        raise node.error(f"{text[:40]!r} is not a number") from None


@_node("tir.Any Any relay.Any")
def _any(_: JsonNode) -> None:
    return None


@_node("tir.Var tir.SizeVar SizeVar Variable")
def _dimension_name(node: JsonNode) -> str:
    return node.text("name")
