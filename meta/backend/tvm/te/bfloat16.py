"""Changes of functions for TVM's legalisation of bfloat16, which stores it as uint16 and does not look everywhere."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.te.intrinsic import dtype_of


def repeat_bfloat16_bindings(func: Any) -> Any:
    """A function without loads of bfloat16 in the values of `Let`: TVM's legalisation skips these values, and the bits
    would be read as another number.

    On the CPU, a load that is cast at once is written as the conversion of its bits, which needs no legalisation. All
    other values with such loads are computed anew where they are used, in time exponential in the nesting of bindings.
    """
    return _repeat_bindings(func, _is_for_cpu(func))


def _is_for_cpu(func: Any) -> bool:
    target = func.attrs["target"] if func.attrs and "target" in func.attrs else None
    return target is not None and str(target.kind.name) == "llvm"


def _repeat_bindings(node: Any, on_cpu: bool) -> Any:
    def repeat(let: Any) -> Any:
        value = tvm.structural_map(let.value, (tirx.Cast, _from_bits)) if on_cpu else let.value
        if not _loads_bfloat16(value):
            return let if value.same_as(let.value) else tirx.Let(let.var, value, let.body)
        # The bindings inside have been visited before the value was put there.
        return _repeat_bindings(
            tvm.structural_map(let.body, (tvm.Var, lambda v: value if v.same_as(let.var) else v)), on_cpu
        )

    return tvm.structural_map(node, (tirx.Let, repeat))


def _from_bits(cast: Any) -> Any:
    """A cast; of a bfloat16 in memory, by way of the float32 whose upper half has its bits."""
    if not isinstance(cast.value, tvm.TensorLoad) or dtype_of(cast.value) != "bfloat16":
        return cast
    bits = tirx.reinterpret("uint16", cast.value).astype("uint32")
    number = tirx.reinterpret("float32", tirx.shift_left(bits, tirx.const(16, "uint32")))
    return number if dtype_of(cast) == "float32" else number.astype(dtype_of(cast))


def _loads_bfloat16(value: Any) -> bool:
    """Whether a value loads bfloat16 other than as bits."""
    others = tvm.structural_map(value, (tvm.Call, lambda c: tirx.const(0, "uint16") if _is_bits(c) else c))
    loads: list[Any] = []
    tvm.structural_walk(others, (tvm.TensorLoad, lambda load: loads.append(dtype_of(load))))
    return any("bfloat16" in dtype for dtype in loads)


def _is_bits(call: Any) -> bool:
    is_reinterpreted = getattr(call.op, "name", "") == "tirx.reinterpret"
    return is_reinterpreted and dtype_of(call) == "uint16" and isinstance(call.args[0], tvm.TensorLoad)


def serialize_bfloat16_copies(func: Any) -> Any:
    """A function whose loops are serial, on the CPU, where they store copies of one bfloat16: TVM's legalisation skips
    the conversion in a vector of copies, except of a literal. LLVM vectorizes such loops itself."""
    results = [param for param in func.params if _holds_bfloat16(param)]
    if not results or not _is_for_cpu(func):
        return func

    analyzer = tvm.Analyzer()
    ranges = [(tvm.For, lambda loop: analyzer.bind(loop.loop_var, tvm.Range.from_min_extent(loop.min, loop.extent)))]
    tvm.structural_walk(func, ranges)

    def stores_copies(loop: Any) -> bool:
        stores: list[Any] = []
        tvm.structural_walk(loop, (tvm.BufferStore, stores.append))
        of_results = [store for store in stores if any(store.buffer.same_as(each) for each in results)]
        if not of_results:
            return False
        values = _bound_values(loop)
        copied = (s.value for s in of_results if not _depends(s.value, loop.loop_var, values, analyzer))
        return not all(isinstance(value, tvm.FloatImm) for value in copied)

    def serial(loop: Any) -> Any:
        if int(loop.kind) != tirx.ForKind.VECTORIZED or not stores_copies(loop):
            return loop
        return tvm.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm.structural_map(func, (tvm.For, serial))


def _holds_bfloat16(param: Any) -> bool:
    return isinstance(param.ty, tvm.BufferType) and str(param.ty.dtype) == "bfloat16"


def _bound_values(loop: Any) -> dict[Any, Any]:
    """The values of the variables of the blocks and statements in a loop, outer ones first. Those that an expression
    binds are in the expression."""
    values: dict[Any, Any] = {}

    def block(realize: Any) -> None:
        values.update(zip((each.var for each in realize.block.iter_vars), realize.iter_values, strict=True))

    def binding(node: Any) -> None:
        values[node.var] = node.value

    tvm.structural_walk(loop, [(tvm.SBlockRealize, block), (tirx.Bind, binding)])
    return values


def _depends(value: Any, variable: Any, values: dict[Any, Any], analyzer: Any) -> bool:
    """Whether a value depends on a variable, once the indices in it are simplified: (i * 8 + j) // 8 is i for j < 8."""
    while not (variables := _variables(value)).isdisjoint(values):
        value = tvm.structural_map(value, (tvm.Var, lambda v: values.get(v, v)))
    bindings: list[Any] = []
    tvm.structural_walk(value, (tirx.Let, bindings.append))
    if variable not in variables or bindings:  # values with bindings are no copies; TVM simplifies each binding once
        return variable in variables
    return variable in _variables(analyzer.simplify(value))


def _variables(value: Any) -> set[Any]:
    variables: set[Any] = set()
    tvm.structural_walk(value, (tvm.Var, variables.add))
    return variables
