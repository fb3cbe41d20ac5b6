"""simplify: every identity, and similar calls that are not identities."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta import passes
from meta.dim import sym
from meta.ir.type import tensor_type
from tests.python.passes.programs import check_same_results, lines, program, with_named_dialect

X = (2, 3)


def simplify_program(function, *types):
    """The lines of a function's program after simplify and dce, after a check that the results stay."""
    before = program(function, *types)
    after = passes.dce(passes.simplify(before))
    return lines(after if any(not isinstance(d, int) for t in types for d in getattr(t, "shape", t))
                 else check_same_results(before, after))  # fmt: skip


ONE = np.array([[1.0]], "float32")
IDENTITIES = {
    "x + -0.0": lambda x: x + -0.0,
    "-0.0 + x": lambda x: -0.0 + x,
    "x - 0.0": lambda x: x - 0.0,
    "x - zeros": lambda x: x - meta.zeros(X),
    "x - zeros of one row": lambda x: x - meta.zeros((3,)),
    "x + full(-0.0)": lambda x: x + meta.full(X, -0.0),
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
def test_removes_identities(name: str) -> None:
    assert simplify_program(IDENTITIES[name], X) == ["(%x,)"]


KEPT = {
    "-0.0 + 0 is 0.0": lambda x: x + 0,
    "0.0 + -0.0 is 0.0": lambda x: 0.0 + x,
    "-0.0 - -0.0 is 0.0": lambda x: x - -0.0,
    "x + zeros": lambda x: x + meta.zeros(X),
    "x + full(0)": lambda x: meta.full(X, 0.0) + x,
    "x + constant zeros": lambda x: x + meta.array(np.zeros(X, "float32")),
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
def test_keeps_calls_that_are_not_identities(name: str) -> None:
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
def test_removes_only_lossless_round_trips_of_casts(narrow: str, wide: str, lossless: bool) -> None:
    left = simplify_program(lambda x: x.cast(wide).cast(narrow), tensor_type((3,), narrow))
    assert (left == ["(%x,)"]) == lossless


def test_skips_wide_intermediate_casts() -> None:
    assert simplify_program(lambda x: x.cast("float32").cast("float64"), tensor_type((3,), "bfloat16")) == [
        '%0 = cast(%x, dtype="float64")', "(%0,)"
    ]  # fmt: skip


def test_narrowing_casts_move_before_changes_of_shape() -> None:
    module = program(lambda x: (x.reshape((3, 2)).cast("bfloat16"), x.cast("bfloat16")), X)
    after = passes.dce(passes.cse(passes.simplify(module)))
    assert sum("cast(" in line for line in lines(check_same_results(module, after))) == 1
    widening = simplify_program(lambda x: x.reshape((3, 2)).cast("float32"), tensor_type(X, "bfloat16"))
    assert [line.split("(")[0] for line in widening[:2]] == ["%0 = reshape", "%1 = cast"]


def test_keeps_double_logical_not_of_numbers() -> None:
    assert len(simplify_program(lambda x: meta.logical_not(meta.logical_not(x)), tensor_type((3,), "int64"))) == 3
    assert simplify_program(lambda x: meta.logical_not(meta.logical_not(x)), tensor_type((3,), "bool")) == ["(%x,)"]


def test_merges_reshapes() -> None:
    assert simplify_program(lambda x: meta.expand_dims(x.reshape((6,)), (0, 2)), X) == [
        "%0 = reshape(%x, shape=(1, 6, 1))", "(%0,)"
    ]  # fmt: skip
    n = sym("n")
    assert simplify_program(lambda x: x.reshape((n * 3,)).reshape((n, 3)), tensor_type((n, 3))) == ["(%x,)"]


def test_merges_transposes() -> None:
    assert simplify_program(lambda x: x.transpose((1, 2, 0)).transpose((1, 0, 2)), (2, 3, 4)) == [
        "%0 = transpose(%x, axes=(2, 1, 0))", "(%0,)"
    ]  # fmt: skip


def test_fuses_transposes_into_matmul() -> None:
    a, b = (2, 3), (4, 3)
    assert simplify_program(lambda x, y: x @ y.transpose(), a, b) == ["%0 = matmul(%x, %y, transpose_b=True)", "(%0,)"]
    assert simplify_program(lambda x, y: x.swap_axis(0, 1) @ y, (3, 2), (3, 4)) == [
        "%0 = matmul(%x, %y, transpose_a=True)", "(%0,)"
    ]  # fmt: skip
    assert simplify_program(lambda x, y: meta.matmul(x.transpose(), y, transpose_a=True), a, (3, 4)) == [
        "%0 = matmul(%x, %y)", "(%0,)"
    ]  # fmt: skip
    batched = simplify_program(lambda x, y: x @ meta.swap_axis(y, -1, -2), (5, 2, 3), (5, 4, 3))
    assert batched == ["%0 = matmul(%x, %y, transpose_b=True)", "(%0,)"]
    assert len(simplify_program(lambda x, y: x @ y.transpose((1, 0, 2)), (4, 2, 3), (3, 4, 5))) == 3


def test_fuses_broadcasts_into_elementwise_operators() -> None:
    assert simplify_program(lambda x, y: meta.broadcast_to(y, X) * x, X, (3,)) == ["%0 = multiply(%y, %x)", "(%0,)"]
    assert simplify_program(lambda x, y: x < meta.broadcast_to(y, X), X, (3,)) == ["%0 = less(%x, %y)", "(%0,)"]
    half = tensor_type((3,), "float16")
    assert simplify_program(lambda x, y: x - meta.broadcast_to(y, X), X, half) == ["%0 = subtract(%x, %y)", "(%0,)"]
    assert simplify_program(lambda x, y: y.cast("int32") + meta.broadcast_to(x, X), (3,), X)[-2] == "%1 = add(%0, %x)"
    assert len(simplify_program(lambda x, y: meta.broadcast_to(y, X) + x, (3,), (3,))) == 3
    assert len(simplify_program(lambda y: meta.broadcast_to(y, X) * 2.0, (3,))) == 3


def test_replaces_like_operators_by_their_shapes() -> None:
    assert simplify_program(lambda x, y: meta.cast_like(x, y), X, tensor_type((9,), "float64")) == [
        '%0 = cast(%x, dtype="float64")', "(%0,)"
    ]  # fmt: skip
    assert simplify_program(lambda x, y: meta.reshape_like(x, y), X, X) == ["(%x,)"]
    left = simplify_program(lambda x, y: meta.broadcast_to_like(x, y) + 1.0, (3,), X)
    assert left[0] == "%0 = broadcast_to(%x, shape=(2, 3))"


def test_simplifies_integer_operators() -> None:
    ints = tensor_type((3,), "int64")
    assert simplify_program(lambda x: (x + 0) * 1, ints) == ["(%x,)"]
    assert len(simplify_program(lambda x: x / 1, ints)) == 2  # float32 comes out


def test_keeps_stop_gradient_until_differentiation() -> None:
    before = program(lambda x: x.detach() * x, X)
    assert passes.simplify(before).main is before.main
    assert lines(passes.dce(passes.drop_stop_gradient(before))) == ["%0 = multiply(%x, %x)", "(%0,)"]


def test_keeps_dispatched_calls() -> None:
    before = with_named_dialect(program(lambda x: meta.relu(x * 1.0) - 0.0, X), "tvm")
    assert passes.simplify(before).main is before.main
