"""From a Relay program to a meta Module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meta.dim import Dim, SymDim, find, unify
from meta.errors import ArgumentError, did_you_mean
from meta.frontend.relay import ast
from meta.frontend.relay.call import constant
from meta.frontend.relay.control import clean
from meta.frontend.relay.convert import Evaluator
from meta.frontend.relay.errors import RelayError, UnsupportedError, at
from meta.frontend.relay.examine import check_operators
from meta.frontend.relay.types import convert_type, fits, value_type
from meta.frontend.relay.values import Frame, OpaqueError, Value, rebuilt
from meta.ir.analysis import leaf_types
from meta.ir.expr import Var
from meta.ir.module import Module
from meta.ir.type import TensorType, TupleType, Type
from meta.tracing import recording
from meta.tracing.symbol import Symbol

Arrays = Mapping[str, "np.ndarray[Any, Any]"]
Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A converted program.

    module: its "main" takes the tensors of `inputs`, in order.  inputs: the names of Relay's parameters that are left.
    """

    module: Module
    inputs: tuple[str, ...]


def convert(
    program: ast.Program, params: Arrays | None = None, shapes: Shapes | None = None, source: str = "relay"
) -> Imported:
    """Convert a program.

    params: values of parameters of main, which become constants.  shapes: shapes of parameters instead of those that
    the program gives them.
    Raises UnsupportedError for what cannot be converted, RelayError for what makes no sense, ArgumentError for params
    and shapes that do not fit main."""
    main = program.functions.get("main")
    if main is None:
        known = ", ".join(f"@{n}" for n in program.functions) or "none"
        raise RelayError("relay", "there is no function @main", f"one of {known}")
    _check_names(main, params or {}, shapes or {})
    check_operators(program)
    given = shapes or {}
    try:
        return _converted(program, main, params or {}, given, source, {})
    except RelayError:
        if not _is_open(main, given):
            raise
        tied = _tied(program, main, params or {}, given, source)
        if not tied:
            raise
    return _converted(program, main, params or {}, given, source, tied)


def _converted(
    program: ast.Program, main: ast.Function, params: Arrays, shapes: Shapes, source: str, tied: Mapping[SymDim, Dim]
) -> Imported:
    evaluator = Evaluator(program, source)
    frame = Frame()
    inputs: list[Var] = []
    names: list[str] = []
    for param in main.params:
        if param.name in params:
            frame.known[param] = _bound(param, params[param.name])
            continue
        kind = _same_sizes(_param_type(param, shapes.get(param.name)), tied)
        made = _variables(param.name, kind, Counter(v.name for v in inputs))
        inputs += [v for _, v in made]
        names += [n for n, _ in made]
        frame.known[param] = rebuilt(_form(kind), iter([Symbol(v) for _, v in made]))
    with recording(evaluator.builder), evaluator.builder.function("main", inputs) as scope:
        value = _value(evaluator, main, frame)
        evaluator.check_tensors(value, main.place, "what @main returns")
        if not shapes:
            _check_result(main, value)
        scope.ret(value.atom if isinstance(value, Symbol) else [evaluator.packed(field) for field in value])
    module = Module({"main": scope.function, **evaluator.functions})
    return Imported(module, tuple(names))


def _value(evaluator: Evaluator, main: ast.Function, frame: Frame) -> Value:
    """What main returns; a value that no tensors stand for as it is."""
    try:
        return evaluator.forced(evaluator.evaluate(main.body, frame), main.place)
    except OpaqueError as error:
        return error.value
    except RecursionError:
        wrong = "the program nests deeper than Python's stack allows here"
        raise UnsupportedError("relay", wrong, remedy="convert it from code that is nested less") from None


def _is_open(main: ast.Function, shapes: Shapes) -> bool:
    """Whether a parameter has sizes that the program leaves open."""
    kinds = [convert_type(p.type, p.place, p.name) for p in main.params if p.name not in shapes]
    return any(not t.is_static for kind in kinds for t in leaf_types(kind) if isinstance(t, TensorType))


def _tied(program: ast.Program, main: ast.Function, params: Arrays, shapes: Shapes, source: str) -> dict[SymDim, Dim]:
    """Which open sizes have to be equal, to each other or to a number, for the program to make sense: `?` says less
    than the operators that the tensors go into. Empty when no such sizes help."""
    with unify() as parent:
        try:
            _converted(program, main, params, shapes, source, {})
        except RelayError:
            return {}
        return {size: find(size, parent) for size in parent}


def _same_sizes(kind: Type, tied: Mapping[SymDim, Dim]) -> Type:
    """A type with open sizes replaced by what they are equal to."""
    if isinstance(kind, TupleType):
        return TupleType(tuple(_same_sizes(field, tied) for field in kind.fields))
    if not isinstance(kind, TensorType) or not tied:
        return kind
    return kind.with_shape(tuple(tied.get(d, d) if isinstance(d, SymDim) else d for d in kind.shape))


def _check_names(main: ast.Function, params: Mapping[str, Any], shapes: Mapping[str, Any]) -> None:
    known = [p.name for p in main.params]
    for what, given in (("params", params), ("shapes", shapes)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ArgumentError(
                "relay",
                f"{what} has '{unknown[0]}', which is no parameter of @main",
                f"parameters: {', '.join(known)}",
                did_you_mean(unknown[0], known),
            )


def _bound(param: ast.Var, value: Any) -> Symbol:
    """A parameter as the constant it is bound to; checked against the type that the program gives it."""
    symbol = constant(np.asarray(value))
    if not isinstance(param.type, ast.UnknownType) and not fits(param.type, symbol.type):
        wanted = convert_type(param.type, param.place, param.name)
        raise ArgumentError("relay", f"'{param.name}' is {symbol.type!r}", f"{wanted!r}")
    return symbol


def _param_type(param: ast.Var, shape: Sequence[int] | None) -> Type:
    kind = convert_type(param.type, param.place, param.name)
    if shape is None:
        return kind
    if not isinstance(kind, TensorType) or kind.ndim != len(shape):
        raise ArgumentError("relay", f"shape {tuple(shape)} for '{param.name}'", f"{kind!r}")
    return kind.with_shape(tuple(shape))


def _variables(name: str, kind: Type, taken: Counter[str]) -> list[tuple[str, Var]]:
    """A variable for each tensor of a parameter, with its name in the program."""
    types = leaf_types(kind)
    names = [name] if isinstance(kind, TensorType) else [f"{name}.{i}" for i in range(len(types))]
    out: list[tuple[str, Var]] = []
    for each, tensor in zip(names, types, strict=True):
        unique, count = clean(each), 0
        while taken[unique]:
            count += 1
            unique = f"{clean(each)}{count}"  # as Relay's printer tells parameters of one name apart
        taken[unique] += 1
        out.append((f"{each}{count}" if count else each, Var(unique, tensor)))
    return out


def _form(kind: Type) -> Value:
    return tuple(map(_form, kind.fields)) if isinstance(kind, TupleType) else None


def _check_result(main: ast.Function, value: Value) -> None:
    """What is computed has the type that the program says, or an operator was misunderstood."""
    if isinstance(main.result, ast.UnknownType) or fits(main.result, value_type(value)):
        return
    wrong = at(main.place, f"@main says it returns {main.result}, what it computes is {value_type(value)!r}")
    raise RelayError("relay", wrong, "a program whose types are right")
