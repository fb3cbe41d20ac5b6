"""Checks that all implementations that accept a call give the same result."""

from __future__ import annotations

from contextlib import nullcontext

from meta.eager.call import device_of
from meta.ir.expr import CallInfo
from meta.ir.type import Value
from meta.op.dispatch import Implementation, candidates, with_dialect
from meta.op.registry import as_type
from meta.testing.call import OperatorCall
from meta.testing.generic import check_types, check_values, make_call
from meta.testing.samples import Sample


def accepting_implementations(call: OperatorCall) -> list[Implementation]:
    """The implementations that accept a call with meta arrays, by descending plevel; none for views and values."""
    args = call.bound_arguments()
    types = tuple(map(as_type, args))
    out = call.op.infer(types)
    if call.op.view or isinstance(out, Value):
        return []
    info = CallInfo(call.op, types, out, device_of(args, out))
    return [c.implementation for c in candidates(info) if c.refusal is None]


def check_dialects(sample: Sample, dtype: str = "float32") -> None:
    """Every dialect agrees with the reference. Skips the default dialect, which the forward test covers."""
    host = make_call(sample, dtype)
    for implementation in accepting_implementations(host.to_meta())[1:]:
        name = implementation.dialect.name
        call = host.to_meta()
        with with_dialect(name):
            result = call.run()
        check_types(call, result)
        check_values(sample, host, result, f"{name}.{sample.op}")


def check_device(sample: Sample, dtype: str, device: str) -> None:
    """Every dialect that accepts the call on `device` agrees with the reference on the CPU."""
    host = make_call(sample, dtype)
    names = [i.dialect.name for i in accepting_implementations(host.to_meta(device))]
    for name in names or [None]:
        call = host.to_meta(device)
        with with_dialect(name) if name else nullcontext():
            result = call.run()
        check_types(call, result)
        check_values(sample, host, result, f"{name or 'view'}.{sample.op} on {device}")
