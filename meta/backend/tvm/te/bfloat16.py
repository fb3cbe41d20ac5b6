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
    """A function whose loops are serial, on the CPU, where they store copies of one computed bfloat16: TVM computes it
    in float32, and its legalisation skips the conversion in a vector of copies. LLVM vectorizes such loops itself."""
    results = [param for param in func.params if _holds_bfloat16(param)]
    if not results or not _is_for_cpu(func):
        return func

    def stores_copies(loop: Any) -> bool:
        stores: list[Any] = []
        tvm.structural_walk(loop, (tvm.BufferStore, stores.append))
        of_results = [store for store in stores if any(store.buffer.same_as(each) for each in results)]
        if not of_results:
            return False
        variables = _dependent_variables(loop)
        return any(variables.isdisjoint(_variables(s.value)) and _is_computed(s.value, results) for s in of_results)

    def serial(loop: Any) -> Any:
        if int(loop.kind) != tirx.ForKind.VECTORIZED or not stores_copies(loop):
            return loop
        return tvm.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm.structural_map(func, (tvm.For, serial))


def _holds_bfloat16(param: Any) -> bool:
    return isinstance(param.ty, tvm.BufferType) and str(param.ty.dtype) == "bfloat16"


def _is_computed(value: Any, results: list[Any]) -> bool:
    """Whether TVM computes a value in float32: literals, and elements of operands and results, are copied as they
    are. Elements of other buffers are in float32 then."""
    if isinstance(value, tvm.TensorLoad):
        return not any(value.source.same_as(each) for each in results)
    return not isinstance(value, tvm.FloatImm)


def _dependent_variables(loop: Any) -> set[Any]:
    """The variable of a loop, and those of the blocks and bindings in it whose values depend on it."""
    values: list[tuple[Any, Any]] = []

    def block(realize: Any) -> None:
        values.extend(zip((each.var for each in realize.block.iter_vars), realize.iter_values, strict=True))

    def binding(node: Any) -> None:
        values.append((node.var, node.value))

    tvm.structural_walk(loop, [(tvm.SBlockRealize, block), ((tirx.Let, tirx.Bind), binding)])
    dependent, count = {loop.loop_var}, 0
    while count < len(dependent):
        count = len(dependent)
        dependent.update(var for var, value in values if not dependent.isdisjoint(_variables(value)))
    return dependent


def _variables(value: Any) -> set[Any]:
    variables: set[Any] = set()
    tvm.structural_walk(value, (tvm.Var, variables.add))
    return variables
