"""Order statistics, moments without NaN, differences and histograms: values and gradients as torch's, and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError, MetaError, TraceError, TypeInferenceError
from tests.python.functional.against_torch import Function, compare, floats, same

NAN = np.nan
HOLES = np.array([[1, NAN, 3, 2], [NAN] * 4, [4, 0, -1, 7]], np.float32)
FRACTIONS = np.array([0.0, 0.3, 0.77, 1.0], np.float32)
PLACES = np.array([0, 1, 1.5, 4], np.float32)


def function(name: str, *args: Any, **kwargs: Any) -> tuple[Function, Function]:
    """A function of one name here and in torch; axis and keepdims are dim and keepdim there."""
    renamed = {{"axis": "dim", "keepdims": "keepdim"}.get(key, key): value for key, value in kwargs.items()}
    return lambda x: getattr(meta, name)(x, *args, **kwargs), lambda x: getattr(torch, name)(x, *args, **renamed)


ROWS: dict[str, tuple[Function, Function, list[Any]]] = {
    "kthvalue": (*function("kthvalue", 2, 0), [floats(4, 3)]),
    "kthvalue of a 0-d tensor": (*function("kthvalue", 1), [floats()]),
    "median": (*function("median"), [floats(3, 4)]),
    "median along an axis": (*function("median", 0, True), [floats(4, 3)]),
    "nanmedian along an axis": (*function("nanmedian", axis=-1), [HOLES[::2]]),
    "mode": (*function("mode", axis=0), [floats(4, 3)]),
    "max_with_indices": (lambda x: meta.max_with_indices(x, 0), lambda x: x.max(0), [floats(4, 3)]),
    "min_with_indices": (lambda x: meta.min_with_indices(x, 1, True), lambda x: x.min(1, True), [floats(4, 3)]),
    "aminmax": (*function("aminmax", axis=1, keepdims=True), [floats(4, 3)]),
    "msort": (*function("msort"), [floats(4, 3)]),
    **{f"quantile {how}": (lambda x, q, how=how: meta.quantile(x, q, 1, True, how),
                           lambda x, q, how=how: x.quantile(q, 1, True, interpolation=how),
                           [floats(2, 5, 3), FRACTIONS])
       for how in ("linear", "lower", "higher", "midpoint", "nearest")},
    "nanquantile": (*function("nanquantile", 0.4, axis=1), [HOLES]),
    "quantile of all": (*function("quantile", 0.6), [floats(2, 5)]),
    "nanmean": (*function("nanmean", axis=(1,), keepdims=True), [HOLES[::2]]),
    "nansum": (*function("nansum", axis=1), [HOLES]),
    "var_mean": (*function("var_mean", axis=0), [floats(4, 3)]),
    "std_mean": (*function("std_mean", axis=(0, 1), keepdims=True), [floats(4, 3)]),
    "diff": (lambda x, p: meta.diff(x, 2, 0, p), lambda x, p: torch.diff(x, 2, 0, p), [floats(4, 3), floats(1, 3)]),
    "diff more often than there are elements": (*function("diff", 9, 0), [floats(4, 3)]),
    "trapezoid": (*function("trapezoid", dx=2.0, axis=0), [floats(4, 3)]),
    "trapezoid at places": (lambda y, x: meta.trapezoid(y, x, axis=0), lambda y, x: torch.trapezoid(y, x, dim=0),
                            [floats(4, 3), PLACES]),
    "cumulative_trapezoid": (lambda y, x: meta.cumulative_trapezoid(y, x, axis=1),
                             lambda y, x: torch.cumulative_trapezoid(y, x, dim=1), [floats(2, 4, 3), floats(4, 3)]),
    "gradient": (*function("gradient", spacing=2.0), [floats(4, 3)]),
    "gradient at places": (lambda x: meta.gradient(x, [meta.array(PLACES)], 0, 2),
                           lambda x: torch.gradient(x, spacing=[torch.from_numpy(PLACES)], dim=0, edge_order=2),
                           [floats(4, 3)]),
    "gradient of two elements": (*function("gradient"), [floats(2, 2)]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_as_torch(name: str) -> None:
    ours, theirs, hosts = ROWS[name]
    compare(ours, theirs, hosts)


def test_nan_and_ties() -> None:
    x, t = meta.array(HOLES), torch.from_numpy(HOLES)
    for name in ("median", "nanmedian"):
        assert np.array_equal(getattr(meta, name)(x, 1)[0].numpy(), getattr(torch, name)(t, 1).values, equal_nan=True)
    assert meta.median(x, 1)[1].tolist() == t.median(1).indices.tolist()
    same(meta.quantile(x, 0.9, 1), t.quantile(0.9, 1))
    ties = np.array([[3, 1, 1, 3, 2, 3], [0, 0, 1, 1, 5, 5]])
    same(meta.mode(meta.array(ties), 1), torch.from_numpy(ties).mode(1))
    assert meta.max_with_indices(meta.array([True, False, True]))[1].item() == 0


def test_histograms() -> None:
    host = np.random.default_rng(0).normal(size=200).astype(np.float32)
    x, t = meta.array(host), torch.from_numpy(host)
    same(meta.histc(x, 7, -1, 2), torch.histc(t, 7, -1, 2))
    same(meta.histc(x.cast("int32"), 3), torch.histc(t.int().float(), 3).int())
    same(meta.histogram(x, 7), torch.histogram(t, 7))
    same(meta.histogram(x[:0], 2), torch.histogram(t[:0], 2))
    same(meta.histogram(x[:1], 2), torch.histogram(t[:1], 2))
    same(meta.histogram(x, 2, (1, 1)), torch.histogram(t, 2, range=(1.0, 1.0)))
    weights = np.abs(host)
    ours = meta.histogram(x, meta.array(PLACES), weights=meta.array(weights), density=True)
    same(ours, torch.histogram(t, torch.from_numpy(PLACES), weight=torch.from_numpy(weights), density=True))
    same(meta.bincount(meta.array([1, 4, 1]), minlength=7), torch.bincount(torch.tensor([1, 4, 1]), minlength=7))
    numbers, halves = torch.tensor([1, 4, 1]), torch.tensor([0.5, 1.0, 2.0])
    same(meta.bincount(meta.array([1, 4, 1]), meta.array([0.5, 1.0, 2.0])), torch.bincount(numbers, halves))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_distinct_elements(axis: int | None) -> None:
    host = np.array([[1, 2, 1], [0, 5, 1], [1, 2, 1], [1, 2, 0]])
    for name in ("unique", "unique_consecutive"):
        values, inverse, counts = getattr(meta, name)(meta.array(host), axis)
        expected = getattr(torch, name)(torch.from_numpy(host), return_inverse=True, return_counts=True, dim=axis)
        same([values, inverse, counts], [expected[0], expected[1].flatten(), expected[2]])


def test_positions_of_values() -> None:
    row = meta.array([1.0, 2.0, 3.0])
    assert meta.searchsorted(row, 2).shape == ()  # of a number
    assert meta.searchsorted(row, meta.array(2.0), side="right").item() == 2
    assert meta.searchsorted(meta.array([3.0, 1.0, 2.0]), row, sorter=meta.array([1, 2, 0])).tolist() == [0, 1, 2]
    bins = meta.bucketize(meta.array([[1, 5]]), meta.array([1, 3]), True, dtype="int32")
    assert (bins.tolist(), bins.dtype) == ([[1, 2]], "int32")
    rows, values = np.sort(np.random.default_rng(0).integers(0, 9, (3, 7))), np.arange(12).reshape(3, 4)
    for right in (False, True):
        expected = torch.searchsorted(torch.from_numpy(rows), torch.from_numpy(values), right=right)
        same(meta.searchsorted(meta.array(rows), meta.array(values), right), expected)
    special = meta.searchsorted(meta.array([-1.0, 2.0, NAN]), meta.array([NAN, np.inf, -np.inf]))
    assert special.tolist() == [2, 2, 0]  # NaN is larger than every number
    assert meta.isin(meta.array([1, 4, 1]), meta.array([4, 5])).tolist() == [False, True, False]
    assert meta.isin(meta.array([4.0, NAN]), 4, invert=True).tolist() == [False, True]
    assert meta.isin(1, meta.array([4, 1])).item()
    mask = meta.array([[True, False], [True, True]])
    assert [axis.tolist() for axis in meta.nonzero(mask)] == [[0, 1, 1], [0, 0, 1]]
    assert meta.count_nonzero(mask, 0).tolist() == [2, 1]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: meta.kthvalue(x, 4), TypeInferenceError, r"\[kthvalue\] k is 4 for an axis of size 3"),
        (lambda x: meta.median(x[:0], 0), TypeInferenceError, r"axis 0 of shape \(0, 3\) has no elements"),
        (lambda x: meta.mode(x, 2), TypeInferenceError, r"\[mode\] axis 2 is out of range for rank 2"),
        (lambda x: meta.quantile(x, 1.5), TypeInferenceError, "q is 1.5; expected a fraction from 0 to 1"),
        (lambda x: meta.quantile(x, x), TypeInferenceError, r"'q' has shape \(2, 3\); expected rank 0 or 1"),
        (lambda x: meta.quantile(x, 0.5, interpolation="cubic"), ArgumentError, "interpolation is 'cubic'"),
        (lambda x: meta.nanmean(x.cast("int64")), TypeInferenceError, r"\[nanmean\] 'x' has dtype int64"),
        (lambda x: meta.diff(x, -1), TypeInferenceError, r"\[diff\] n is -1; expected 0 or more"),
        (lambda x: meta.trapezoid(x, x[0, :2]), TypeInferenceError, "as many places as elements along axis 1"),
        (lambda x: meta.gradient(x, edge_order=3), ArgumentError, "edge_order is 3; expected 1 or 2"),
        (lambda x: meta.gradient(x, edge_order=2), TypeInferenceError, "axis 0 has size 2; expected 3 or more"),
        (lambda x: meta.gradient(x, [1.0]), TypeInferenceError, "1 spacings for 2 axes"),
        (lambda x: meta.histc(x, 0), TypeInferenceError, r"\[histc\] bins is 0; expected 1 or more"),
        (lambda x: meta.histogram(x, 3, (2, 1)), TypeInferenceError, "bounds 2 and 1; expected ascending ones"),
        (lambda x: meta.bincount(x), TypeInferenceError, r"x is float32 of shape \(2, 3\); expected a vector"),
        (lambda x: meta.bincount(meta.array([-1])), TypeInferenceError, "x contains -1; expected 0 and more"),
        (lambda x: meta.searchsorted(x, 1.0), TypeInferenceError, "a number for a sequence of rank 2"),
        (lambda x: meta.searchsorted(x, x[:1]), TypeInferenceError, "equal leading axes, or a 1-D sequence"),
        (lambda x: meta.searchsorted(x[0], x, True, "left"), ArgumentError, "side is 'left' and right True"),
        (lambda x: meta.bucketize(x, x), TypeInferenceError, r"boundaries have shape \(2, 3\); expected rank 1"),
        (lambda x: meta.isin(1, 2), ArgumentError, "both arguments are numbers"),
        (lambda x: meta.trace(meta.unique_consecutive).ir(x), TraceError, "the shape of the result depends on values"),
    ],
)  # fmt: skip
def test_refusals(call: Callable[[Any], Any], error: type[MetaError], match: str) -> None:
    with pytest.raises(error, match=match):
        call(meta.array(floats(2, 3)))


@pytest.mark.parametrize("interpolation", ["linear", "midpoint"])
def test_quantiles_of_infinities(interpolation: str) -> None:
    inf, nan = math.inf, math.nan
    rows = meta.array([[1.0, 2.0, -inf, 3.0], [-inf, -inf, 1.0, 2.0], [inf, 1.0, 2.0, inf], [-inf, inf, inf, inf]])
    expected = {
        0.0: [-inf, -inf, 1.0, -inf],
        0.25: [-inf, -inf, None, nan],
        0.5: [1.5, -inf, inf, inf],
        1.0: [3.0, 2.0, inf, inf],
    }
    for q, values in expected.items():
        actual = meta.quantile(rows, q, 1, interpolation=interpolation).numpy()
        for ours, right in zip(actual.tolist(), values, strict=True):
            assert right is None or ours == right or (math.isnan(ours) and math.isnan(right))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_elements_on_edges_are_counted_as_in_torch(dtype: str) -> None:
    """An even distribution is tried before bisection, in which rounding may put an edge one interval off."""
    edges = np.linspace(-1, 2, 38).astype(dtype)
    x = np.concatenate([edges, np.nextafter(edges, edges.dtype.type(9)), np.nextafter(edges, edges.dtype.type(-9)),
                        np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], dtype)])  # fmt: skip
    for places in (edges, edges**3, np.sort(np.r_[edges, edges]), edges[:1], np.append(edges, np.inf).astype(dtype)):
        for right in (False, True):
            ours = meta.searchsorted(meta.array(places), meta.array(x), right)
            theirs = torch.searchsorted(torch.from_numpy(places), torch.from_numpy(x), right=right)
            assert ours.tolist() == theirs.tolist()
    if dtype != "float16":  # torch has no histogram of halves
        for places in (edges, np.append(edges, np.inf).astype(dtype)):
            counts, _ = meta.histogram(meta.array(x), meta.array(places))
            finite = np.where(np.isnan(x), -9, x)
            theirs = torch.histogram(torch.from_numpy(finite), torch.from_numpy(places)).hist
            assert counts.tolist() == theirs.tolist()


@pytest.mark.parametrize("row", [[3.0, 1.0, 2.0, 0.0], [0.0, 2.0, 1.0, 3.0], [1.0, NAN, 0.0, 2.0]])
def test_positions_in_a_vector_that_does_not_ascend_are_found_by_bisection(row: list[float]) -> None:
    values = meta.array(np.linspace(-1, 4, 41).astype(np.float32))
    for right in (False, True):
        with meta.with_dialect("reference"):
            expected = meta.binary_search(meta.array(row), values, right).tolist()
        assert meta.binary_search(meta.array(row), values, right).tolist() == expected
