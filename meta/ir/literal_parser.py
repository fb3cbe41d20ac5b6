"""The parts of IR text below expressions: sizes, attribute values, types and constants.

    value    = sum | "(" [value {"," value} [","]] ")" | "{" [value ":" value {"," value ":" value}] "}"
             | string | float | "True" | "False" | "None" | "inf" | "nan" | "device" "(" string ")"
             | "complex" "(" value "," value ")"
    sum      = product {("+" | "-") product}          product = ["-"] factor {"*" factor}
    factor   = int | name | "(" sum ")" "//" "(" sum ")"
    type     = "Tensor" "[" value "," string ["," string] "]" | "(" [type {"," type} [","]] ")"
             | "fn" "(" [type {"," type}] ")" "->" type | "Value" "(" value ")"
    constant = "const" "(" (number | "[" [number {"," number}] "]") "," string ["," string] ")"

Only polynomials in sizes are evaluated, with products of single terms and bounded numbers, so the work is linear in the
text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from meta.device import device
from meta.dim import VALUES, Dim, Shape, SymDim, minimum, sym, total
from meta.dtype import canonical
from meta.errors import MetaError
from meta.ir.expr import Constant
from meta.ir.lexer import Cursor
from meta.ir.printer import decode_data, decode_items
from meta.ir.type import FunctionType, TensorType, TupleType, Type, Value, tensor_type
from meta.limits import MAX_DIGITS, MAX_SOURCE

_T = TypeVar("_T")
_MAX_BITS = 4 * MAX_DIGITS


def listed(cursor: Cursor, item: Callable[[Cursor], _T], close: str) -> tuple[list[_T], bool]:
    """Items up to and with the mark `close`, separated by commas, and whether a comma came last."""
    items: list[_T] = []
    comma = False
    with cursor.nested():
        while not cursor.accept(close):
            if items and not comma:
                cursor.unexpected(f"',' or '{close}'")
            cursor.count_item()
            items.append(item(cursor))
            comma = cursor.accept(",")
    return items, comma


def checked(cursor: Cursor, offset: int, make: Callable[[], _T]) -> _T:
    """`make()`; an error of this package is raised again as an error about the text at `offset`."""
    try:
        return make()
    except MetaError as error:
        problem = error.problem if error.subject in ("", "parse") else f"[{error.subject}] {error.problem}"
        raise cursor.error(offset, problem, error.expected, error.remedy) from error


def parse_value(cursor: Cursor) -> Any:
    """An attribute value."""
    start = cursor.token.start
    first = _product(cursor)
    if not (cursor.looking_at("+") or cursor.looking_at("-")):
        return first
    terms = [_size(cursor, first)]
    while cursor.looking_at("+") or cursor.looking_at("-"):
        sign = 1 if cursor.take().text == "+" else -1
        cursor.count_item()
        terms.append(_size(cursor, _product(cursor)) * sign)
    return checked(cursor, start, lambda: total(terms))


def _product(cursor: Cursor) -> Any:
    start = cursor.token.start
    negative = cursor.accept("-")
    out = _factor(cursor)
    while cursor.accept("*"):
        factor = _size(cursor, _factor(cursor))
        if isinstance(out, SymDim) and isinstance(factor, SymDim) and max(len(out.terms), len(factor.terms)) > 1:
            cursor.fail_at(start, "a product of sums", "products of numbers, names and quotients")
        out = _times(cursor, start, _size(cursor, out), factor)
    if not negative:
        return out
    if isinstance(out, bool) or not isinstance(out, (int, float, SymDim)):
        cursor.fail_at(start, "'-' before a value that is not a number")
    return -out


def _times(cursor: Cursor, start: int, a: Dim, b: Dim) -> Dim:
    """The product of two sizes; raises IRError beyond the limits of sizes and numbers."""
    value = checked(cursor, start, lambda: a * b)
    numbers = (value,) if isinstance(value, int) else (coefficient for _, coefficient in value.terms)
    if any(number.bit_length() > _MAX_BITS for number in numbers):
        cursor.fail_at(start, "a product with too many digits", f"at most {MAX_DIGITS}")
    return value


def _size(cursor: Cursor, value: Any) -> Dim:
    if isinstance(value, bool) or not isinstance(value, (int, SymDim)):
        cursor.fail("arithmetic on a value that is not a size", "an int or the name of a size")
    return value


def _factor(cursor: Cursor) -> Any:
    token = cursor.token
    if cursor.accept("("):
        return _parenthesized(cursor)
    if cursor.accept("{"):
        return dict(listed(cursor, _entry, "}")[0])
    if token.kind == "number":
        return parse_number(cursor)
    if token.kind == "string":
        return cursor.string("a string")
    name = cursor.name("name", "a value").text
    if name == "device" and cursor.accept("("):
        where = cursor.string("the name of a device")
        cursor.expect(")")
        return checked(cursor, token.start, lambda: device(where))
    if name == "complex" and cursor.accept("("):
        return _complex(cursor, token.start)
    if name == "min" and cursor.accept("("):
        return _least(cursor, token.start)
    return VALUES[name] if name in VALUES else checked(cursor, token.start, lambda: sym(name))


def _least(cursor: Cursor, start: int) -> Dim:
    sizes, _ = listed(cursor, parse_value, ")")
    if len(sizes) != 2:
        cursor.fail_at(start, f"the minimum of {len(sizes)} values", "two sizes")
    return checked(cursor, start, lambda: minimum(_size(cursor, sizes[0]), _size(cursor, sizes[1])))


def _complex(cursor: Cursor, start: int) -> complex:
    parts, _ = listed(cursor, parse_value, ")")
    if len(parts) != 2 or not all(isinstance(part, (int, float)) for part in parts):
        cursor.fail_at(start, "a complex number of other values", "its real and its imaginary part")
    return complex(*parts)


def _parenthesized(cursor: Cursor) -> Any:
    start = cursor.token.start
    items, comma = listed(cursor, parse_value, ")")
    if len(items) != 1 or comma:
        return tuple(items)
    if not cursor.accept("//"):
        return items[0]
    top = _size(cursor, items[0])
    cursor.expect("(")
    bottom = _size(cursor, parse_value(cursor))
    cursor.expect(")")
    if bottom == 0:
        cursor.fail_at(start, "division by zero")
    return checked(cursor, start, lambda: top // bottom)


def _entry(cursor: Cursor) -> tuple[Any, Any]:
    start = cursor.token.start
    key = parse_value(cursor)
    if not isinstance(key, (int, str)):
        cursor.fail_at(start, "a key of another kind", "an int or a string")
    cursor.expect(":")
    return key, parse_value(cursor)


def parse_number(cursor: Cursor) -> int | float:
    """A number without a sign."""
    token = cursor.expect_kind("number", "a number")
    if len(token.text) > MAX_DIGITS:
        cursor.fail_at(token.start, f"a number of {len(token.text)} characters", f"at most {MAX_DIGITS}")
    return int(token.text) if token.text.isdigit() else float(token.text)


def parse_type(cursor: Cursor) -> Type:
    """A type."""
    with cursor.nested():
        token = cursor.token
        if cursor.accept("("):
            fields = tuple(listed(cursor, parse_type, ")")[0])
            return checked(cursor, token.start, lambda: TupleType(fields))
        if cursor.accept("fn"):
            cursor.expect("(")
            params, _ = listed(cursor, parse_type, ")")
            cursor.expect("->")
            result = parse_type(cursor)
            return checked(cursor, token.start, lambda: FunctionType(tuple(params), result))
        if cursor.accept("Value"):
            cursor.expect("(")
            value = parse_value(cursor)
            cursor.expect(")")
            return Value(value)
        if token.text != "Tensor":
            cursor.unexpected('a type (Tensor[(2, 3), "float32"], a tuple of types, fn(...) -> ...)')
        return parse_tensor_type(cursor)


def parse_tensor_type(cursor: Cursor) -> TensorType:
    """`Tensor[(2, n), "float32"]`, with the device behind when it is not the CPU."""
    start = cursor.expect("Tensor").start
    cursor.expect("[")
    place = cursor.token.start
    shape = parse_value(cursor)
    if not _is_shape(shape):
        cursor.fail_at(place, "not a shape", "a tuple of sizes: (2, 3), (n,), ()")
    cursor.expect(",")
    dtype, on = _dtype_and_device(cursor, "]")
    return checked(cursor, start, lambda: tensor_type(cast(Shape, shape), dtype, on))


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(d, SymDim) or (isinstance(d, int) and not isinstance(d, bool) and d >= 0)
        for d in value  # pyright: ignore[reportUnknownVariableType]
    )


def _dtype_and_device(cursor: Cursor, close: str) -> tuple[str, str]:
    start = cursor.token.start
    name = cursor.string("a dtype")
    on = cursor.string("a device") if cursor.accept(",") else "cpu"
    cursor.expect(close)
    return checked(cursor, start, lambda: canonical(name, "parse")), on


def parse_constant(cursor: Cursor) -> Constant:
    """`const(1.5, "float32")`, `const([1, 2], "int64", "cuda")`."""
    start = cursor.expect("const").start
    cursor.expect("(")
    scalar = not cursor.accept("[")
    items = [parse_value(cursor)] if scalar else listed(cursor, parse_value, "]")[0]
    if not all(isinstance(x, (bool, int, float)) for x in items):
        cursor.fail_at(start, "a constant of values that are not numbers")
    cursor.expect(",")
    dtype, on = _dtype_and_device(cursor, ")")
    kind = checked(cursor, start, lambda: tensor_type(() if scalar else (len(items),), dtype, on))
    return Constant(checked(cursor, start, lambda: decode_items(items, kind)), kind)


def parse_constants(cursor: Cursor) -> dict[str, Constant]:
    """The section `constants { $0: Tensor[...] = "base64" ... }`, behind its first word."""
    out: dict[str, Constant] = {}
    cursor.expect("{")
    while not cursor.accept("}"):
        cursor.items = 0
        reference = cursor.name("ref", "a constant such as $0, or '}'")
        cursor.expect(":")
        kind = parse_tensor_type(cursor)
        cursor.expect("=")
        if cursor.looking_at("..."):
            cursor.fail(
                "the data of this constant was left out when the text was printed", remedy="print with data=True"
            )
        place = cursor.token.start
        data = cursor.string("the data as a base64 string", MAX_SOURCE)
        if reference.text in out:
            cursor.fail_at(reference.start, f"{reference.text} is defined twice")
        out[reference.text] = Constant(checked(cursor, place, lambda: decode_data(data, kind)), kind)  # noqa: B023
    return out
