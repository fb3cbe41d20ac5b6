"""PrimFuncs of Relax programs as operators of meta: they run eagerly, in programs and on the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import meta
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.kernel import digest
from meta.dim import Dim, SymDim
from meta.dtype import ALL
from meta.errors import TypeInferenceError
from meta.frontend.relax.sizes import UnsupportedError, key, variable_name
from meta.frontend.relay.convert.values import identifier
from meta.ir.type import TensorType, TupleType, Type, flat_types, tensor_type
from meta.op import registry
from meta.schema._dsl import Arg, IntTuple, NumberOrSize, Schema, Tensor

NAMESPACE = "relax"
"""The namespace of these operators: `relax::add_0123456789ab`, by the name and the contents of the PrimFunc."""


@dataclass(frozen=True, slots=True, eq=False)
class TirKernel:
    """A PrimFunc in destination passing style.

    buffers: its inputs, then its results.  numbers: its parameters that are integers.  inputs: the number of inputs."""

    function: Any
    buffers: tuple[Any, ...]
    numbers: tuple[Any, ...]
    inputs: int

    @property
    def input_buffers(self) -> tuple[Any, ...]:
        return self.buffers[: self.inputs]

    @property
    def result_buffers(self) -> tuple[Any, ...]:
        return self.buffers[self.inputs :]


def call_kernel(name: str, function: object, args: Sequence[Any], results: Sequence[TensorType]) -> Any:
    """A call of a PrimFunc on tensors and integers; a tensor, or a tuple for several results.

    Raises UnsupportedError for parameters that are neither buffers nor integers, and for another number of them."""
    kernel = _kernel(name, function, args, len(results))
    tensors = [a for a in args if not isinstance(a, (int, SymDim))]
    numbers = [a for a in args if isinstance(a, (int, SymDim))]
    sizes: tuple[Dim, ...] = tuple(d for kind in results for d in kind.shape)
    return _operator(name, kernel)(*tensors, *numbers, sizes)


def _kernel(name: str, function: Any, args: Sequence[Any], results: int) -> TirKernel:
    params = list(function.params)
    if len(params) != len(args) + results:
        problem = (
            f"the kernel @{name} has {len(params)} parameters, and is called with {len(args)} for {results} results"
        )
        raise UnsupportedError("relax", problem, "a parameter for each argument and each result")
    buffers = [p for p in params if tvm.tirx.is_buffer_var(p)]
    numbers = [p for p in params if not tvm.tirx.is_buffer_var(p)]
    for param, arg in zip(params, args, strict=False):
        is_number = isinstance(arg, (int, SymDim))
        if is_number == tvm.tirx.is_buffer_var(param) or (is_number and not str(param.ty.dtype).startswith("int")):
            problem = f"the kernel @{name} takes '{variable_name(param)}', a {'number' if is_number else 'buffer'}"
            raise UnsupportedError("relax", problem, "buffers for tensors, and integers for sizes")
    for buffer in buffers:
        if str(buffer.ty.dtype) not in ALL:
            problem = f"the kernel @{name} has '{variable_name(buffer)}' of dtype {buffer.ty.dtype}"
            raise UnsupportedError("relax", problem, "a dtype of meta")
    return TirKernel(function, tuple(buffers), tuple(numbers), len(buffers) - results)


def _operator(name: str, kernel: TirKernel) -> Any:
    """The public function of the operator of a kernel, which is defined once."""
    full = f"{NAMESPACE}::{identifier(name).replace('.', '_')}_{digest(kernel.function)[:12]}"
    if registry.owner(full) is None:
        inputs = [Arg(f"x{i}", Tensor, doc=_doc(b)) for i, b in enumerate(kernel.input_buffers)]
        numbers = [Arg(f"n{i}", NumberOrSize, doc=_doc(n)) for i, n in enumerate(kernel.numbers)]
        schema = Schema(full, *inputs, *numbers, Arg("sizes", IntTuple, doc="The sizes of the results, in order."))
        doc = f"The TIR kernel {name} of a Relax program."
        results = tuple(variable_name(b) for b in kernel.result_buffers)
        define = meta.define(full, schema, doc=doc, amp="keep", outputs=results if len(results) > 1 else ())
        define(lambda *args: _result_type(kernel, args))
        from meta.op.dialect.tvm import compute

        lift = tuple(arg.name for arg in numbers)
        compute(full, generic=False, sizes=("sizes",), lift=lift)(lambda *args: _specialized(kernel, args))
    return getattr(getattr(meta.ops, NAMESPACE), full.partition("::")[2])


def _doc(parameter: object) -> str:
    return f"Parameter {variable_name(parameter)} of the kernel."


def _result_type(kernel: TirKernel, args: Sequence[Any]) -> Type:
    """The types of the results. Raises TypeInferenceError for operands that the buffers do not fit."""
    types: list[TensorType] = flat_types(args[: kernel.inputs])
    sizes = list(args[-1])
    sizes_of: dict[int, Dim] = {}
    for i, (buffer, kind) in enumerate(zip(kernel.input_buffers, types, strict=True)):
        _check_buffer(f"x{i}", buffer, kind, sizes_of)
    results: list[TensorType] = []
    for buffer in kernel.result_buffers:
        rank = len(buffer.ty.shape)
        device = types[0].device if types else meta.device("cpu")
        results.append(tensor_type(tuple(sizes[:rank]), str(buffer.ty.dtype), device))
        _check_buffer("the result", buffer, results[-1], sizes_of)
        del sizes[:rank]
    return results[0] if len(results) == 1 else TupleType(tuple(results))


def _check_buffer(name: str, buffer: Any, kind: TensorType, sizes_of: dict[int, Dim]) -> None:
    shape = list(buffer.ty.shape)
    if kind.dtype != str(buffer.ty.dtype) or kind.ndim != len(shape):
        problem = f"{name} is {kind!r}"
        raise TypeInferenceError("", problem, f"{len(shape)} axes of {buffer.ty.dtype}, as '{variable_name(buffer)}'")
    for extent, size in zip(shape, kind.shape, strict=True):
        value = int(extent) if isinstance(extent, tvm.IntImm) else None
        if value is None and type(extent).__name__ == "Var":
            value = sizes_of.setdefault(key(extent), size)
        both_static = isinstance(value, int) and isinstance(size, int)
        if both_static and value != size:
            raise TypeInferenceError("", f"{name} is {kind!r}", f"the shape {shape} of '{variable_name(buffer)}'")


def _specialized(kernel: TirKernel, args: Sequence[Any]) -> Any:
    """The PrimFunc over the inputs, the sizes known at run time, and the results, with the known numbers in place."""
    pairs = list(zip(kernel.numbers, args[kernel.inputs : -1], strict=True))
    constants = {n: tvm.tirx.const(int(v), n.ty.dtype) for n, v in pairs if isinstance(v, (int, float))}
    function = kernel.function.specialize(constants) if constants else kernel.function
    left = list(function.params)
    tensors = [p for p in left if tvm.tirx.is_buffer_var(p)]
    sizes = [p for p in left if not tvm.tirx.is_buffer_var(p)]
    ordered = tvm.PrimFunc([*tensors[: kernel.inputs], *sizes, *tensors[kernel.inputs :]], function.body)
    for name, value in kernel.function.attrs.items():
        if name in _KEPT_ATTRIBUTES:
            ordered = ordered.with_attr(name, value)
    return ordered.with_attr("global_symbol", "main")


_KEPT_ATTRIBUTES = ("s_tir", "tirx.noalias")
