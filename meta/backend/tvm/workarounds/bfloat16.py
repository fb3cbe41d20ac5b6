"""bfloat16 on CPUs, which compute it in float32 and store its bits.

TVM legalises bfloat16 itself, but not in the values of `Let`, it refuses to round a `Let` in a vector, and it rounds
some NaNs to infinity or zero. The functions here leave it nothing to legalise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.intrinsic import Expr, dtype_of, shared, shared_value
from meta.backend.tvm.numbers import rounded
from meta.backend.tvm.workarounds.exact import is_literal, rounded_to_bfloat16

_SHIFT: Final = 16
"""The bits that float32 has more."""


def bits_of_bfloat16(func: tvm.PrimFunc) -> Any:
    """`func`, for the CPU, which loads and stores bfloat16 as bits and allocates buffers of it as uint16. In functions
    for GPUs without the dtype, values of variables that load bfloat16 are computed anew where they are used, in time
    exponential in the nesting of variables."""
    if not _is_for_cpu(func):
        return func if _has_bfloat16(func.attrs["target"]) else _repeat_loads(func)
    func = tvm.structural_map(func, [(tirx.Let, _float_variable)])
    return _store_bits(func, _buffers_of_bits(func))


def _is_for_cpu(func: tvm.PrimFunc) -> bool:
    target = func.attrs["target"] if func.attrs and "target" in func.attrs else None
    return target is not None and str(target.kind.name) == "llvm"


def _has_bfloat16(target: tvm.Target) -> bool:
    """Whether a GPU computes in bfloat16, so that TVM does not legalise it."""
    first_with_bfloat16 = 80  # The compute capability, times 10.
    return int(str(target.attrs["arch"]).removeprefix("sm_").rstrip("af")) >= first_with_bfloat16


def _repeat_loads(node: tvm.Object) -> Any:
    def repeat(let: Expr) -> Any:
        if not _loads_bfloat16(let.value):
            return let
        # The variables inside have been visited before the value was put there.
        return _repeat_loads(tvm.structural_map(let.body, (tvm.Var, lambda v: let.value if v.same_as(let.var) else v)))

    return tvm.structural_map(node, (tirx.Let, repeat))


def _loads_bfloat16(value: Expr) -> bool:
    def stop(load: tvm.TensorLoad) -> Any:
        return tvm.ffi.VisitInterrupt(True) if "bfloat16" in dtype_of(load) else None

    return tvm.structural_walk(value, (tvm.TensorLoad, stop)) is not None


def _float_variable(let: Expr) -> Any:
    """A `Let` of a variable of bfloat16 as one of float32."""
    if dtype_of(let.var) != "bfloat16":
        return let
    variable = tvm.Var(str(let.var.name), "float32")
    narrow = tirx.Cast("bfloat16", rounded_to_bfloat16(variable))
    body = tvm.structural_map(let.body, (tvm.Var, lambda v: narrow if v.same_as(let.var) else v))
    value = shared_value(let.value)
    wide = tirx.Cast("float32", let.value if value is None else value)
    return tirx.Let(variable, wide if value is None else shared(wide), body)


def _buffers_of_bits(func: tvm.PrimFunc) -> dict[Any, Any]:
    """For each buffer of bfloat16 that a function allocates, one of uint16."""
    buffers: dict[Any, Any] = {}

    def allocated(buffer: tvm.Buffer) -> None:
        ty = buffer.ty
        if str(ty.dtype) == "bfloat16":
            buffers[buffer] = tirx.decl_buffer(
                ty.shape, "uint16", str(buffer.name), scope=str(ty.storage_scope), data_alignment=ty.data_alignment
            )

    def of_block(block: tvm.SBlock) -> None:
        for buffer in block.alloc_buffers:
            allocated(buffer)

    allocations = (tirx.AllocBuffer, lambda node: allocated(node.buffer))
    tvm.structural_walk(func, [(tvm.SBlock, of_block), allocations])
    return buffers


def _store_bits(func: tvm.PrimFunc, buffers: dict[Any, Any]) -> Any:
    """`func` with `buffers` replaced, and with bits in all loads and stores of bfloat16."""

    def load(node: tvm.Object) -> Any:
        bits = buffers.get(node.source)
        return node if bits is None else tirx.reinterpret("bfloat16", tirx.BufferLoad(bits, node.indices))

    def store(node: tvm.Object) -> Any:
        if dtype_of(node.value) != "bfloat16":
            return node
        buffer, bits = buffers.get(node.buffer), _bits(node.value)
        if buffer is None:
            return tvm.BufferStore(node.buffer, tirx.reinterpret("bfloat16", bits), node.indices)
        return tvm.BufferStore(buffer, bits, node.indices)

    def region(node: tvm.Object) -> Any:
        bits = buffers.get(node.source)
        return node if bits is None else tirx.BufferRegion(bits, node.region)

    def block(node: tvm.Object) -> Any:
        return tvm.SBlock(
            node.iter_vars, list(map(region, node.reads)), list(map(region, node.writes)), node.name_hint, node.body,
            node.init, [buffers.get(b, b) for b in node.alloc_buffers], node.match_buffers, node.annotations,
        )  # fmt: skip

    def allocation(node: tvm.Object) -> Any:
        return tirx.AllocBuffer(buffers[node.buffer], node.annotations) if node.buffer in buffers else node

    allocations = [(tvm.SBlock, block), (tirx.AllocBuffer, allocation)] if buffers else []
    accesses = [(tvm.TensorLoad, load), (tirx.Cast, _cast), (tvm.BufferStore, store)]
    return tvm.structural_map(func, [*accesses, *allocations])


def _cast(cast: Expr) -> Any:
    """A cast; instead of a bfloat16 it casts the float32 with its value."""
    if dtype_of(cast.value) != "bfloat16" or dtype_of(cast) == "bfloat16":
        return cast
    return _number(cast.value).astype(dtype_of(cast))


def _number(value: Any) -> Expr:
    """The float32 with the value of a bfloat16."""
    if isinstance(value, tirx.Cast):
        number = value.value.astype("float32")
        return number if _is_held(number) else rounded_to_bfloat16(number)
    if isinstance(value, tvm.FloatImm):
        return tirx.const(rounded(value.value, "bfloat16"), "float32")
    if isinstance(value, (tirx.Max, tirx.Min)):
        return type(value)(_number(value.a), _number(value.b))
    if isinstance(value, tvm.TensorLoad) or _is_call(value, "reinterpret"):
        return tirx.reinterpret("float32", tirx.shift_left(_bits(value).astype("uint32"), tirx.const(_SHIFT, "uint32")))
    number = _of_choice(value, _number)
    return tirx.Cast("float32", value) if number is None else number


def _is_held(number: Expr) -> bool:
    """Whether bfloat16 holds a float32 for certain, as it holds a choice between such numbers (a maximum, for
    example)."""
    if isinstance(number, tirx.Select):
        return _is_held(number.true_value) and _is_held(number.false_value)
    if _is_call(number, "if_then_else"):
        return _is_held(number.args[1]) and _is_held(number.args[2])
    if is_literal(number):
        literal = number if isinstance(number, tvm.FloatImm) else number.args[0]
        return rounded(literal.value, "bfloat16") == literal.value
    if _is_call(number, "reinterpret"):
        bits = number.args[0]
        return isinstance(bits, tirx.LShift) and isinstance(bits.b, tvm.IntImm) and int(bits.b) == _SHIFT
    return rounded_to_bfloat16(number) is number


def _bits(value: Expr) -> Expr:
    """The bits of a bfloat16 as a uint16."""
    if isinstance(value, tvm.TensorLoad):
        return tirx.reinterpret("uint16", value)
    if _is_call(value, "reinterpret"):
        bits = value.args[0]
        return bits if dtype_of(bits) == "uint16" else tirx.reinterpret("uint16", bits)
    bits = _of_choice(value, _bits)
    if bits is not None:
        return bits
    return tirx.shift_right(tirx.reinterpret("uint32", _number(value)), tirx.const(_SHIFT, "uint32")).astype("uint16")


def _of_choice(value: Expr, of: Callable[[Any], Expr]) -> Expr | None:
    """`of` of the operands between which an expression chooses, or of the body of a `Let`; None for others."""
    if isinstance(value, tirx.Select):
        return tirx.Select(value.condition, of(value.true_value), of(value.false_value))
    if isinstance(value, tirx.Let):
        return tirx.Let(value.var, value.value, of(value.body))
    if _is_call(value, "if_then_else"):
        return tirx.if_then_else(value.args[0], of(value.args[1]), of(value.args[2]))
    return None


def _is_call(value: Expr, name: str) -> bool:
    """Whether it calls an operator of TVM, whose names begin with different namespaces."""
    return isinstance(value, tvm.Call) and getattr(value.op, "name", "").rpartition(".")[2] == name


def serialize_bfloat16_copies(func: tvm.PrimFunc) -> Any:
    """A function whose loops are serial, on the CPU, where they store copies of one bfloat16: TVM's legalisation skips
    vectors of copies, except of a literal. LLVM vectorizes such loops itself."""
    results = [param for param in func.params if _holds_bfloat16(param)]
    if not results or not _is_for_cpu(func):
        return func

    analyzer = tvm.Analyzer()
    ranges = [(tvm.For, lambda loop: analyzer.bind(loop.loop_var, tvm.Range.from_min_extent(loop.min, loop.extent)))]
    tvm.structural_walk(func, ranges)

    def stores_copies(loop: tvm.For) -> bool:
        stores: list[Any] = []
        tvm.structural_walk(loop, (tvm.BufferStore, stores.append))
        of_results = [store for store in stores if any(store.buffer.same_as(each) for each in results)]
        if not of_results:
            return False
        values = _bound_values(loop)
        copied = (s.value for s in of_results if not _depends(s.value, loop.loop_var, values, analyzer))
        return not all(isinstance(value, tvm.FloatImm) for value in copied)

    def serial(loop: tvm.For) -> Any:
        if int(loop.kind) != tirx.ForKind.VECTORIZED or not stores_copies(loop):
            return loop
        return tvm.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm.structural_map(func, (tvm.For, serial))


def _holds_bfloat16(param: Any) -> bool:
    return isinstance(param.ty, tvm.BufferType) and str(param.ty.dtype) == "bfloat16"


def _bound_values(loop: tvm.For) -> dict[Any, Any]:
    """The values of the variables of the blocks and statements in a loop, outer ones first. Those that an expression
    binds are in the expression."""
    values: dict[Any, Any] = {}

    def block(realize: tvm.SBlockRealize) -> None:
        values.update(zip((each.var for each in realize.block.iter_vars), realize.iter_values, strict=True))

    def binding(node: tvm.Object) -> None:
        values[node.var] = node.value

    tvm.structural_walk(loop, [(tvm.SBlockRealize, block), (tirx.Bind, binding)])
    return values


def _depends(value: Expr, variable: tvm.Var, values: dict[Any, Any], analyzer: Any) -> bool:
    """Whether a value depends on a variable, once the indices in it are simplified: (i * 8 + j) // 8 is i for j < 8."""
    while not (variables := _variables(value)).isdisjoint(values):
        value = tvm.structural_map(value, (tvm.Var, lambda v: values.get(v, v)))
    has_bindings = tvm.structural_walk(value, (tirx.Let, lambda _: tvm.ffi.VisitInterrupt(True))) is not None
    if (
        variable not in variables or has_bindings
    ):  # values with bindings are no copies; TVM simplifies each binding once
        return variable in variables
    return variable in _variables(analyzer.simplify(value))


def _variables(value: Expr) -> set[Any]:
    variables: set[Any] = set()
    tvm.structural_walk(value, (tvm.Var, variables.add))
    return variables
