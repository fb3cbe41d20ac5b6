"""The classes of nodes in Relay JSON: a row of `NODES` for each, with a function that builds its value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import fields as members
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

    def pattern(self, value: object) -> ast.Pattern:
        return self.checked(value, ast.PATTERNS, "a pattern")

    def patterns(self, value: object) -> tuple[ast.Pattern, ...]:
        return tuple(self.pattern(each) for each in self.items(value))

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


_CONVERSIONS: dict[str, Callable[[JsonNode, Any], Any]] = {
    "Expr": JsonNode.expr, "tuple[Expr, ...]": JsonNode.exprs, "Type": JsonNode.type,
    "tuple[Type, ...]": JsonNode.types, "Pattern": JsonNode.pattern, "tuple[Pattern, ...]": JsonNode.patterns,
    "Var": JsonNode.var, "Attributes": JsonNode.mapping, "tuple[str, ...]": JsonNode.names,
}  # fmt: skip
"""How the value of a field is checked, by its annotation in the syntax tree."""


def _record(names: str, kind: type[Any], *fields: str) -> None:
    """Register a class of the syntax tree: the node has its first fields, in their order."""
    conversions = [_CONVERSIONS[str(field.type).replace("ast.", "")] for field in members(kind)[: len(fields)]]
    has_place = any(field.name == "place" for field in members(kind))

    def build(node: JsonNode, *values: object) -> Any:
        converted = [convert(node, value) for convert, value in zip(conversions, values, strict=True)]
        return kind(*converted, place=node.place) if has_place else kind(*converted)

    _node(names, *fields)(build)


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


@_node("relay.TupleGetItem", "tuple_value")
def _field(node: JsonNode, value: object) -> ast.Expr:
    index = node.graph.integer(node.index, "index")
    if not 0 <= index < 10**9:
        raise node.error(f"field {index} of a tuple")
    return ast.TupleGetItem(node.expr(value), index, node.place)


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


@_node("relay.Match", "data", "clauses")
def _match(node: JsonNode, value: object, clauses: object) -> ast.Expr:
    checked: list[tuple[ast.Pattern, ast.Expr]] = []
    for each in node.items(clauses):
        pair: _Clause = node.checked(each, _Clause, "clauses")
        checked.append((pair.pattern, pair.body))
    return ast.Match(node.expr(value), tuple(checked), node.graph.field(node.index, "complete") != "0", node.place)


@dataclass(frozen=True, slots=True)
class _Clause:
    pattern: ast.Pattern
    body: ast.Expr


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


@_node("TypeVar GlobalTypeVar relay.TypeVar relay.GlobalTypeVar")
def _type_name(node: JsonNode) -> ast.Type:
    return ast.NamedType(node.text("name_hint"))


@_node("TypeCall relay.TypeCall", "func", "args")
def _type_call(node: JsonNode, head: object, args: object) -> ast.Type:
    return ast.NamedType(node.checked(head, ast.NamedType, "a name").name, node.types(args))


# --- classes of the syntax tree with the fields of the node ---

_record("relay.Call", ast.Call, "op", "args", "attrs")
_record("relay.Tuple", ast.Tuple, "fields")
_record("relay.Let", ast.Let, "var", "value", "body")
_record("relay.If", ast.If, "cond", "true_branch", "false_branch")
_record("relay.RefCreate", ast.RefCreate, "value")
_record("relay.RefRead", ast.RefRead, "ref")
_record("relay.RefWrite", ast.RefWrite, "ref", "value")
_record("relay.Clause", _Clause, "lhs", "rhs")
_record("relay.PatternWildcard", ast.WildcardPattern)
_record("relay.PatternVar", ast.VarPattern, "var")
_record("relay.PatternTuple", ast.TuplePattern, "patterns")
_record("TupleType relay.TupleType", ast.TupleType, "fields")
_record("FuncType relay.FuncType", ast.FuncType, "arg_types", "ret_type", "type_params")
_record("relay.RefType RelayRefType relay.RelayRefType", ast.RefType, "value")
_record("IncompleteType relay.IncompleteType", ast.UnknownType)


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
