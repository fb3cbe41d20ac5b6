"""Cached runners: arguments that compare equal but differ run what they say, warm as cold."""

from __future__ import annotations

import math
from collections.abc import Callable
from marshal import dumps
from typing import Any

import numpy as np
import pytest

import meta
from meta._generated.operators import pool
from meta.eager import call as calls
from meta.eager.call import state
from meta.eager.known_items import KnownItems
from meta.errors import ArgumentError
from meta.op.registry import get
from meta.op.user.functions import function_of, public_function
from meta.testing.call import OperatorCall
from meta.testing.generic import make_call
from meta.testing.samples import Sample
from tests.python.op.samples import samples

SIGNED: dict[str, Callable[[Any, Any], meta.NDArray]] = {
    "divide": lambda x, zero: x / zero,
    "atan2": lambda x, zero: meta.atan2(meta.zeros((2,)), zero),
    "full": lambda x, zero: meta.full((2,), zero),
    "pad": lambda x, zero: meta.pad(x, ((1, 1),), zero),
    "threshold": lambda x, zero: meta.threshold(x, 5.0, zero),
}


@pytest.mark.parametrize("zero", [float, np.float64, np.float32])
@pytest.mark.parametrize("name", SIGNED)
def test_zeros_of_both_signs(name: str, zero: Callable[[float], Any]) -> None:
    x = meta.array([1.0, -2.0])
    for _ in "cold", "warm":
        positive, negative = (SIGNED[name](x, zero(value)) for value in (0.0, -0.0))
        assert positive.numpy().tobytes() != negative.numpy().tobytes()


@pytest.mark.parametrize("axis", [(1.0,), (True,), [1.0], [True]])
def test_refused_warm_as_cold(axis: Any) -> None:
    x = meta.ones((2, 3))
    with pytest.raises(ArgumentError, match="argument 'axis' is"):
        meta.sum(x, axis=axis)
    meta.sum(x, axis=(1,))
    with pytest.raises(ArgumentError, match="argument 'axis' is"):
        meta.sum(x, axis=axis)
    with pytest.raises(ArgumentError, match="argument 'axis' is"), meta.no_grad():
        meta.sum(x, axis=axis)


@pytest.mark.parametrize("wrong", [np.zeros(2), meta.zeros((2,)), "0.5", [0.5]])
def test_unsuitable_float(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="argument 'alpha' is"):
        meta.leaky_relu(meta.ones((2,)), wrong)


def test_not_a_number_is_one_key() -> None:
    x = meta.ones((3,))
    meta.threshold(x, 5.0, float("nan"))
    meta.maximum(x, float("nan"))
    counts = [len(getattr(state(get(op)), kind)) for op in ("threshold", "maximum") for kind in ("fast", "scoped")]
    for _ in range(3):
        assert all(math.isnan(v) for v in meta.threshold(x, 5.0, float("nan")).tolist())
        assert all(math.isnan(v) for v in meta.maximum(x, float("nan")).tolist())
    assert counts == [len(getattr(state(get(op)), k)) for op in ("threshold", "maximum") for k in ("fast", "scoped")]


def test_floats_hit_the_fast_path() -> None:
    x = meta.ones((3,))
    for alpha in (0.0, -0.0, 0.25):
        first = meta.leaky_relu(x, alpha)
        count = len(state(get("leaky_relu")).scoped)
        assert (meta.leaky_relu(x, alpha) == first).numpy().all()
        assert len(state(get("leaky_relu")).scoped) == count


POOLED = meta.array(np.arange(32, dtype="float32").reshape(1, 2, 4, 4))


@pytest.mark.parametrize("name", ["max_pool2d", "max_pool2d_with_indices", "avg_pool2d"])
@pytest.mark.parametrize(
    ("good", "wrong"), [(1, True), (1, 1.0), ((1, 2), (True, 2)), ((2,), (2.0,)), ((2, 1), (np.True_, 1.0))], ids=repr
)
def test_items_that_compare_equal(name: str, good: Any, wrong: Any) -> None:
    """The parts of the key are remembered by identity: an equal object neither finds them nor spoils them."""
    function = getattr(meta, name)
    for _ in "cold", "warm":
        with pytest.raises(ArgumentError, match="argument 'kernel' is"):
            function(POOLED, wrong)
        with pytest.raises(ArgumentError, match="argument 'stride' is"):
            function(POOLED, good, wrong)
        first, second = (function(POOLED, good) for _ in range(2))
        if isinstance(first, tuple):
            first, second = first[0], second[0]
        assert first.tolist() == second.tolist()
        assert first.shape == (1, 2, *(4 // k for k in (good if isinstance(good, tuple) else (good,)) * 2))[:4]


def test_equal_items_share_an_entry() -> None:
    items: KnownItems = vars(pool)["_i_max_pool2d"]
    meta.max_pool2d(POOLED, (2, 3))
    *_, parts = items[(2, 3), (), (0, 0), (1, 1)]
    for _ in range(2):
        assert meta.max_pool2d(POOLED, tuple(range(2, 4)), padding=tuple([0] * 2)).shape == (1, 2, 2, 1)
        assert items[(2, 3), (), (0, 0), (1, 1)][-1] is parts


def test_lists_of_items_may_change() -> None:
    kernel = [2, 2]
    assert meta.max_pool2d(POOLED, kernel).shape == (1, 2, 2, 2)
    kernel[1] = 1
    assert meta.max_pool2d(POOLED, kernel).shape == (1, 2, 2, 4)


def test_the_function_of_a_user_remembers_items() -> None:
    """It is the same text as the package's, with other names of helpers."""
    function = public_function(get("max_pool2d_with_indices"), __name__, ())
    for kernel in (2, (2, 2), (2, 1), 2):
        ours, packaged = function(POOLED, kernel), meta.max_pool2d_with_indices(POOLED, kernel)
        assert [t.tolist() for t in ours] == [t.tolist() for t in packaged]
    for _ in "cold", "warm":
        with pytest.raises(ArgumentError, match="argument 'padding' is"):
            function(POOLED, 2, padding=(False, 0))


def test_known_items() -> None:
    items = KnownItems()
    stride = tuple(range(2, 4))
    *objects, parts = items[2, stride]
    assert objects == [2, stride]
    assert parts == ((2,), stride, dumps((2,), 2), dumps(stride, 2))
    assert items[2, stride][-1] is parts
    equal = tuple(range(2, 4))
    assert items[2, equal][1] is stride  # the caller sees another object
    items.renew((2, equal))
    assert items[2, stride][1] is equal
    with pytest.raises(ValueError, match="unmarshallable"):
        items[2, (object(),)]
    for i in range(1000):
        items[2, (i,)]
    assert len(items) <= 256


def _needs_the_general_path(sample: Sample, call: OperatorCall) -> bool:
    """Numbers in place of tensors and NaN are no keys, plain values have no runner, and gradients take attributes in
    normal form, into which calls with tensors are brought. Products of no bytes call the operators that they consist
    of, with numbers."""
    bound = call.bound_arguments()
    roles = [arg.type.role for arg in call.op.schema.args]
    arguments = list(zip(roles, bound, strict=True))
    given = {**dict(zip(call.op.schema.names, call.args, strict=False)), **call.kwargs}
    normal = dict(zip(call.op.schema.names, bound, strict=True))
    attributes = [arg.name for arg in call.op.schema.args if arg.name in given and not arg.is_tensor]
    is_normal = all(repr(given[name]) == repr(normal[name]) for name in attributes)
    return (
        sample.op == "shape"
        or (sample.op == "dense_int8" and 0 in bound[0].shape)
        or (not is_normal and bool(call.op.schema.tensor_positions))
        or any(
            (role == "scalar" and not isinstance(value, meta.NDArray) and value is not None) or value != value
            for role, value in arguments
            if not isinstance(value, (meta.NDArray, tuple))
        )
    )


@pytest.mark.parametrize("family", sorted({row.operator.family for row in samples()}))
def test_a_repeated_call_takes_the_fast_path(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As samples write their arguments, in normal form or not."""
    slow: list[str] = []
    for sample in [row for row in samples() if row.operator.family == family]:
        call = make_call(sample).to_meta()
        function = function_of(sample.operator)
        if _needs_the_general_path(sample, call):
            continue
        for _ in range(2):  # kernels that the first one evicts take its runner with them
            call.apply(function)
        general: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr("meta.eager.call.raw_key", general.append)
            call.apply(function)
        slow += [repr(sample) for _ in general]
    assert not slow


def test_operators_start_over_at_a_total_of_runners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "TOTAL_LIMIT", 40)
    calls.make_room(40)
    runners, most = state(get("tanh")), 0
    for size in range(1, 41):
        meta.tanh(meta.ones((size,)))
        most = max(most, len(runners.fast))
        assert runners.fast, "a call is remembered"
    assert 5 < most < 40
