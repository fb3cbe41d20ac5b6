"""Kernels for eager calls: one build serves every shape of an operator, rank, dtype and attribute set.

The declaration is run once on fresh symbolic sizes inside `unify`: what its rules compare is what the kernel must share.
Sizes equal to 1 stay 1, because broadcasting depends on them. A declaration or compute that needs numbers gets a kernel
for the static shapes.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from meta import dtype as dtypes
from meta.device import CPU
from meta.errors import MetaError
from meta.ir.dim import Dim, SymDim, find, sym, unify
from meta.ir.type import TensorType, tensor_type
from meta.op.dialect.tvm import _memory
from meta.op.dialect.tvm._kernel import KernelSpec, TensorSpec, build
from meta.op.dialect.tvm._register import TEImplementation, source_key
from meta.op.dispatch import CallInfo, Implementation, Kernel, flat_types


def kernel(implementation: Implementation, call: CallInfo) -> Kernel:
    """The compiled kernel of `call`; Python scalars become 0-d operands, so that their value is not compiled in."""
    scalars = _scalar_operands(call)
    lifted = _lift_scalars(call, scalars)
    payload: TEImplementation = implementation.payload
    built = _build(payload, lifted)
    return _with_constants(built, call, lifted, scalars) if scalars else built


def _build(payload: TEImplementation, call: CallInfo) -> Kernel:
    if payload.generic:
        try:
            return build(spec(payload, call, symbolic=True))
        except (MetaError, ValueError, TypeError, RuntimeError):
            # The declaration or the compute wants numbers; the static build below reports what is really wrong.
            pass
    return build(spec(payload, call, symbolic=False))


def spec(payload: TEImplementation, call: CallInfo, *, symbolic: bool) -> KernelSpec:
    """What to build for `call`, with symbolic extents or with its own."""
    args, outs = _symbolic(call) if symbolic else (call.args, call.outputs())
    return KernelSpec(
        name=call.op.name,
        compute=payload.compute,
        args=tuple(map(_spec_of, args)),
        outs=tuple(map(_tensor_spec, outs)),
        pattern=payload.pattern or call.op.pattern,
        target=call.device.kind,
        key=source_key(payload.compute),
    )


def _symbolic(call: CallInfo) -> tuple[tuple[Any, ...], tuple[TensorType, ...]]:
    """`call.args` and the result types with fresh symbols for every size but 1, tied where the declaration says."""
    fresh = count()
    with unify() as tied:
        args = tuple(_freshen(arg, fresh) for arg in call.args)
        outs = flat_types((call.op.declare(*args),))

        def settle(value: Any) -> Any:
            if isinstance(value, TensorType):
                return value.with_shape(tuple(find(d, tied) for d in value.shape))
            return tuple(map(settle, value)) if _is_list(value) else value

        return tuple(map(settle, args)), tuple(map(settle, outs))


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], TensorType)  # pyright: ignore[reportUnknownArgumentType]


def _freshen(arg: Any, fresh: count[int]) -> Any:
    if isinstance(arg, TensorType):
        return arg.with_shape(tuple(1 if d == 1 else sym(f"n{next(fresh)}") for d in arg.shape))
    return tuple(_freshen(a, fresh) for a in arg) if _is_list(arg) else arg


def _spec_of(arg: Any) -> Any:
    if isinstance(arg, TensorType):
        return _tensor_spec(arg)
    return tuple(map(_tensor_spec, arg)) if _is_list(arg) else arg


def _tensor_spec(t: TensorType) -> TensorSpec:
    return TensorSpec(tuple(map(_extent, t.shape)), t.dtype)


def _extent(value: Dim) -> int | str:
    return str(value) if isinstance(value, SymDim) else value


def _scalar_operands(call: CallInfo) -> tuple[int, ...]:
    return tuple(
        i
        for i, (arg, value) in enumerate(zip(call.op.schema.args, call.args, strict=True))
        if arg.type.role == "scalar" and isinstance(value, (bool, int, float))
    )


def _lift_scalars(call: CallInfo, positions: tuple[int, ...]) -> CallInfo:
    """The same call with each Python scalar as a 0-d tensor of the dtype the operation computes it in."""
    if not positions:
        return call
    from meta.op.rules import promoted_dtype

    operands = [a for a, s in zip(call.args, call.op.schema.args, strict=True) if s.type.role == "scalar"]
    dtype = promoted_dtype(*operands)
    args = list(call.args)
    for i in positions:
        args[i] = tensor_type((), dtype, call.device)
    return CallInfo(call.op, tuple(args), call.out, call.device)


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

    from meta.storage import from_numpy

    host = from_numpy(np.full((), value, dtypes.to_numpy(t.dtype)), copy=True)
    return host if t.device is CPU else _memory.copy_to(host, t.dtype, t.device)
