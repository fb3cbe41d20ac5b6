"""Declarations of reductions.

`axis` is None for all axes, one axis or several; () reduces none. Halves are accumulated in float32.
"""

from __future__ import annotations

from meta.ir.type import TensorType, TupleType
from meta.op import rules
from meta.op.declare._standard import result_dtype, standard_reduce
from meta.op.registry import declare
from meta.schema import reduce

standard_reduce("all", "Whether all elements are true (not 0).", result="bool", complex="analytic")
standard_reduce("any", "Whether any element is true (not 0).", result="bool", complex="analytic")
standard_reduce(
    "max",
    "The largest element; NaN if any is NaN. Equal extrema share the gradient.",
    empty=False,
    aliases=("amax",),
)
standard_reduce("mean", "The arithmetic mean; NaN for no elements.", result="float", amp="never", complex="analytic")
standard_reduce(
    "min",
    "The smallest element; NaN if any is NaN. Equal extrema share the gradient.",
    empty=False,
    aliases=("amin",),
)
standard_reduce("prod", "The product; 1 for no elements.", result="sum", amp="never", complex="analytic")
standard_reduce("sum", "The sum; 0 for no elements.", result="sum", amp="never", complex="analytic")
standard_reduce(
    "logsumexp", "log(sum(exp(x))), computed without overflow; -inf for no elements.", result="float", amp="never"
)
standard_reduce(
    "std",
    "The standard deviation: the square root of `var`.",
    result="float part",
    schema=reduce.moment,
    amp="never",
    complex="as_is",
)
standard_reduce(
    "var",
    "The sum of squared distances from the mean divided by the number of elements less `correction`; NaN if that is 0.",
    result="float part",
    schema=reduce.moment,
    amp="never",
    complex="as_is",
)


def _position(x: TensorType, axis: int | None, keepdims: bool) -> TensorType:
    rules.require_number("x", x)
    axes = None if axis is None else (axis,)
    rules.require_elements(x.shape, axes)
    return x.with_shape(rules.reduced_shape(x.shape, axes, keepdims)).with_dtype("int64")


@declare("argmax", schema=reduce.arg_reduce, pattern="reduce", method=True)
def argmax(x: TensorType, axis: int | None, keepdims: bool) -> TensorType:
    """The position of the largest element as int64: the first of equal elements, or the first NaN.
    Without an axis, the position in row-major order."""
    return _position(x, axis, keepdims)


@declare("argmin", schema=reduce.arg_reduce, pattern="reduce", method=True)
def argmin(x: TensorType, axis: int | None, keepdims: bool) -> TensorType:
    """The position of the smallest element as int64: the first of equal elements, or the first NaN.
    Without an axis, the position in row-major order."""
    return _position(x, axis, keepdims)


def _scan(name: str, doc: str) -> None:
    def typed(x: TensorType, axis: int, *_: object) -> TensorType:
        rules.axis_index(axis, x.ndim)
        return x.with_dtype(result_dtype("sum", x.dtype))

    doc += " Integers and booleans give int64."
    facts = {"pattern": "opaque", "amp": "never", "method": True, "complex": "analytic"}
    declare(name, schema=reduce.scan, doc=doc, **facts)(typed)


_scan("cumprod", "Cumulative products along an axis.")
_scan("cumsum", "Cumulative sums along an axis.")


@declare("logcumsumexp", schema=reduce.scan, pattern="opaque", amp="never", method=True)
def logcumsumexp(x: TensorType, axis: int, exclusive: bool, reverse: bool) -> TensorType:
    """log(cumsum(exp(x))) along an axis, computed without overflow. Integers and booleans give float32."""
    rules.axis_index(axis, x.ndim)
    return x.with_dtype(result_dtype("float", x.dtype))


def _running(name: str, extremum: str) -> None:
    def typed(x: TensorType, axis: int) -> TupleType:
        rules.axis_index(axis, x.ndim)
        return TupleType((x, x.with_dtype("int64")))

    doc = (
        f"The {extremum} element up to each along an axis, and its position as int64: the last of equal ones. NaN wins."
    )
    outputs = ("values", "indices")
    declare(name, schema=reduce.running, doc=doc, pattern="opaque", amp="keep", method=True, outputs=outputs)(typed)


_running("cummax", "largest")
_running("cummin", "smallest")


@declare("max_dx", schema=reduce.extremum_dx, pattern="reduce")
def max_dx(x: TensorType, y: TensorType, dy: TensorType, axis: tuple[int, ...] | None, keepdims: bool) -> TensorType:
    """Gradient of max and min: dy shared equally by the elements of x that equal y."""
    _require_reduced(x, axis, keepdims, y=y, dy=dy)
    return x


@declare("prod_dx", schema=reduce.prod_dx, pattern="reduce", amp="never", complex="analytic")
def prod_dx(x: TensorType, dy: TensorType, axis: tuple[int, ...] | None, keepdims: bool) -> TensorType:
    """Gradient of prod: dy times the product of the other elements, also at 0 and infinities, where torch divides
    the product by the element, which is NaN for an infinite one; NaN at NaN."""
    _require_reduced(x, axis, keepdims, dy=dy)
    return x


def _require_reduced(x: TensorType, axis: tuple[int, ...] | None, keepdims: bool, **types: TensorType) -> None:
    rules.require_inexact("x", x)
    result = x.with_shape(rules.reduced_shape(x.shape, axis, keepdims))
    rules.require_same_shape(result=result, **types)
    rules.require_same_dtype(x=x, **types)


@declare("sum_to", schema=reduce.sum_to, pattern="reduce", amp="never", complex="analytic")
def sum_to(x: TensorType, shape: tuple[int, ...]) -> TensorType:
    """x summed to a shape that broadcasts to the shape of x: the gradient of broadcasting."""
    rules.require_number("x", x)
    full = rules.broadcast_shapes(x.shape, shape)
    rules.require(
        rules.same_shape(full, x.shape),
        f"{rules.show(shape)} does not broadcast to {rules.show(x.shape)}",
        "a shape that does",
    )
    return x.with_shape(shape)
