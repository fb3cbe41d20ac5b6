"""The axes that operators declare, and `vmap`, which follows from them, on every sample: against the whole call and
against calls one by one. NumPy computes them: what is tested are the declarations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import meta
from meta.autograd.batch import BatchLevel, vmap
from meta.eager import runners
from meta.eager.call import invoke, state
from meta.eager.ndarray import NDArray, array
from meta.errors import MetaError
from meta.op.axes import Axes, TypedCall, axes_of, joined, takes_axes, with_attributes
from meta.op.registry import USER, all_ops, as_type
from meta.testing.arrays import to_numpy
from meta.testing.call import OperatorCall, flat_results
from meta.testing.generic import make_call
from meta.testing.samples import Sample
from meta.tree import leaves_of, with_leaves
from tests.python.op.samples import samples

TOLERANCE = {"float16": 2e-2, "bfloat16": 2e-1, "float32": 1e-5, "complex64": 1e-5}


def _has_tensors(sample: Sample) -> bool:
    op = sample.operator
    random = "key" in op.schema.index or op.name == "argwhere"
    return (
        not op.inplace and op.family != "collective" and not random and bool(make_call(sample, _dtype(sample)).arrays())
    )


def _dtype(sample: Sample) -> str:
    return next(iter(sample.run_dtypes()), "")


ROWS = [row for row in samples() if _has_tensors(row)]


@pytest.fixture(scope="module", autouse=True)
def in_numpy() -> Iterator[None]:
    with meta.with_dialect(["reference", "tvm"]):
        yield


def assert_equal(ours: Any, expected: Any, text: str) -> None:
    tolerance = TOLERANCE.get(str(ours.dtype), 1e-10)
    a, b = (x.astype("complex128" if x.dtype.kind == "c" else "float64") for x in (to_numpy(ours), to_numpy(expected)))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=text)


# --- parts along a label ---------------------------------------------------------------------------------------------


def _cuts(call: TypedCall, axes: Axes, label: int) -> tuple[int, int] | None:
    """Where an axis is cut, as parts of its length: in equal parts for means, otherwise in unequal ones."""
    sizes = [kind.shape[labels.index(label)] for labels, kind in _sided(call, axes) if label in labels]
    blocks = call[axes.counts[label]] if label in axes.counts else min(sizes)
    if blocks < 2 or any(size % blocks for size in sizes):
        return None
    if axes.reductions.get(label) == "mean":
        return None if blocks % 2 else (blocks // 2, blocks)
    return 1, blocks


def _sided(call: TypedCall, axes: Axes) -> list[tuple[Any, Any]]:
    return [*zip(axes.operands, call.operands, strict=True), *zip(axes.results, call.results, strict=True)]


def _part(x: Any, labels: Sequence[int | None], label: int, span: tuple[int, int, int]) -> Any:
    """The part of a tensor from `first` to `last` of `blocks` blocks along a label."""
    if label not in labels:
        return x
    axis, (first, last, blocks) = labels.index(label), span
    size = x.shape[axis] // blocks
    index = (slice(None),) * axis + (slice(first * size, last * size),)
    return array(np.ascontiguousarray(to_numpy(x)[index])).cast(x.dtype)


def _on_part(call: OperatorCall, typed: TypedCall, axes: Axes, label: int, span: tuple[int, int, int]) -> list[Any]:
    labels = iter(axes.operands)
    args = call.bound_arguments()
    leaves = [_part(x, next(labels), label, span) if isinstance(x, NDArray) else x for x in leaves_of(args)]
    first, last, blocks = span
    kind, sides = typed.results[0], axes.results[0]
    changed: dict[str, Any] = {
        "shape": tuple(
            d // blocks * (last - first) if side == label else d for d, side in zip(kind.shape, sides, strict=True)
        )
    }
    if label in axes.counts:
        changed[axes.counts[label]] = last - first
    return flat_results(invoke(state(call.op), *with_attributes(call.op, with_leaves(args, leaves), changed)))


COMBINED = {"sum": lambda a, b: a + b, "mean": lambda a, b: (a + b) / 2, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("sample", ROWS, ids=repr)
def test_results_of_parts_along_a_label_make_up_the_result(sample: Sample) -> None:
    call = make_call(sample, _dtype(sample)).to_meta()
    args = call.bound_arguments()
    if isinstance(call.op.infer(args), meta.ir.type.Value):
        return
    typed = TypedCall.of(call.op, [as_type(arg) for arg in args])
    axes = axes_of(typed)
    if axes is None:
        return
    whole = flat_results(call.run())
    for label in dict.fromkeys(x for labels in axes.operands for x in labels if x is not None):
        cuts = _cuts(typed, axes, label)
        if cuts is None or not all(label in each or label in axes.reductions for each in axes.results):
            continue
        cut, blocks = cuts
        try:
            parts = [_on_part(call, typed, axes, label, span) for span in ((0, cut, blocks), (cut, blocks, blocks))]
        except MetaError:
            continue  # the operator takes no such parts, as windows larger than the tensor
        for i, (labels, expected) in enumerate(zip(axes.results, whole, strict=True)):
            a, b = (to_numpy(part[i]) for part in parts)
            if label in labels:
                joined = np.concatenate([a, b], labels.index(label))
            else:
                joined = COMBINED[axes.reductions[label]](a, b)
            joined = np.asarray(joined).astype(to_numpy(expected).dtype)
            assert_equal(expected, array(joined), f"{sample.op}: result {i} along label {label} of {axes}")


# --- vmap ------------------------------------------------------------------------------------------------------------


def _pairs(call: OperatorCall, flags: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """The arrays of two calls, which differ where `flags` says so."""
    xs = call.arrays()
    return xs, [meta.flip(x, 0) if x.ndim and flag else x for x, flag in zip(xs, flags, strict=True)]


@pytest.mark.parametrize("sample", [row for row in ROWS if row.op != "shape"], ids=repr)
def test_vmap_gives_the_results_of_single_calls(sample: Sample) -> None:
    """With all arrays of a batch, and with each of them alone."""
    call = make_call(sample, _dtype(sample)).to_meta()
    count = len(call.arrays())
    alone = [[i == j for i in range(count)] for j in range(count)] if count > 1 else []

    def run(*xs: Any) -> Any:
        return call.with_arrays(xs).run()

    for flags in ([True] * count, *alone):
        one, other = _pairs(call, flags)
        try:
            expected = [flat_results(run(*one)), flat_results(run(*other))]
        except MetaError:
            continue  # the flipped values are no operands, such as matrices without a factorization
        stacks = [meta.stack([x, y]) if flag else x for x, y, flag in zip(one, other, flags, strict=True)]
        results = flat_results(vmap(run, tuple(0 if flag else None for flag in flags))(*stacks))
        for i, result in enumerate(results):
            for got, rows in zip(to_numpy(result), expected, strict=True):
                assert_equal(rows[i], array(np.ascontiguousarray(got)), f"{sample.op}: result {i} with {flags}")


LOOPED = {
    "conv2d_epilogue", "conv2d_packed", "index_select", "non_max_suppression", "scatter_nd", "solve_ex",
    "solve_triangular", "take",
}  # fmt: skip
"""Operators that `vmap` calls for each element of a batch, if all arrays differ. Of the solvers, the batches broadcast
in the sample."""


def test_few_operators_run_for_each_element(monkeypatch: pytest.MonkeyPatch) -> None:
    looped: set[str] = set()
    run = BatchLevel._one_by_one

    def noted(self: Any, op: Any, *rest: Any) -> Any:
        looped.add(op.name)
        return run(self, op, *rest)

    monkeypatch.setattr(BatchLevel, "_one_by_one", noted)
    first = {row.op: row for row in reversed(ROWS) if row.op != "shape"}
    for sample in first.values():
        call = make_call(sample, _dtype(sample)).to_meta()
        vmap(lambda *xs, call=call: call.with_arrays(xs).run())(*(meta.stack([x, x]) for x in call.arrays()))
    assert looped == LOOPED


def test_neighbouring_axes_of_rows_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, found = (2, 3, 2, 4, 2), set[str]()
    monkeypatch.setattr(runners, "_on_joined_axes", lambda _: None)
    for op in all_ops():
        if op.family == USER or "axis" not in op.schema.names or "key" in op.schema.names:
            continue
        for axis in (0, 2, -1):
            given = {"axis": (axis,) if takes_axes(op) else axis}
            values = [given.get(a.name, array(_numbers(shape)) if a.is_tensor else a.default) for a in op.schema.args]
            try:
                call = TypedCall.of(op, [as_type(x) for x in values])
            except (MetaError, AttributeError, TypeError):
                continue  # it takes other arguments
            args = joined(call)
            if args is None:
                continue
            found.add(op.name)
            fewer = [
                meta.reshape(x, a.shape) if isinstance(x, NDArray) else a for x, a in zip(values, args, strict=True)
            ]
            with meta.with_dialect("reference"):
                whole, parts = (leaves_of(invoke(state(op), *each)) for each in (values, fewer))
                for y, part in zip(whole, parts, strict=True):
                    np.testing.assert_array_equal(part.numpy().reshape(y.shape), y.numpy(), err_msg=op.name)
    assert {"softmax", "softmax_dx", "sum", "max", "argmax", "std", "cumsum", "sort", "logsumexp"} <= found


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")
