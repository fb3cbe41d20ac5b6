"""Tensors of another dtype than the sample's: type inference refuses them, or the results are those of converted
tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from meta import dtype as dtypes
from meta.eager.ndarray import asarray
from meta.errors import MetaError
from meta.op.dispatch import with_dialect
from meta.op.registry import all_ops
from meta.testing.arrays import to_numpy
from meta.testing.call import OperatorCall, flat_results
from meta.testing.samples import Sample, T
from meta.testing.tolerance import FORWARD, compare
from tests.python.op.samples import samples

Convert = Callable[[int, Any], Any]
"""The number of a tensor and its values -> other values."""


def _tensors(sample: Sample) -> list[T]:
    tensors: list[T] = []
    sample.map(lambda tensor, _: tensors.append(tensor))
    return tensors


_OTHER_MEANING = {("dequantize_weight", "int8"), ("dequantize_weight", "uint8")}
"""Dtypes that say how bits are read, not how numbers are stored."""


@cache
def _rows() -> dict[str, Sample]:
    """Of each operator of several tensors, the first sample with the most of them."""
    rows: dict[str, Sample] = {}
    for sample in samples():
        count = len(_tensors(sample))
        if count > 1 and (sample.op not in rows or count > len(_tensors(rows[sample.op]))):
            rows[sample.op] = sample
    return rows


def _call(sample: Sample, convert: Convert) -> OperatorCall:
    numbers = iter(range(len(_tensors(sample))))
    default = sample.run_dtypes(())[0]
    args, kwargs = sample.map(lambda tensor, path: convert(next(numbers), tensor.values(default, path)))
    return OperatorCall(sample.operator, args, kwargs)


def _converted(number: int, dtype: str) -> Convert:
    """Tensor `number` in another dtype; floats become larger ones first, of which integers keep something, and values
    for unsigned dtypes positive."""

    def convert(i: int, values: Any) -> Any:
        if i != number:
            return values
        is_scaled = dtypes.is_float(str(values.dtype)) and not dtypes.is_float(dtype)
        scaled = np.abs(np.rint(values.astype(np.float64) * 8)) if is_scaled else values
        return (np.abs(scaled) if dtypes.is_unsigned(dtype) else scaled).astype(dtypes.to_numpy(dtype))

    return convert


def _there_and_back(number: int, dtype: str) -> Convert:
    """As `_converted`, back in the sample's dtype, which holds the values exactly."""
    change = _converted(number, dtype)

    def convert(i: int, values: Any) -> Any:
        changed = change(i, values)
        return (changed.real if values.dtype.kind != "c" else changed).astype(values.dtype)

    return convert


def _accepted(sample: Sample, number: int) -> Iterator[str]:
    """The dtypes that type inference accepts of tensor `number` besides the sample's. Raises errors that are not of
    meta."""
    default = str(_call(sample, lambda _, values: values).arrays()[number].dtype)
    for dtype in dtypes.ALL:
        call = _call(sample, _converted(number, dtype)).map(asarray)
        try:
            call.op.infer(call.bound_arguments())
        except MetaError:
            continue
        if dtype != default and (sample.op, dtype) not in _OTHER_MEANING:
            yield dtype


def _assert_same_as_converted(sample: Sample, number: int, dtype: str) -> None:
    call = _call(sample, _converted(number, dtype)).to_meta()
    expected = _call(sample, _there_and_back(number, dtype)).to_meta()
    inferred = call.op.infer(call.bound_arguments())
    ours = flat_results(call.run())
    with with_dialect("reference"):
        theirs = flat_results(expected.run())
    # Updates of several tensors are computed from each other in the dtypes in which they are stored.
    tolerance = max((FORWARD[x.dtype] for x in ours if x.dtype in FORWARD), default=(0.0, 0.0))
    for i, (result, reference) in enumerate(zip(ours, theirs, strict=True)):
        kind = getattr(inferred, "fields", (inferred,))[i]
        assert result.type is kind
        values = to_numpy(reference).astype(dtypes.to_numpy(kind.dtype))
        compare(
            f"{sample.op} with tensor {number} of {dtype}, result {i}", to_numpy(result), values, tolerance=tolerance
        )


def test_operators_of_several_tensors_have_samples() -> None:
    several = {op.name for op in all_ops() if len(op.schema.tensor_positions) > 1 and op.family != "user"}
    assert several <= {*_rows()}


@pytest.mark.parametrize("name", sorted(_rows()))
def test_other_dtypes_are_refused_or_converted(name: str) -> None:
    sample = _rows()[name]
    for number in range(len(_tensors(sample))):
        accepted = list(_accepted(sample, number))
        # Each dtype needs a kernel: run one of them, which differs by operator, but all for tensors that are written
        # to.
        first = crc32(f"{name}{number}".encode()) % max(len(accepted), 1)
        run = accepted if sample.operator.inplace else accepted[first : first + 1]
        for dtype in run if sample.check is None else ():
            _assert_same_as_converted(sample, number, dtype)
