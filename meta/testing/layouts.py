"""Checks of samples on empty and on strided arrays."""

from __future__ import annotations

from typing import Any

from meta.eager.ndarray import NDArray, from_dlpack
from meta.testing.arrays import to_torch
from meta.testing.call import flat_results
from meta.testing.generic import check_types, check_values, make_call
from meta.testing.programs import trace_call
from meta.testing.samples import Sample, T, leaves


def empty_variants(sample: Sample) -> list[Sample]:
    """For each size above 1 in the sample: the sample with 0 in its place, if the type function accepts it.

    Sizes in attributes (the target of a reshape) are unchanged, so the type function rejects such variants."""
    if sample.ref is None:
        return []
    sizes = sorted({d for t in leaves(sample.args, sample.kwargs) for d in t.shape if d > 1})
    variants = (_without_size(sample, size) for size in sizes)
    return [variant for variant in variants if variant.accepts("float32")]


def _without_size(sample: Sample, size: int) -> Sample:
    def shrink(t: T, _: str) -> T:
        shape = tuple(0 if d == size else d for d in t.shape)
        return T(*shape, dtype=t.dtype, low=t.low, high=t.high, avoid=t.avoid, distinct=t.distinct)

    args, kwargs = sample.map(shrink)
    return Sample(sample.op, *args, ref=sample.ref, id=f"{sample.id}-without-{size}", tol=sample.tol,
                  reason=sample.reason, **kwargs)  # fmt: skip


def check_empty(sample: Sample, device: str = "cpu") -> None:
    """A call with empty operands agrees with the reference, eager and compiled."""
    from meta.vm import compile as compile_program

    host = make_call(sample, "float32")
    call = host.to_meta(device)
    result = call.run()
    check_types(call, result)
    check_values(sample, host, result)
    if any(isinstance(r, NDArray) and r.size for r in flat_results(result)):
        compiled = compile_program(trace_call(call), device=device)(host.to_meta(device).arrays())
        check_values(sample, host, compiled, f"{sample.op} on the virtual machine")


def check_strided(sample: Sample) -> None:
    """Calls with transposed torch tensors and stepped NumPy arrays agree with the reference."""
    host = make_call(sample, "float32")
    for layout in (_stepped_numpy, _transposed_torch):
        call = host.map(layout)
        check_values(sample, host, call.run(), f"{sample.op} of {layout.__name__.strip('_')}")


def _stepped_numpy(a: Any) -> Any:
    """The array as every second element along the last axis of a larger one."""
    import numpy as np

    from meta.eager.ndarray import asarray

    if not a.ndim:
        return asarray(a)
    larger = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    larger[..., ::2] = a
    return asarray(larger[..., ::2])


def _transposed_torch(a: Any) -> Any:
    """The array as a transposed torch tensor, through DLPack."""
    tensor = to_torch(a)
    return from_dlpack(tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor)
