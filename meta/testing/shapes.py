"""Inputs of unusual layout: without elements, and strided."""

from __future__ import annotations

from typing import Any

from meta.eager.ndarray import NDArray, from_dlpack
from meta.testing.arrays import to_torch
from meta.testing.call import flat_results
from meta.testing.generic import call_of, check_types, check_values
from meta.testing.programs import traced
from meta.testing.samples import Sample, T, leaves


def emptied(sample: Sample) -> list[Sample]:
    """The row with one of its sizes 0 wherever it occurs, for each size with which the type function still agrees.

    Sizes among attributes (the target of a reshape) are left as they are, so such rows drop out."""
    if sample.ref is None:
        return []
    sizes = sorted({d for t in leaves(sample.args, sample.kwargs) for d in t.shape if d > 1})
    made = (_with_size(sample, size) for size in sizes)
    return [row for row in made if row.accepts("float32")]


def _with_size(sample: Sample, size: int) -> Sample:
    def shrink(t: T, _: str) -> T:
        shape = tuple(0 if d == size else d for d in t.shape)
        return T(*shape, dtype=t.dtype, low=t.low, high=t.high, avoid=t.avoid, distinct=t.distinct)

    args, kwargs = sample.map(shrink)
    return Sample(sample.op, *args, ref=sample.ref, id=f"{sample.id}-without-{size}", tol=sample.tol,
                  reason=sample.reason, **kwargs)  # fmt: skip


def check_empty(sample: Sample, device: str = "cpu") -> None:
    """A call with operands without elements agrees with the reference, eager and compiled."""
    from meta.vm import compile as compile_program

    host = call_of(sample, "float32")
    call = host.to_meta(device)
    result = call.run()
    check_types(call, result)
    check_values(sample, host, "float32", result)
    if any(isinstance(r, NDArray) and r.size for r in flat_results(result)):
        compiled = compile_program(traced(call), device=device)(host.to_meta(device).arrays())
        check_values(sample, host, "float32", compiled, f"{sample.op} on the virtual machine")


def check_strided(sample: Sample) -> None:
    """Transposed and stepped operands, from torch and from NumPy, give what compact ones give."""
    host = call_of(sample, "float32")
    for layout in (_stepped_numpy, _transposed_torch):
        call = host.map(layout)
        check_values(sample, host, "float32", call.run(), f"{sample.op} of {layout.__name__.strip('_')}")


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
