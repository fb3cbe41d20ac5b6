"""Each identity, and what looks like one and is none."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta import passes
from meta.dim import sym
from meta.ir.type import tensor_type
from tests.python.passes.programs import lines, program, same_results, with_named_dialect

X = (2, 3)


def simplified(function, *types):
    """What is left of the program of a function after simplify and dce, and that it gives the same."""
    before = program(function, *types)
    after = passes.dce(passes.simplify(before))
    return lines(after if any(not isinstance(d, int) for t in types for d in getattr(t, "shape", t))
                 else same_results(before, after))  # fmt: skip


ONE = np.array([[1.0]], "float32")
IDENTITIES = {
    "x + 0": lambda x: x + 0,
    "0 + x": lambda x: 0 + x,
    "x + 0.0": lambda x: x + 0.0,
    "x + zeros": lambda x: x + meta.zeros(X),
    "zeros of one row": lambda x: meta.zeros((3,)) + x,
    "x + full(0)": lambda x: x + meta.full(X, 0.0),
    "x - 0": lambda x: x - 0,
    "x * 1": lambda x: x * 1,
    "1.0 * x": lambda x: 1.0 * x,
    "x * ones_like": lambda x: x * meta.ones_like(x),
    "x * constant": lambda x: x * meta.array(ONE),
    "x - several zeros": lambda x: x - meta.array(np.zeros(X, "float32")),
    "x / 1": lambda x: x / 1,
    "x ** 1": lambda x: x**1,
    "-(-x)": lambda x: meta.negative(-x),
    "cast to its dtype": lambda x: x.cast("float32"),
    "cast there and back": lambda x: x.cast("float64").cast("float32"),
    "reshape to its shape": lambda x: x.reshape(X),
    "reshape there and back": lambda x: x.reshape((6,)).reshape((3, 2)).reshape(X),
    "expand and squeeze": lambda x: meta.squeeze(meta.expand_dims(x, 0), 0),
    "broadcast to its shape": lambda x: meta.broadcast_to(x, X),
    "sum_to its shape": lambda x: meta.sum_to(x, X),
    "transpose twice": lambda x: x.transpose().transpose(),
    "axes that come back": lambda x: x.reshape((1, 2, 3)).transpose((1, 2, 0)).transpose((2, 0, 1)).reshape(X),
    "identity permutation": lambda x: x.transpose((0, -1)),
    "swap_axis twice": lambda x: x.swap_axis(0, 1).swap_axis(-1, -2),
    "moveaxis of nothing": lambda x: meta.moveaxis(x, 1, 1),
    "copy": lambda x: meta.copy(x),
    "device_copy": lambda x: meta.device_copy(x, "cpu"),
    "concatenate of one": lambda x: meta.concatenate([x]),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities_vanish(name: str) -> None:
    assert simplified(IDENTITIES[name], X) == ["(%x,)"]


KEPT = {
    "x * 0 is NaN for infinities": lambda x: x * 0,
    "x - x": lambda x: x - x,
    "x / x": lambda x: x / x,
    "0 - x": lambda x: 0 - x,
    "1 / x": lambda x: 1 / x,
    "x ** 0": lambda x: x**0,
    "1 ** x": lambda x: 1**x,
    "x + 1": lambda x: x + 1,
    "x * constants not all 1": lambda x: x * meta.array(np.array([1.0, 1.0, 2.0], "float32")),
    "x + full of something else": lambda x: x + meta.full(X, 0.5),
    "half rounds": lambda x: x.cast("float16").cast("float32"),
    "bfloat16 rounds": lambda x: x.cast("bfloat16").cast("float32"),
    "half of half": lambda x: x.cast("bfloat16").cast("float16"),
    "ints truncate": lambda x: x.cast("int64").cast("float32"),
    "bools": lambda x: x.cast("bool").cast("float32"),
    "another dtype comes out": lambda x: x + meta.zeros(X, "float64"),
    "another shape comes out": lambda x: x * meta.ones((4, 1, 1)),
    "exp of log": lambda x: meta.exp(meta.log(meta.exp(x))),
    "one transpose": lambda x: x.transpose(),
    "relu twice": lambda x: meta.relu(-meta.relu(x)),
    "reductions": lambda x: meta.sum(x, 0, True),
    "flip twice is not looked at": lambda x: meta.flip(x, 0),
    "a real broadcast": lambda x: meta.broadcast_to(x, (4, 2, 3)),
    "two draws": lambda x: meta.normal(meta.array([0, 1]), X) - meta.normal(meta.array([0, 2]), X) + x,
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_identity_stays(name: str) -> None:
    before = program(KEPT[name], X)
    assert passes.dce(passes.simplify(before)).main is before.main or lines(
        passes.dce(passes.simplify(before))
    ) == lines(passes.dce(before))


@pytest.mark.parametrize(
    ("narrow", "wide", "lossless"),
    [("float16", "float32", True), ("bfloat16", "float32", True), ("float32", "float64", True), ("int8", "int32", True),
     ("uint8", "int16", True), ("bool", "int8", True), ("bool", "float16", True), ("int8", "float16", True),
     ("uint8", "bfloat16", True), ("int16", "float32", True), ("int32", "float64", True),
     ("float16", "bfloat16", False), ("bfloat16", "float16", False), ("float64", "float32", False),
     ("int32", "float32", False), ("int64", "float64", False), ("int16", "float16", False),
     ("int16", "bfloat16", False),
     ("int32", "int8", False), ("uint8", "int8", False), ("int8", "uint8", False), ("float32", "int64", False)],
)  # fmt: skip
def test_casts_there_and_back_vanish_only_when_no_value_is_lost(narrow: str, wide: str, lossless: bool) -> None:
    left = simplified(lambda x: x.cast(wide).cast(narrow), tensor_type((3,), narrow))
    assert (left == ["(%x,)"]) == lossless


def test_a_wide_step_between_casts_is_left_out() -> None:
    assert simplified(lambda x: x.cast("float32").cast("float64"), tensor_type((3,), "bfloat16")) == [
        '%0 = cast(%x, dtype="float64")', "(%0,)"
    ]  # fmt: skip


def test_double_logical_not_of_numbers_stays() -> None:
    assert len(simplified(lambda x: meta.logical_not(meta.logical_not(x)), tensor_type((3,), "int64"))) == 3
    assert simplified(lambda x: meta.logical_not(meta.logical_not(x)), tensor_type((3,), "bool")) == ["(%x,)"]


def test_reshapes_of_reshapes_are_one() -> None:
    assert simplified(lambda x: meta.expand_dims(x.reshape((6,)), (0, 2)), X) == [
        "%0 = reshape(%x, shape=(1, 6, 1))", "(%0,)"
    ]  # fmt: skip
    n = sym("n")
    assert simplified(lambda x: x.reshape((n * 3,)).reshape((n, 3)), tensor_type((n, 3))) == ["(%x,)"]


def test_transposes_compose() -> None:
    assert simplified(lambda x: x.transpose((1, 2, 0)).transpose((1, 0, 2)), (2, 3, 4)) == [
        "%0 = transpose(%x, axes=(2, 1, 0))", "(%0,)"
    ]  # fmt: skip


def test_transposes_go_into_matmul() -> None:
    a, b = (2, 3), (4, 3)
    assert simplified(lambda x, y: x @ y.transpose(), a, b) == ["%0 = matmul(%x, %y, transpose_b=True)", "(%0,)"]
    assert simplified(lambda x, y: x.swap_axis(0, 1) @ y, (3, 2), (3, 4)) == [
        "%0 = matmul(%x, %y, transpose_a=True)", "(%0,)"
    ]  # fmt: skip
    assert simplified(lambda x, y: meta.matmul(x.transpose(), y, transpose_a=True), a, (3, 4)) == [
        "%0 = matmul(%x, %y)", "(%0,)"
    ]  # fmt: skip
    batched = simplified(lambda x, y: x @ meta.swap_axis(y, -1, -2), (5, 2, 3), (5, 4, 3))
    assert batched == ["%0 = matmul(%x, %y, transpose_b=True)", "(%0,)"]
    assert len(simplified(lambda x, y: x @ y.transpose((1, 0, 2)), (4, 2, 3), (3, 4, 5))) == 3


def test_broadcasts_go_into_elementwise_operators() -> None:
    assert simplified(lambda x, y: meta.broadcast_to(y, X) * x, X, (3,)) == ["%0 = multiply(%y, %x)", "(%0,)"]
    assert simplified(lambda x, y: x < meta.broadcast_to(y, X), X, (3,)) == ["%0 = less(%x, %y)", "(%0,)"]
    half = tensor_type((3,), "float16")
    assert simplified(lambda x, y: x - meta.broadcast_to(y, X), X, half) == ["%0 = subtract(%x, %y)", "(%0,)"]
    assert simplified(lambda x, y: y.cast("int32") + meta.broadcast_to(x, X), (3,), X)[-2] == "%1 = add(%0, %x)"
    assert len(simplified(lambda x, y: meta.broadcast_to(y, X) + x, (3,), (3,))) == 3
    assert len(simplified(lambda y: meta.broadcast_to(y, X) * 2.0, (3,))) == 3


def test_like_operators_do_not_need_their_pattern() -> None:
    assert simplified(lambda x, y: meta.cast_like(x, y), X, tensor_type((9,), "float64")) == [
        '%0 = cast(%x, dtype="float64")', "(%0,)"
    ]  # fmt: skip
    assert simplified(lambda x, y: meta.reshape_like(x, y), X, X) == ["(%x,)"]
    left = simplified(lambda x, y: meta.broadcast_to_like(x, y) + 1.0, (3,), X)
    assert left[0] == "%0 = broadcast_to(%x, shape=(2, 3))"


def test_integers_are_simplified_too() -> None:
    ints = tensor_type((3,), "int64")
    assert simplified(lambda x: (x + 0) * 1, ints) == ["(%x,)"]
    assert len(simplified(lambda x: x / 1, ints)) == 2  # float32 comes out


def test_gradients_stop_until_they_are_taken() -> None:
    before = program(lambda x: x.detach() * x, X)
    assert passes.simplify(before).main is before.main
    assert lines(passes.dce(passes.drop_stop_gradient(before))) == ["%0 = multiply(%x, %x)", "(%0,)"]


def test_dispatched_calls_are_left_alone() -> None:
    before = with_named_dialect(program(lambda x: meta.relu(x * 1.0) + 0.0, X), "tvm")
    assert passes.simplify(before).main is before.main
