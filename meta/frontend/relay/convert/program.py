"""Conversion of a Relay program to a meta Module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meta.dim import Dim, SymDim
from meta.errors import ArgumentError, TypeInferenceError
from meta.frontend.reader import ConvertedProgram, errors_located
from meta.frontend.relay import ast
from meta.frontend.relay.convert.call import constant
from meta.frontend.relay.convert.evaluator import ExpressionEvaluator
from meta.frontend.relay.convert.operator_use import READER, operators
from meta.frontend.relay.convert.parameter_names import matched
from meta.frontend.relay.convert.type_mapping import convert_type, fits, value_type
from meta.frontend.relay.convert.values import (
    UNCONVERTED,
    Frame,
    OpaqueError,
    Value,
    check_tensors,
    identifier,
)
from meta.frontend.relay.errors import RelayError, UnsupportedError, located, place_text
from meta.ir.builder import Module
from meta.ir.expr import Var
from meta.ir.type import TensorType, TupleType, Type, leaf_types
from meta.tracing import recording
from meta.tracing.symbol import Symbol
from meta.tree import with_leaves

Arrays = Mapping[str, "np.ndarray[Any, Any]"]
Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A request to convert: a program, values and shapes of parameters of its main, and its name."""

    program: ast.RelayProgram
    main: ast.RelayFunction
    params: Arrays
    shapes: Shapes
    source: str


def convert(
    program: ast.RelayProgram, params: Arrays | None = None, shapes: Shapes | None = None, source: str = "relay"
) -> ConvertedProgram:
    """Convert a program.

    params: values of parameters of main, which become constants.  shapes: shapes of parameters of main, in place of
    the declared ones.  source: the name of the program.
    Raises UnsupportedError for what cannot be converted, all of it at once, RelayError for invalid programs, and
    ArgumentError for params and shapes that do not fit main."""
    main = program.functions.get("main")
    if main is None:
        names = ", ".join(f"@{n}" for n in program.functions) or "none"
        raise RelayError("relay", f"there is no function @main; the functions are: {names}", "a function @main")
    names = matched(program, params or {}, "params")
    sizes = matched(program, shapes or {}, "shapes")
    request = _Request(
        program,
        main,
        {names[name]: value for name, value in (params or {}).items()},
        {sizes[name]: shape for name, shape in (shapes or {}).items()},
        source,
    )
    return READER.converted(lambda tied: _converted(request, tied))


def _converted(request: _Request, tied: Mapping[SymDim, Dim]) -> ConvertedProgram:
    evaluator = ExpressionEvaluator(request.program, request.source)
    with errors_located(RelayError, UnsupportedError, "relay", lambda: place_text(evaluator.place)):
        return _evaluated(request, evaluator, tied)


def _evaluated(request: _Request, evaluator: ExpressionEvaluator, tied: Mapping[SymDim, Dim]) -> ConvertedProgram:
    main = request.main
    emission = evaluator.emission
    frame = Frame()
    inputs: list[Var] = []
    names: list[str] = []
    for param in main.params:
        evaluator.place = param.place
        if param.name in request.params:
            frame.values[param] = _bound(param, request.params[param.name])
            continue
        try:
            kind = _with_tied_sizes(_param_type(param, request.shapes.get(param.name)), tied)
        except UnsupportedError as error:
            evaluator.unsupported[error.problem] = error
            frame.values[param] = UNCONVERTED
            continue
        variables = _variables(param.name, kind, Counter(v.name for v in inputs))
        inputs += [v for _, v in variables]
        names += [n for n, _ in variables]
        frame.values[param] = with_leaves(_form(kind), [Symbol(v) for _, v in variables])
    with recording(emission.builder), emission.builder.function("main", inputs) as scope:
        value = _result(request, evaluator, frame)
        READER.check_supported(operators(request.program), evaluator.unsupported.values())
        check_tensors(value, main.place, "the result of @main")
        if not request.shapes:
            _check_result(main, value)
        scope.ret(value.atom if isinstance(value, Symbol) else [emission.packed(field) for field in value])
    module = Module({"main": scope.function, **emission.functions})
    return ConvertedProgram(module, tuple(names))


def _result(request: _Request, evaluator: ExpressionEvaluator, frame: Frame) -> Value:
    """The result of main, with conditionals for Choices between tensors. Calls that are not supported are an error."""
    try:
        return evaluator.branches.forced(evaluator.evaluate(request.main.body, frame), request.main.place)
    except OpaqueError as error:
        return error.value
    except RecursionError:
        problem = "the program nests deeper than Python's stack allows here"
        raise UnsupportedError("relay", problem, remedy="convert it from code that is nested less") from None
    except RelayError:
        # Later errors follow from a call without a value.
        READER.check_supported(operators(request.program), evaluator.unsupported.values())
        raise


# --- parameters ------------------------------------------------------------------------------------------------------


def _bound(param: ast.Var, value: object) -> Symbol:
    """A parameter as a constant, checked against its declared type."""
    symbol = constant(np.asarray(value))
    if not isinstance(param.type, ast.UnknownType) and not fits(param.type, symbol.type):
        declared = convert_type(param.type, param.place, param.name)
        raise ArgumentError("relay", f"'{param.name}' is {symbol.type!r}", f"{declared!r}")
    return symbol


def _param_type(param: ast.Var, shape: Sequence[int] | None) -> Type:
    kind = convert_type(param.type, param.place, param.name)
    if shape is None:
        return kind
    if not isinstance(kind, TensorType) or kind.ndim != len(shape):
        raise ArgumentError("relay", f"shape {tuple(shape)} for '{param.name}'", f"a shape for {kind!r}")
    try:
        return kind.with_shape(tuple(shape))
    except TypeInferenceError as error:
        raise ArgumentError("relay", f"shapes['{param.name}']: {error.problem}", error.expected) from None


def _variables(name: str, kind: Type, uses: Counter[str]) -> list[tuple[str, Var]]:
    """A variable for each tensor of a parameter, with its name in the program."""
    types = leaf_types(kind)
    names = [name] if isinstance(kind, TensorType) else [f"{name}.{i}" for i in range(len(types))]
    variables: list[tuple[str, Var]] = []
    for each, tensor in zip(names, types, strict=True):
        unique, count = identifier(each), 0
        while uses[unique]:
            count += 1
            unique = f"{identifier(each)}{count}"  # as Relay's printer numbers parameters of one name
        uses[unique] += 1
        variables.append((f"{each}{count}" if count else each, Var(unique, tensor)))
    return variables


def _form(kind: Type) -> Value:
    return tuple(map(_form, kind.fields)) if isinstance(kind, TupleType) else None


def _check_result(main: ast.RelayFunction, value: Value) -> None:
    """Check the result against its declared type: a mismatch means that an operator was misunderstood."""
    if isinstance(main.result, ast.UnknownType) or fits(main.result, value_type(value)):
        return
    problem = located(main.place, f"@main declares the result {main.result} and computes {value_type(value)!r}")
    raise RelayError("relay", problem, "a program whose types are right")


def _with_tied_sizes(kind: Type, tied: Mapping[SymDim, Dim]) -> Type:
    if isinstance(kind, TupleType):
        return TupleType(tuple(_with_tied_sizes(field, tied) for field in kind.fields))
    if not isinstance(kind, TensorType) or not tied:
        return kind
    return kind.with_shape(tuple(tied.get(d, d) if isinstance(d, SymDim) else d for d in kind.shape))
