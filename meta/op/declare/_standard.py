"""Whole declarations in one line, for families of operators that differ in little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from meta import dtype as dtypes
from meta.errors import MetaError, TypeInferenceError
from meta.ir.type import TensorType, Type, Value, promoted_dtype
from meta.op import rules
from meta.op.registry import declare, find
from meta.schema import binary, reduce, unary
from meta.schema._dsl import DY, Schema

Accepts = Literal["any", "number", "discrete", "int", "float", "inexact"]
Result = Literal["same", "float", "bool", "sum", "part", "float part"]


def _anything(arg: str, t: TensorType) -> None:
    del arg, t


def _itself(dtype: str) -> str:
    return dtype


def _floating(dtype: str) -> str:
    return dtype if dtypes.is_inexact(dtype) else "float32"


def _summed(dtype: str) -> str:
    return dtype if dtypes.is_inexact(dtype) else "int64"


def _floating_part(dtype: str) -> str:
    return dtypes.real_dtype(_floating(dtype))


def _boolean(dtype: str) -> str:
    del dtype
    return "bool"


_CHECKS: Mapping[str, Callable[[str, TensorType], None]] = {
    "any": _anything,
    "number": rules.require_number,
    "discrete": rules.require_discrete,
    "int": rules.require_int,
    "float": rules.require_float,
    "inexact": rules.require_inexact,
}
_RESULTS: Mapping[str, Callable[[str], str]] = {
    "same": _itself,
    "float": _floating,
    "sum": _summed,
    "bool": _boolean,
    "part": dtypes.real_dtype,
    "float part": _floating_part,
}
_NOTES = {
    "same": "",
    "float": " Integers and booleans give float32.",
    "sum": " Integers and booleans give int64.",
    "bool": "",
    "part": " Complex numbers give the dtype of their parts.",
    "float part": " Integers and booleans give float32, complex numbers the dtype of their parts.",
}


def result_dtype(result: str, dtype: str) -> str:
    """The dtype of a result, by the rule of a `standard_...` declaration."""
    return _RESULTS[result](dtype)


def standard_unary(
    name: str, doc: str, *, result: Result = "float", accepts: Accepts = "any", schema: Any = unary.unary, **facts: Any
) -> None:
    """An elementwise operator of one tensor, with a result of its shape.

    result: the dtype of the result: "float" (float32 for integers and booleans), "same", "bool" or "part" (the dtype of
        the parts of complex numbers).
    accepts: "any" dtype, "number" (not bool), "discrete" (integers and bool), "float" or "inexact" (floats
        and complex numbers)."""

    def typed(x: TensorType, *_: object) -> TensorType:
        _CHECKS[accepts]("x", x)
        return x.with_dtype(result_dtype(result, x.dtype))

    facts = {"family": "unary", "pattern": "elemwise", "method": True} | facts
    declare(name, schema=schema, doc=doc + _NOTES[result], **facts)(typed)


def standard_unary_dx(name: str, *, needs: str, doc: str = "", schema: Any = None, **facts: Any) -> None:
    """The backward operator of an elementwise one; `needs` is what it reads besides dy, "x" or "y"."""
    forward = name.removesuffix("_dx")
    schema = schema or (unary.unary_dx_x if needs == "x" else unary.unary_dx_y)

    def typed(value: TensorType, dy: TensorType, *_: object) -> TensorType:
        rules.require_inexact("dy", dy)
        rules.require_alike(**{needs: value}, dy=dy)
        return dy

    facts = {"family": "unary", "pattern": "elemwise"} | facts
    declare(name, schema=schema, doc=doc or f"Gradient of {forward}.", **facts)(typed)


def _of_numbers(name: str, scalar: Callable[[Any, Any], Any], x1: object, x2: object) -> Any:
    """The value for two Python numbers. Raises TypeInferenceError where Python has none, as for a division by 0, and
    where symbolic sizes have no such operator."""
    try:
        return scalar(x1, x2)
    except MetaError:
        raise
    except TypeError:
        problem = f"{name} of the sizes {_shown(x1)} and {_shown(x2)}"
        expected = "sums, differences and products of symbolic sizes"
        raise TypeInferenceError("", problem, expected, "trace with static sizes here") from None
    except (ArithmeticError, ValueError) as error:
        problem = f"{name} of the numbers {_shown(x1)} and {_shown(x2)}: {error}"
        raise TypeInferenceError("", problem, "at least one tensor", "meta.array(...) has infinities and NaN") from None


def _shown(number: Any) -> str:
    is_long = isinstance(number, int) and number.bit_length() > 128
    return f"an integer of {number.bit_length()} bits" if is_long else str(number)


def standard_binary(
    name: str, doc: str, *, result: Result = "same", accepts: Accepts = "any", scalar: Any = None, **facts: object
) -> None:
    """An elementwise operator of two operands: shapes broadcast, dtypes promote, and `result` says what of that the
    result has ("float": float32 for integers and booleans).

    `accepts` is about the promoted dtype; `scalar` computes the result for two Python numbers."""

    def typed(x1: rules.ScalarOrType, x2: rules.ScalarOrType) -> Type:
        if not isinstance(x1, TensorType) and not isinstance(x2, TensorType):
            rules.require(scalar is not None, "both operands are numbers", "at least one tensor")
            return Value(_of_numbers(name, scalar, x1, x2))
        out = rules.broadcast_type(x1, x2, dtype=_operand_dtype(result, x1, x2))
        _CHECKS[accepts]("x1" if isinstance(x1, TensorType) else "x2", out)
        return out.with_dtype(result_dtype(result, out.dtype))

    facts = {"family": "binary", "pattern": "broadcast", "method": True} | facts
    declare(name, schema=binary.binary, doc=doc + _NOTES[result], **facts)(typed)


def _operand_dtype(result: Result, x1: rules.ScalarOrType, x2: rules.ScalarOrType) -> str:
    """The common dtype of two operands. It has to hold a Python number only if it is the dtype of the result: others
    compare `uint8 < 300` as it is, and divide by it."""
    if result == "same":
        return rules.held_dtype(x1, x2)
    dtype = promoted_dtype(x1, x2)
    for value in (x1, x2):
        if isinstance(value, int):
            rules.require_held(value, "uint64" if dtype == "uint64" and value > 0 else "int64")
    return dtype


def standard_broadcast(
    name: str, doc: str, *, schema: Any, result: Result = "same", accepts: Accepts = "any", **facts: Any
) -> None:
    """An elementwise operator of the tensors of `schema`: shapes broadcast, dtypes promote; see `standard_binary`."""

    def typed(*args: Any) -> TensorType:
        out = rules.broadcast_type(*(args[i] for i in schema.tensor_positions))
        _CHECKS[accepts](schema.names[schema.tensor_positions[0]], out)
        return out.with_dtype(result_dtype(result, out.dtype))

    facts = {"family": "binary", "pattern": "broadcast", "method": True} | facts
    declare(name, schema=schema, doc=doc + _NOTES[result], **facts)(typed)


def standard_reduce(
    name: str, doc: str, *, result: Result = "same", accepts: Accepts = "any", empty: bool = True,
    schema: Any = reduce.reduce, **facts: Any,
) -> None:  # fmt: skip
    """A reduction along axes; `empty`: whether it has a value over no elements at all."""

    def typed(x: TensorType, axis: tuple[int, ...] | int | None, *rest: Any) -> TensorType:
        _CHECKS[accepts]("x", x)
        axes = (axis,) if isinstance(axis, int) else axis
        shape = rules.reduced_shape(x.shape, axes, rest[-1])
        if not empty:
            rules.require_elements(x.shape, axes)
        return x.with_shape(shape).with_dtype(result_dtype(result, x.dtype))

    facts = {"family": "reduce", "pattern": "reduce", "method": True} | facts
    declare(name, schema=schema, doc=doc + _NOTES[result], **facts)(typed)


def standard_gradient(name: str, doc: str, *, forward: str, at: int, **facts: Any) -> None:
    """The gradient of an operator with respect to x, its first argument. It takes the arguments of that, with dy, a
    tensor of the type of the result, at position `at`."""
    op = find(forward)

    def typed(x: TensorType, *rest: Any) -> TensorType:
        dy = rest[at - 1]
        y: Any = op.infer((x, *rest[: at - 1], *rest[at:]))
        rules.require_same_shape(y=y, dy=dy)
        rules.require_same_dtype(x=x, dy=dy)
        rules.same_device(x, dy)
        return x

    args = op.schema.args
    facts = {"family": op.family, "amp": op.amp} | facts
    declare(name, schema=Schema(name, *args[:at], DY, *args[at:]), doc=doc, **facts)(typed)
