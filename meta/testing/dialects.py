"""Agreement of dialects: every implementation that accepts a call gives the same result."""

from __future__ import annotations

from contextlib import nullcontext

from meta.eager.call import device_of
from meta.ir.type import Value
from meta.op.dispatch import CallInfo, Implementation, candidates, with_dialect
from meta.op.registry import as_type
from meta.testing.call import Call
from meta.testing.generic import call_of, check_types, check_values
from meta.testing.samples import Sample


def accepting(call: Call) -> list[Implementation]:
    """The implementations that take `call` (of meta arrays), in the order of preference; none for views and values."""
    args = call.bound()
    types = tuple(map(as_type, args))
    out = call.op.infer(types)
    if call.op.view or isinstance(out, Value):
        return []
    info = CallInfo(call.op, types, out, device_of(args, out))
    return [c.implementation for c in candidates(info) if c.refusal is None]


def check_dialects(sample: Sample, dtype: str = "float32") -> None:
    """Each dialect but the default one, which the forward test covers, agrees with the reference."""
    host = call_of(sample, dtype)
    for implementation in accepting(host.to_meta())[1:]:
        name = implementation.dialect.name
        call = host.to_meta()
        with with_dialect(name):
            result = call.run()
        check_types(call, result)
        check_values(sample, host, dtype, result, f"{name}.{sample.op}")


def check_device(sample: Sample, dtype: str, device: str) -> None:
    """Every dialect that accepts the call on `device` agrees with the reference, which runs on the CPU."""
    host = call_of(sample, dtype)
    names = [i.dialect.name for i in accepting(host.to_meta(device))]
    for name in names or [None]:
        call = host.to_meta(device)
        with with_dialect(name) if name else nullcontext():
            result = call.run()
        check_types(call, result)
        check_values(sample, host, dtype, result, f"{name or 'view'}.{sample.op} on {device}")
