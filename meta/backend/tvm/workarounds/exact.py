"""Arithmetic that TVM does not simplify.

TVM's simplifier treats floats as real numbers: x * 0, x - x and 0 / x become 0, x == x becomes true, (x + y) - x
becomes y, not (x < y) becomes y <= x. For NaN, infinities, -0.0 and rounded sums these are other values. `exact`
replaces the arithmetic and the comparisons of a function by operators of meta, and the end of lowering, after the last
simplification, turns those back. LLVM and NVRTC see what they saw before. TVM also computes bfloat16 in float32 without
rounding in between, which `exact` adds, and casts literals without rounding, unless they are opaque.

Integers wrap around. TVM's simplifier takes them for numbers without limits: x + 1 > x becomes true, and (x // a) // b
becomes x // (a * b) even if a * b overflows. Its LLVM code marks sums, differences and products of 32 and 64 bits as
never overflowing. Arithmetic on loaded or cast integers is therefore replaced as well, and computed in twice the bits,
which LLVM narrows again, on CUDA in unsigned integers. Arithmetic on loop variables and sizes, and in indices, stays:
bounds and vectorisation depend on it.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Final

from meta import dtype as dtypes
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.intrinsic import Expr, bind, dtype_of, operator
from meta.backend.tvm.numbers import Number, held, rounded

_BINARY: Final = ("Add", "Sub", "Mul", "Div", "EQ", "NE", "LT", "LE", "GT", "GE")
"""TVM's expressions of two operands for which the simplifier has rules that are wrong for floats."""
_INTEGER: Final = ("Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "LShift", "BitwiseNot")
"""Expressions for which it has rules that are wrong for integers of limited width, or whose results C++ does not
wrap."""
_LLVM_WRAPS: Final = ("Add", "Sub", "Mul")
"""Integer expressions whose results LLVM may assume to fit."""
_C_WRAPS: Final = (*_LLVM_WRAPS, "LShift", "BitwiseNot")
"""Integer expressions whose results C++ computes in int or may assume to fit."""
_LLVM_WIDTH: Final = {"int32": "int64", "int64": "int128", "uint32": "uint64", "uint64": "uint128"}
"""For each dtype of such results, the dtype that holds every sum and product of two."""
_LLVM_DIFFERENCE_WIDTH: Final = _LLVM_WIDTH | {"uint32": "int64", "uint64": "int128"}
"""The same for differences, which unsigned dtypes hold none of below 0."""
_C_WIDTH: Final = {
    "uint8": "int32", "int8": "int32", "uint16": "uint32", "int16": "int32", "int32": "uint32", "int64": "uint64"
}  # fmt: skip
"""The dtypes in which C++ has results that wrap around when they are cast back: it promotes narrow ones to int."""
EXACT: Final = "meta.exact_"
"""Prefix of the operators of this module."""
LITERAL: Final = "meta.exact_literal"
"""The operator of opaque literals."""


def constant(value: Any, dtype: str) -> Expr:
    """`value`, compiled in, taken at run time or an expression of a size, as a scalar of `dtype`. A literal zero of a
    floating dtype is opaque: expressions with one are simplified as soon as they are built."""
    if isinstance(value, Number) or hasattr(value, "ty"):
        return value.astype(dtype)
    dtype = str(dtype)
    literal = _literal(value, dtype)
    is_zero = dtype in dtypes.FLOATS and value == 0
    # TVM's simplifier negates literals, which the lowest int64 does not survive.
    return opaque(literal).astype(dtype) if is_zero or (dtype == "int64" and value == -(1 << 63)) else literal


def fill(value: float | Number, dtype: str) -> Expr:
    """`value` as an opaque scalar of `dtype`, for tensors of one value: a fused kernel applies any operator to it."""
    if isinstance(value, Number):
        return value.astype(dtype)
    dtype = str(dtype)
    literal = _literal(value, dtype)
    return literal if dtype == "bool" else opaque(literal).astype(dtype)


def _literal(value: float, dtype: str) -> Expr:
    """A literal: what a floating dtype does not hold is an infinity in it, and numbers other than 0 are true."""
    if dtype == "bool":
        return tvm.tirx.const(value != 0, dtype)
    return tvm.tirx.const(held(value, dtype) if dtype in dtypes.FLOATS else value, dtype)


def opaque(literal: Expr) -> Expr:
    """A literal that the simplifier does not see; 16-bit ones become float32, because TVM rewrites bfloat16 later."""
    wide = _widened(literal)
    return tvm.tirx.call_intrin(dtype_of(wide), _literal_operator(), wide)


def _widened(literal: Any) -> Any:
    """A literal of 16 bits as the float32 that has its value."""
    dtype = dtype_of(literal)
    return literal if dtype not in dtypes.HALVES else tvm.FloatImm("float32", rounded(literal.value, dtype))


def exact(func: tvm.PrimFunc, *, across_threads: bool = False) -> Any:
    """`func`, scheduled, with arithmetic on values as operators that the simplifier does not know, and comparisons of
    floats.

    Floating sums over a reduction stay, because LLVM recognises fused multiply-adds by their form. across_threads:
    whether integer sums stay as well, because TVM recognises by their form what several threads reduce."""
    names = {getattr(tvm.tirx, name): name for name in _BINARY}

    def replace(x: Expr) -> Any:
        return _protected(names[type(x)], x)

    if _has_integer_data(func):
        func = tvm.structural_map(func, (tvm.BufferStore, _wrapping))
    return tvm.structural_map(
        func,
        [
            (tuple(names), replace),
            (tvm.tirx.Cast, _rounding),
            (tvm.BufferStore, lambda store: _plain_sum(_stored_once_rounded(store))),
            (tvm.SBlock, lambda block: _plain_reduction(block, across_threads=across_threads)),
        ],
    )


def _has_integer_data(func: tvm.PrimFunc) -> bool:
    """Whether a function computes integers other than indices: it loads, stores, casts or binds them."""
    return tvm.structural_walk(func, [
        ((tvm.TensorLoad, tvm.Call), _stop_at_integer),
        (tvm.tirx.Cast, lambda cast: _stop_at_integer(cast) or _stop_at_integer(cast.value)),
        ((tvm.BufferStore, tvm.tirx.Let), lambda part: _stop_at_integer(part.value)),
    ]) is not None  # fmt: skip


def _stop_at_integer(x: Expr) -> Any:
    return tvm.ffi.VisitInterrupt(True) if dtype_of(x) in dtypes.INTS else None


def _wrapping(store: tvm.BufferStore) -> Any:
    """A store whose value has integer arithmetic as operators, except in indices."""
    names = {getattr(tvm.tirx, name): name for name in _INTEGER}
    variables: list[Any] = []
    tvm.structural_walk(store.value, (tvm.tirx.Let, lambda let: variables.append(let.var)))

    positions: dict[int, Any] = {}  # parts of indices by their addresses

    def is_data(x: Expr) -> bool:
        return x.__chandle__() not in positions and _is_data(x, variables)

    def replace(x: Expr) -> Any:
        dtype, operands = dtype_of(x), [x.a] if isinstance(x, tvm.tirx.BitwiseNot) else [x.a, x.b]
        if dtype not in dtypes.INTS:
            return x
        if not any(map(is_data, operands)):
            positions[x.__chandle__()] = x
            return x
        return tvm.tirx.call_intrin(dtype, operators()[names[type(x)]], *operands)

    value = tvm.structural_map(store.value, [(tuple(names), replace), (tvm.TensorLoad, _plain_indices)])
    return store if value.same_as(store.value) else tvm.BufferStore(store.buffer, value, store.indices)


def _is_data(x: Expr, variables: list[Any]) -> bool:
    """Whether an integer is computed from a tensor's elements or a cast, not only from loop variables and sizes."""
    if isinstance(x, tvm.IntImm):
        return False
    if isinstance(x, tvm.tirx.Var):
        return any(map(x.same_as, variables))
    if _operation(x) or isinstance(x, (tvm.TensorLoad, tvm.tirx.Cast)):
        return True
    matches: list[bool] = []
    tvm.structural_walk(
        x,
        [
            ((tvm.TensorLoad, tvm.tirx.Cast), lambda _: matches.append(True)),
            (tvm.tirx.Var, lambda v: matches.append(True) if any(map(v.same_as, variables)) else None),
        ],
    )
    return bool(matches)


def _plain_indices(load: tvm.TensorLoad) -> Any:
    """A load whose indices are TVM's own arithmetic."""
    return tvm.structural_map(load, (tvm.Call, lambda call: _expand(call) if _operation(call) else call))


def add(a: Expr, b: Expr) -> Expr:
    """a + b as an operator that the simplifier does not know."""
    return _protected("Add", tvm.tirx.Add(a, b))


def subtract(a: Expr, b: Expr) -> Expr:
    """a - b as an operator that the simplifier does not know."""
    return _protected("Sub", tvm.tirx.Sub(a, b))


def _protected(name: str, x: Expr) -> Any:
    dtype = dtype_of(x.a)
    if dtype not in dtypes.FLOATS:
        return x
    call = tvm.tirx.call_intrin
    if dtype == "bfloat16":  # as TVM's legalisation does, after which it simplifies again
        a, b = (_rounding(tvm.tirx.Cast("float32", operand)) for operand in (x.a, x.b))
        wide = call(_result(name, "float32"), operators()[name], a, b)
        return wide if _result(name, dtype) == "bool" else _rounding(tvm.tirx.Cast(dtype, wide))
    return call(_result(name, dtype), operators()[name], x.a, x.b)


def _result(name: str, dtype: str) -> str:
    return dtype if name in ("Add", "Sub", "Mul", "Div") else "bool"


def _rounding(x: Expr) -> Any:
    """A cast that rounds even if it is cast back: TVM casts bfloat16 back without, and literals."""
    dtype, value = dtype_of(x), x.value
    literal = opaque(value) if isinstance(value, tvm.FloatImm) else value
    if _is_opaque(literal):
        source = dtype_of(literal)
        if dtype in dtypes.HALVES:
            return tvm.FloatImm(dtype, rounded(rounded(literal.args[0].value, source), dtype))
        return literal if source == dtype else tvm.tirx.Cast(dtype, literal)
    if dtype == "float32" and _is_rounded(value):
        return value.value
    if dtype != "bfloat16" or dtype_of(value) == "bool":
        return x
    wide = value if dtype_of(value) == "float32" else tvm.tirx.Cast("float32", value)
    return tvm.tirx.Cast("bfloat16", rounded_to_bfloat16(wide))


def rounded_to_bfloat16(value: Expr) -> Expr:
    """A float32 rounded to a value of bfloat16, still as a float32, by an operator that the simplifier does not know; a
    value that is such a call itself."""
    if isinstance(value, tvm.Call) and value.op.same_as(_rounding_operator()):
        return value
    return tvm.tirx.call_intrin("float32", _rounding_operator(), value)


def _stored_once_rounded(store: tvm.BufferStore) -> Any:
    """A store of a cast to bfloat16 without `_rounding`: the store itself rounds."""
    if not _is_rounded(store.value):
        return store
    return tvm.BufferStore(store.buffer, tvm.tirx.Cast("bfloat16", store.value.value.args[0]), store.indices)


def _is_rounded(value: Expr) -> bool:
    """Whether a value is a cast to bfloat16 of what `_rounding` has rounded."""
    is_cast = isinstance(value, tvm.tirx.Cast) and isinstance(value.value, tvm.Call)
    return is_cast and bool(value.value.op.same_as(_rounding_operator()))


def _plain_sum(store: tvm.BufferStore) -> Any:
    """A store of `buffer[i] + x` to `buffer[i]` with TVM's own addition, and multiplication in x."""
    call = store.value
    if _operation(call) != "Add" or dtype_of(call) not in dtypes.FLOATS or isinstance(call.args[1], tvm.FloatImm):
        return store
    target, addend = call.args
    if not isinstance(target, tvm.TensorLoad) or not _reads(target, [store.buffer]):
        return store
    if _operation(addend) == "Mul" and not any(map(is_literal, addend.args)):
        addend = tvm.tirx.Mul(*addend.args)
    return tvm.BufferStore(store.buffer, tvm.tirx.Add(target, addend), store.indices)


def _plain_reduction(block: tvm.SBlock, *, across_threads: bool) -> Any:
    """A block of a reduction with TVM's own operators where they read what it writes."""
    if block.init is None:
        return block
    written = [region.source for region in block.writes]

    def restore(call: tvm.Call) -> Any:
        if not _operation(call) or not (across_threads or dtype_of(call.args[0]) in dtypes.FLOATS):
            return call
        return _expand(call) if _reads(call, written) else call

    return tvm.structural_map(block, (tvm.Call, restore))


def _operation(x: Expr) -> str:
    name = getattr(x.op, "name", "") if isinstance(x, tvm.Call) else ""
    name = name.removeprefix(EXACT) if name.startswith(EXACT) else ""
    return name if name in operators() else ""


def is_literal(x: Expr) -> bool:
    """Whether an expression is a floating literal or an opaque one."""
    return isinstance(x, tvm.FloatImm) or _is_opaque(x)


def _is_opaque(x: Expr) -> bool:
    return isinstance(x, tvm.Call) and x.op.same_as(_literal_operator()) and isinstance(x.args[0], tvm.FloatImm)


def _reads(x: Expr, buffers: list[Any]) -> bool:
    matches: list[bool] = []
    tvm.structural_walk(x, (tvm.TensorLoad, lambda load: matches.append(any(map(load.source.same_as, buffers)))))
    return any(matches)


def register_operators() -> None:
    """Make the operators of this module known to TVM, for a function that another process wrote."""
    operators()
    _literal_operator()
    _rounding_operator()


@cache
def operators() -> dict[str, Any]:
    """The operators by name, registered with TVM on first use."""
    c = partial(_wrap, _C_WRAPS, _C_WIDTH)
    inputs = dict.fromkeys((*_BINARY, *_INTEGER), 2) | {"BitwiseNot": 1}
    llvm = {
        name: partial(_wrap, _LLVM_WRAPS, _LLVM_DIFFERENCE_WIDTH if name == "Sub" else _LLVM_WIDTH) for name in inputs
    }
    return {name: operator(f"exact_{name}", count, llvm=llvm[name], default=c) for name, count in inputs.items()}


@cache
def _literal_operator() -> Any:
    return operator(LITERAL.removeprefix("meta."), 1, default=lambda call: call.args[0])


@cache
def _rounding_operator() -> Any:
    return operator("exact_bfloat16", 1, llvm=lambda call: bind(call.args[0], _round), default=_cast_twice)


def _cast_twice(call: tvm.Call) -> Expr:
    narrow, wide = (dtype_of(call).replace("float32", kind) for kind in ("bfloat16", "float32"))
    return tvm.tirx.Cast(wide, tvm.tirx.Cast(narrow, call.args[0]))


def _round(x: Expr) -> Expr:
    """A float32 rounded to the nearest bfloat16, to even if two are equally near. All NaNs become one."""
    integer = dtype_of(x).replace("float32", "int32")
    one, half, mask = (tvm.tirx.const(value, integer) for value in (1, 0x7FFF, -0x10000))
    bits = tvm.tirx.reinterpret(integer, x)
    rounded = (bits + half + ((bits >> tvm.tirx.const(16, integer)) & one)) & mask
    nan = tvm.tirx.const(0x7FC00000, integer)
    return tvm.tirx.reinterpret(dtype_of(x), tvm.tirx.Select(tvm.tirx.EQ(x, x), rounded, nan))


def _wrap(names: tuple[str, ...], width: dict[str, str], call: tvm.Call) -> Expr:
    """A call as TVM's own expression; `names` of integers are computed in the dtype that `width` gives."""
    name, dtype = call.op.name.removeprefix(EXACT), dtype_of(call)
    element, lanes = dtype.partition("x")[::2]
    if name not in names or element not in width:
        return _expand(call)
    wide = f"{width[element]}x{lanes}" if lanes else width[element]
    return tvm.tirx.Cast(dtype, _expression(call)(*(tvm.tirx.Cast(wide, operand) for operand in call.args)))


def _expand(call: tvm.Call) -> Expr:
    return _expression(call)(*call.args)


def _expression(call: tvm.Call) -> Any:
    return getattr(tvm.tirx, call.op.name.removeprefix(EXACT))
