"""Kernels for eager calls: one build serves every shape of an operator, rank, dtype and attribute set.

The declaration is run once on fresh symbolic sizes inside `unify`: what its rules compare is what the kernel must
share. Sizes equal to 1 stay 1, because broadcasting depends on them; on a GPU names tell which sizes are long. A
declaration or compute that needs numbers gets a kernel for the static shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from meta import dtype as dtypes
from meta.backend.memory import allocation
from meta.backend.memory.numpy_arrays import from_numpy
from meta.backend.tvm.compute import RuntimeFunction, TEImplementation, source_key
from meta.backend.tvm.kernel import Kernel, KernelSpec, TensorSpec, build
from meta.backend.tvm.schedule.blocks import size_name
from meta.device import CPU
from meta.dim import Dim, Shape, SymDim, find, sym, unify
from meta.errors import MetaError
from meta.ir.promotion import promoted_dtype
from meta.ir.type import TensorType, flat_types, tensor_type

if TYPE_CHECKING:
    from meta.op.dispatch import CallInfo


def kernel(payload: TEImplementation | RuntimeFunction, call: CallInfo) -> Kernel:
    """The compiled kernel of `call`; Python scalars become 0-d operands, so that their value is not compiled in."""
    if isinstance(payload, RuntimeFunction):
        return payload.run
    scalars = _scalar_operands(payload, call)
    lifted = _lift_scalars(call, scalars)
    if payload.generic and payload.vectors is not None:
        return _with_vectors(payload, call, lifted, scalars)
    built = _build(payload, call, {i: lifted.args[i] for i in scalars})
    return _with_constants(built, call, lifted, scalars) if scalars else built


def _with_vectors(payload: TEImplementation, call: CallInfo, lifted: CallInfo, scalars: tuple[int, ...]) -> Kernel:
    """The kernel whose tuples of ints are operands: one build serves every value of them."""
    assert payload.vectors is not None
    values = payload.vectors(call)
    given, operands, vectors = list(call.args), list(lifted.args), set[int]()
    for i, name in enumerate(call.op.schema.names):
        if name in payload.sizes:
            operands[i] = ()
        elif name in values:
            given[i], operands[i] = values[name], ()
            if values[name]:
                operands[i] = tensor_type((len(values[name]),), "int64", call.device)
                vectors.add(i)
    fresh = _Sizes(telling=False)
    args = tuple(arg if i in vectors else _freshen(arg, fresh) for i, arg in enumerate(operands))
    outs = tuple(t.with_shape(fresh.shape(t.shape)) for t in call.outputs())
    built = build(_kernel_spec(payload, call, args, outs))
    lifted = replace(call, args=tuple(operands))
    constants = tuple(sorted(vectors.union(scalars)))
    return _with_constants(built, replace(call, args=tuple(given)), lifted, constants) if constants else built


def _build(payload: TEImplementation, call: CallInfo, numbers: Mapping[int, TensorType]) -> Kernel:
    if payload.generic and not is_large(call):
        try:
            return build(spec(payload, call, symbolic=True, numbers=numbers))
        except (MetaError, ValueError, TypeError, RuntimeError):
            # The declaration or the compute wants numbers; the static build below reports what is really wrong.
            pass
    return build(spec(payload, call, symbolic=False, numbers=numbers))


def is_large(call: CallInfo) -> bool:
    """Whether a kernel for these very sizes repays its build: on CUDA it indexes by less and loads by more."""
    sizes: list[Any] = [t.nbytes for t in (*call.tensors(), *call.outputs()) if t.is_static]
    return call.device.kind == "cuda" and sum(sizes) >= _WORTH_BUILDING


_WORTH_BUILDING = 128 << 20
"""Bytes of operands and results."""
_COUNTED = ("elemwise", "broadcast", "injective", "softmax")
"""Patterns of what has no more elements on the way than in operands and results, so that below `_WORTH_BUILDING` 32
bits count them: GPUs divide numbers of 64 bits, as indices do, slowly. Reductions over columns measured slower so."""
_REDUCING = ("reduce", "softmax")
"""Patterns of what GPU schedules share by how long an axis is."""


def spec(
    payload: TEImplementation, call: CallInfo, *, symbolic: bool, numbers: Mapping[int, TensorType] | None = None
) -> KernelSpec:
    """What to build for `call`, with symbolic extents or with its own; `numbers`: the types of the numbers that the
    kernel takes at run time, by position."""
    args, outs = _symbolic(payload, call) if symbolic else (call.args, call.outputs())
    args = tuple((numbers or {}).get(i, arg) for i, arg in enumerate(args))
    made = _kernel_spec(payload, call, args, outs)
    return replace(made, index="int32") if symbolic and _few(made, call) else made


def _few(made: KernelSpec, call: CallInfo) -> bool:
    """Whether 32 bits count the elements of every call that is not large, and no index is computed with 64."""
    wide = any(t.dtype == "int64" for t in (*call.tensors(), *call.outputs()))
    return made.target == "cuda" and made.pattern in _COUNTED and not wide


def _kernel_spec(
    payload: TEImplementation, call: CallInfo, args: tuple[Any, ...], outs: tuple[TensorType, ...]
) -> KernelSpec:
    return KernelSpec(
        name=call.op.name,
        compute=payload.compute,
        args=tuple(map(_spec_of, args)),
        outs=tuple(map(_tensor_spec, outs)),
        pattern=payload.pattern or call.op.pattern,
        target=call.device.kind,
        key=source_key(payload.source),
    )


def _symbolic(payload: TEImplementation, call: CallInfo) -> tuple[tuple[Any, ...], tuple[TensorType, ...]]:
    """`call.args` and the result types with fresh symbols for every size but 1, tied where the declaration says."""
    fresh = _Sizes(telling=call.device.kind == "cuda" and (payload.pattern or call.op.pattern) in _REDUCING)
    names = call.op.schema.names
    with unify() as tied:
        args = tuple(
            fresh.shape(arg) if name in payload.sizes and isinstance(arg, tuple) else _freshen(arg, fresh)
            for name, arg in zip(names, call.args, strict=True)
        )
        outs = flat_types((call.op.infer(args),))
        args = tuple(
            () if name in payload.sizes and isinstance(arg, tuple) else arg
            for name, arg in zip(names, args, strict=True)
        )

        def settle(value: Any) -> Any:
            if isinstance(value, TensorType):
                return value.with_shape(tuple(find(d, tied) for d in value.shape))
            return tuple(map(settle, value)) if _is_list(value) else value

        return tuple(map(settle, args)), tuple(map(settle, outs))


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], TensorType)  # pyright: ignore[reportUnknownArgumentType]


class _Sizes:
    """Fresh symbols for sizes; 1 stays 1. telling: kernels differ by which sizes are long: their symbols say so."""

    def __init__(self, telling: bool) -> None:
        self.telling = telling
        self.number = count()

    def shape(self, shape: Shape) -> Shape:
        return tuple(d if d == 1 else sym(f"{self._kind(d)}{next(self.number)}") for d in shape)

    def _kind(self, d: Dim) -> str:
        return size_name(d) if self.telling and isinstance(d, int) else "n"


def _freshen(arg: Any, fresh: _Sizes) -> Any:
    if isinstance(arg, TensorType):
        return arg.with_shape(fresh.shape(arg.shape))
    return tuple(_freshen(a, fresh) for a in arg) if _is_list(arg) else arg


def _spec_of(arg: Any) -> Any:
    if isinstance(arg, TensorType):
        return _tensor_spec(arg)
    return tuple(map(_tensor_spec, arg)) if _is_list(arg) else arg


def _tensor_spec(t: TensorType) -> TensorSpec:
    return TensorSpec(tuple(map(_extent, t.shape)), t.dtype)


def _extent(value: Dim) -> int | str:
    return str(value) if isinstance(value, SymDim) else value


def _scalar_operands(payload: TEImplementation, call: CallInfo) -> tuple[int, ...]:
    """Positions of the numbers that the kernel takes at run time."""
    return tuple(
        i
        for i, (arg, value) in enumerate(zip(call.op.schema.args, call.args, strict=True))
        if isinstance(value, (bool, int, float))
        and (arg.type.role == "scalar" or arg.name in payload.lift)
        and value not in payload.constants
    )


def _lift_scalars(call: CallInfo, positions: tuple[int, ...]) -> CallInfo:
    """The same call with each of these numbers as a 0-d tensor of the dtype the operation computes it in."""
    if not positions:
        return call
    numbers = [call.args[i] for i in positions]
    dtype = promoted_dtype(*[a for a in call.args if isinstance(a, TensorType)], *numbers)
    if dtypes.is_float(dtype) and any(t.dtype == "float64" for t in call.outputs()):
        dtype = "float64"
    args = list(call.args)
    for i in positions:
        args[i] = tensor_type((), dtype, call.device)
    return replace(call, args=tuple(args))


def _with_constants(built: Kernel, call: CallInfo, lifted: CallInfo, positions: tuple[int, ...]) -> Kernel:
    """`built` with the scalar operands of `call` filled in, so that it takes the tensors alone."""
    slots: list[Any] = []
    for i, arg in enumerate(lifted.args):
        if i in positions:
            slots.append(_constant(call.args[i], arg))
        else:
            slots.extend([None] * len(flat_types((arg,))))
    if len(slots) == 2 and slots[0] is None:
        second = slots[1]
        return lambda x, out: built(x, second, out)
    if len(slots) == 2 and slots[1] is None:
        first = slots[0]
        return lambda x, out: built(first, x, out)

    def run(*tensors: Any) -> None:
        rest = iter(tensors)
        inputs = [next(rest) if slot is None else slot for slot in slots]
        built(*inputs, *rest)

    return run


def _constant(value: float, t: TensorType) -> Any:
    """A 0-d tensor holding `value`."""
    import numpy as np

    host = from_numpy(np.asarray(value).astype(dtypes.to_numpy(t.dtype)), copy=True)
    return host if t.device is CPU else allocation.copy_to(host, t.dtype, t.device)
