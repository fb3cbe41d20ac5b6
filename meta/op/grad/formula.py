"""Gradient formulas: parsed, checked against the registry, and compiled to Python; the values they read are derived.

A formula is an expression over operators (calls by name, `mypkg::name(...)` for those in a namespace), helpers
(`__all__` of meta/op/grad/support.py and of meta/op/grad/<family>.py), the names of the forward arguments, `y` or `y.i`
(results), `dy` or `dy.i` (their gradients), `needs` (which gradients are wanted) and the values that `where` of its
entry defines. An operator with an argument named `y` or `dy` (the backward operators) names its result `z` and the
gradient `dz`. A bare name is a function in meta/op/grad/<family>.py: its parameter names are its inputs, and a
parameter annotated `TensorType` receives only the type.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from meta.errors import RegistryError, did_you_mean, line_of_function
from meta.op.registry import SEPARATOR, Op, get
from meta.schema._dsl import Arg

_INDEXED = re.compile(r"\b(d?[yz])\.(\d+)\b")
_NAMESPACED = re.compile(r"\b([^\W\d]\w*)::([^\W\d]\w*)(?=\s*\()")
_TYPE_ONLY = ("shape", "dtype", "ndim", "size", "device", "type")
_OPERATORS: Mapping[type, str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.Pow: "power",
    ast.MatMult: "matmul", ast.FloorDiv: "floor_divide",
}  # fmt: skip

_SYMBOLS: Mapping[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@", ast.FloorDiv: "//",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.Gt: ">", ast.LtE: "<=", ast.GtE: ">=", ast.Is: "is",
    ast.IsNot: "is not",
}  # fmt: skip
"""Python's operators between attributes."""


class FormulaError(RegistryError):
    """A formula that does not parse or does not fit the registry."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A compiled formula.

    source: Python over `meta` (the public operators), `grad_<family>` for each of `imports`, and `functions`.
    values: names of the arguments and results whose values it reads.
    functions: Python functions that it calls, by the names that `source` has for them.
    """

    source: str
    values: frozenset[str]
    imports: frozenset[str]
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])


def compile_formula(op: Op, text: str | Callable[..., Any], binding: str, definitions: Collection[str] = ()) -> Formula:
    """Compile one formula of `op`: text, which may use the names in `definitions`, or a function, which the compiled
    formula calls by the name `binding`.

    Raises FormulaError that quotes it."""
    if callable(text):
        return replace(_function_call(op, binding, text, definitions=definitions), functions={binding: text})
    if not isinstance(text, str):
        raise FormulaError(op.name, f"a formula is {type(text).__name__} {text!r}", "text or a function")
    text = text.strip()
    if text.isidentifier() and text not in {*_scope(op), *definitions}:
        function = find_function(op, text)
        module = function.__module__.rsplit(".", 1)[-1]
        return _function_call(op, f"grad_{module}.{text}", function, frozenset({module}), definitions)
    compiler = _Compiler(op, text, definitions)
    try:
        tree = ast.parse(_NAMESPACED.sub(r"\1.\2", _INDEXED.sub(r"\1_\2", text)), mode="eval").body
    except SyntaxError as error:
        raise FormulaError(op.name, f"'{text}' is not an expression: {error.msg}") from None
    source, _ = compiler.visit(tree)
    return Formula(source, frozenset(compiler.values), frozenset(compiler.imports))


def result_names(op: Op, stem: str) -> list[str]:
    """`y` for one result, `y_0, y_1, ...` for several, `y` (a tuple) if their number depends on the call; z replaces y
    if an argument has that name. `stem` is "y" or "dy"."""
    if {"y", "dy"} & set(op.schema.names):
        stem = stem.replace("y", "z")
    if not op.outputs or op.outputs == ("*",):
        return [stem]
    return [f"{stem}_{i}" for i in range(len(op.outputs))]


def _scope(op: Op) -> dict[str, str]:
    """Names a formula may use -> "tensor" or "attr"."""
    scope = {arg.name: "tensor" if arg.is_tensor else "attr" for arg in op.schema.args}
    scope |= dict.fromkeys([*result_names(op, "y"), *result_names(op, "dy")], "tensor")
    return scope | {"needs": "attr"}


def _function_call(
    op: Op, callee: str, function: Callable[..., Any], imports: frozenset[str] = frozenset(),
    definitions: Collection[str] = (),
) -> Formula:  # fmt: skip
    """A call of `function` with the arguments and results that its parameters name. Parameters that a
    functools.partial has bound, and those with a default that name nothing, are left to it."""
    scope = _scope(op) | dict.fromkeys(definitions, "defined")
    values: set[str] = set()
    passed: list[str] = []
    by_keyword = False
    for parameter in _parameters(op, function):
        local = parameter.name
        if local in getattr(function, "keywords", ()) or (
            local not in scope and parameter.default is not parameter.empty
        ):
            by_keyword = True
            continue
        if local not in scope or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
            shown = f"{getattr(function, '__name__', repr(function))}() has a parameter '{stars}{local}'"
            location = line_of_function(function) or None
            raise FormulaError(op.name, shown, f"some of {', '.join(scope)}", location=location)
        if scope[local] == "tensor" and "TensorType" not in str(parameter.annotation):
            values.add(local)
        by_keyword = by_keyword or parameter.kind is parameter.KEYWORD_ONLY
        passed.append(f"{local}={local}" if by_keyword else local)
    return Formula(f"{callee}({', '.join(passed)})", frozenset(values), imports)


def _parameters(op: Op, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        wrong = f"the parameters of the gradient function {function!r} are unknown"
        raise FormulaError(op.name, wrong, "a Python function", "wrap it: lambda dy: ...") from error


def find_function(op: Op, name: str) -> Callable[..., Any]:
    """The function `name` in the gradient module of `op`'s family, or in the support module."""
    for module in (f"meta.op.grad.{op.family}", "meta.op.grad.support"):
        if find_spec(module) is not None:
            function = getattr(import_module(module), name, None)
            if function is not None:
                return function
    arguments = ", ".join(_scope(op))
    raise FormulaError(
        op.name,
        f"unknown name '{name}'",
        f"an argument ({arguments}) or a function in meta/op/grad/{op.family}.py or support.py",
    )


def _callee(node: ast.expr) -> str | None:
    """The name of what a call in a formula calls; None for something other than a name."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}{SEPARATOR}{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def _find_helper(module: str, name: str) -> Callable[..., Any] | None:
    """The function `name` of meta/op/grad/<module>.py that formulas may call, None if there is none."""
    path = f"meta.op.grad.{module}"
    helpers = import_module(path) if find_spec(path) is not None else None
    return getattr(helpers, name) if name in getattr(helpers, "__all__", ()) else None


class _Compiler:
    """Walks one formula; each visit returns (source, "tensor" | "attr")."""

    def __init__(self, op: Op, text: str, definitions: Collection[str]) -> None:
        self.op = op
        self.text = text
        self.definitions = definitions
        self.scope = _scope(op) | dict.fromkeys(definitions, "tensor")
        self.values: set[str] = set()
        self.imports: set[str] = set()

    def fail(self, why: str) -> FormulaError:
        return FormulaError(self.op.name, f"in '{self.text}': {why}")

    def visit(self, node: ast.AST) -> tuple[str, str]:
        handler = getattr(self, f"visit_{type(node).__name__}", None)
        if handler is None:
            raise self.fail(f"{type(node).__name__} is not allowed in a formula")
        return handler(node)

    def visit_Name(self, node: ast.Name) -> tuple[str, str]:
        kind = self.scope.get(node.id)
        if kind is None:
            raise self.fail(f"unknown name '{node.id}' {did_you_mean(node.id, self.scope)}")
        if kind == "tensor" and node.id not in self.definitions:
            self.values.add(node.id)
        return node.id, kind

    def visit_Constant(self, node: ast.Constant) -> tuple[str, str]:
        return repr(node.value), "attr"

    def visit_Tuple(self, node: ast.Tuple) -> tuple[str, str]:
        return "(" + "".join(self.visit(e)[0] + ", " for e in node.elts) + ")", "attr"

    def visit_Attribute(self, node: ast.Attribute) -> tuple[str, str]:
        if not isinstance(node.value, ast.Name) or self.scope.get(node.value.id) != "tensor":
            raise self.fail("only tensors have attributes here")
        if node.attr not in _TYPE_ONLY:
            raise self.fail(f"'.{node.attr}' is not one of {', '.join(_TYPE_ONLY)}")
        return f"{node.value.id}.{node.attr}", "attr"

    def visit_Subscript(self, node: ast.Subscript) -> tuple[str, str]:
        source, kind = self.visit(node.value)
        return f"{source}[{self.visit(node.slice)[0]}]", kind

    def visit_Slice(self, node: ast.Slice) -> tuple[str, str]:
        bounds = (self.visit(bound)[0] if bound else "" for bound in (node.lower, node.upper))
        return ":".join(bounds), "attr"

    def visit_UnaryOp(self, node: ast.UnaryOp) -> tuple[str, str]:
        source, kind = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return f"(not {source})", "attr"
        if kind == "tensor":
            return f"meta.negative({source})", "tensor"
        return f"(-{source})", "attr"

    def visit_BinOp(self, node: ast.BinOp) -> tuple[str, str]:
        name = _OPERATORS.get(type(node.op))
        if name is None:
            raise self.fail(f"operator {type(node.op).__name__} is not allowed")
        (left, a), (right, b) = self.visit(node.left), self.visit(node.right)
        if "tensor" in (a, b):
            return f"meta.{name}({left}, {right})", "tensor"
        return f"({left} {_SYMBOLS[type(node.op)]} {right})", "attr"

    def visit_IfExp(self, node: ast.IfExp) -> tuple[str, str]:
        test, body, orelse = self.visit(node.test)[0], self.visit(node.body), self.visit(node.orelse)
        return f"({body[0]} if {test} else {orelse[0]})", body[1]

    def visit_Compare(self, node: ast.Compare) -> tuple[str, str]:
        parts = [self.visit(e)[0] for e in (node.left, *node.comparators)]
        out = parts[0]
        for op, part in zip(node.ops, parts[1:], strict=True):
            if type(op) not in _SYMBOLS:
                raise self.fail(f"{type(op).__name__} is not allowed in a formula")
            out += f" {_SYMBOLS[type(op)]} {part}"
        return f"({out})", "attr"

    def visit_Call(self, node: ast.Call) -> tuple[str, str]:
        name = _callee(node.func)
        if name is None:
            raise self.fail("only operators and helpers are called")
        for module in ("support", self.op.family):
            helper = _find_helper(module, name)
            if helper is not None:
                return self._helper_call(node, module, helper)
        args = [self.visit(a) for a in node.args]
        keywords = {k.arg: self.visit(k.value) for k in node.keywords if k.arg}
        listed = ", ".join([a for a, _ in args] + [f"{k}={v}" for k, (v, _) in keywords.items()])
        try:
            callee = get(name)
        except RegistryError as error:
            raise self.fail(error.summary) from None
        self._check_call(callee, [k for _, k in args], {k: v[1] for k, v in keywords.items()})
        return f"{callee.path}({listed})", "tensor"

    def _helper_call(self, node: ast.Call, module: str, function: Callable[..., Any]) -> tuple[str, str]:
        """A call of a helper. A parameter annotated TensorType reads only the type of its argument."""
        self.imports.add(module)
        parameters = list(inspect.signature(function).parameters.values())
        parts: list[str] = []
        for parameter, arg in zip(parameters, node.args, strict=False):
            by_type = "TensorType" in str(parameter.annotation) and isinstance(arg, ast.Name)
            before = set(self.values)
            parts.append(self.visit(arg)[0])
            if by_type:
                self.values = before
        parts += [f"{k.arg}={self.visit(k.value)[0]}" for k in node.keywords]
        return f"grad_{module}.{function.__name__}({', '.join(parts)})", "tensor"

    def _check_call(self, callee: Op, args: list[str], keywords: dict[str, str]) -> None:
        names = callee.schema.names
        if len(args) > len(names) or not set(keywords) <= set(names):
            raise self.fail(f"{callee.schema!r} does not take these arguments")
        kinds = dict(zip(names, args, strict=False)) | keywords
        for arg in callee.schema.args:
            self._check_argument(callee, arg, kinds.get(arg.name))

    def _check_argument(self, callee: Op, arg: Arg, kind: str | None) -> None:
        if kind is None and arg.required:
            raise self.fail(f"{callee.name} needs '{arg.name}'")
        if kind == "tensor" and not arg.is_tensor:
            raise self.fail(f"'{arg.name}' of {callee.name} is not a tensor")
        if kind == "attr" and arg.type.role == "tensor" and not arg.type.optional:
            raise self.fail(f"'{arg.name}' of {callee.name} is a tensor")
