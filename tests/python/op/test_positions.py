"""Positions out of range: refused by eager calls on the CPU; in programs NaN, or nothing written; refused there, too,
with META_CHECK=1."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import MetaError, PositionError
from meta.op.registry import all_ops

X = meta.array(np.arange(1, 13, dtype="float32").reshape(3, 4))
ONES = meta.ones((3, 4))


def ints(*values: Any) -> meta.NDArray:
    return meta.array(values, dtype="int64")


CASES: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (lambda x, i: meta.embedding(x, i), (X, ints(0, -1)), r"\[embedding\] indices\[1\] is -1.*expected 0 to 2"),
    (lambda x, i: meta.embedding(x, i), (X, ints([0], [3])), r"indices\[1, 0\] is 3, out of range for size 3"),
    (lambda x, i: meta.embedding_dx(x, i, 3), (X, ints(0, 1, 3)), r"\[embedding_dx\] indices\[2\] is 3"),
    (lambda x, i: meta.take(x, i, 1), (X, ints(-4, 4)), r"\[take\] indices\[1\] is 4.*expected -4 to 3"),
    (lambda x, i: meta.take(x, i), (X, ints(-12, -13)), r"\[take\] indices\[1\] is -13.*expected -12 to 11"),
    (lambda x, i: meta.take_dx(x, i, (3, 5), 1), (X, ints(-5, 4, 5, 0)), r"\[take_dx\] indices\[2\] is 5"),
    (lambda x, i: meta.take_dx(x, i, (7,)), (X[0], ints(-5, 4, 7, 0)), r"\[take_dx\] indices\[2\] is 7"),
    (lambda x, i: meta.index_select(x, 1, i), (X, ints(0, -1)), r"\[index_select\] indices\[1\] is -1"),
    (lambda x, i: meta.gather(x, 1, i), (X, ints([3], [4], [0])), r"\[gather\] indices\[1, 0\] is 4"),
    (lambda x, i: meta.gather(x, 0, i), (X[0, 0], ints(1).sum()), r"\[gather\] indices is 1, out of range for size 1"),
    (lambda x, i: meta.gather_dx(x, 0, i, (3, 4)), (X, ints(*[[0, 1, 2, 3]] * 3)), r"\[gather_dx\] indices\[0, 3\]"),
    (lambda x, i: meta.gather_nd(x, i), (X, ints([0, 1], [3, 4])), r"\[gather_nd\] indices\[1, 1\] is 4.*0 to 3"),
    (lambda x, i: meta.gather_nd(x, i, 1), (X, ints([[0], [4], [0]])), r"\[gather_nd\] indices\[0, 1, 0\] is 4"),
    (lambda x, i: meta.gather_nd_dx(x, i, (3, 4)), (X[0, :2], ints([0, 3], [3, 1])), r"nd_dx\] indices\[0, 1\]"),
    (lambda x, i, s: meta.scatter_add(x, 0, i, s), (X, ints([0, 1, 2, 3]), ONES[:1]), r"add\] indices\[0, 3\]"),
    (lambda x, i, s: meta.scatter_elements(x, 0, i, s), (X, ints([0, -1, 2, 1]), ONES[:1]), r"indices\[0, 1\] is -1"),
    (lambda x, i, s: meta.scatter_elements(x, 0, i, s, "mul"), (X, ints([9, 1, 2, 1]), ONES[:1]), r"\[0, 0\] is 9"),
    (lambda x, i, s: meta.scatter_nd(x, i, s, "add"), (X, ints([0, 3]), ONES[:2]), r"nd\] indices\[0, 1\] is 3"),
    (lambda x, i: meta.nll_loss(x, i), (X, ints(0, 4, 1)), r"\[nll_loss\] target\[1\] is 4.*0 to 3, or -100, which"),
    (lambda x, i: meta.nll_loss_dx(x, i, None, (3, 4), "sum"), (X[0, 0], ints(0, 1, -1)), r"target\[2\] is -1"),
    (lambda x, i: meta.cross_entropy(x, i), (X, ints(0, -100, 5)), r"\[cross_entropy\] target\[2\] is 5"),
    (lambda x, i: meta.cross_entropy_dx(x, i, X[0, 0]), (X, ints(-2, 0, 1)), r"\[cross_entropy_dx\] target\[0\] is -2"),
    (lambda y, i: meta.max_pool1d_dx(y, i, (1, 1, 4), 2, 2), (X[:1, None, :2], ints([[0, 4]])), r"\[0, 0, 1\] is 4"),
    (lambda y, i: meta.adaptive_max_pool1d_dx(y, i, (1, 1, 4)), (X[:1, None, :2], ints([[-2, 3]])), r"0\] is -2"),
]  # fmt: skip
cases = pytest.mark.parametrize(("function", "args", "match"), CASES)


@cases
def test_eager_calls_refuse(function: Callable[..., Any], args: tuple[Any, ...], match: str):
    with pytest.raises(PositionError, match=match) as info:
        function(*args)
    assert isinstance(info.value, IndexError)
    assert "test_positions.py" in info.value.location
    with pytest.raises(PositionError, match=match):  # warm
        function(*args)
    with meta.with_dialect("reference"), pytest.raises(PositionError, match=match):
        function(*args)


@cases
def test_programs_mark_or_skip(function: Callable[..., Any], args: tuple[Any, ...], match: str):
    """Reads are NaN; of scatters, only what is inside is written: as by the reference on the CPU without checks."""
    result = meta.vm.compile(meta.trace(function))(*args).numpy()
    with meta.with_dialect("reference"):
        expected = meta.vm.compile(meta.trace(function))(*args).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    (name,) = (name for name in function.__code__.co_names if name != "meta" and hasattr(meta, name))
    writes = "scatter" in name or (name.endswith("_dx") and "loss" not in name and "entropy" not in name)
    assert np.isnan(result).any() == (not writes)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [*(("uint32", i) for i in (0, 2, 3, 8, 11, 14, 17)), *(("uint64", i) for i in (0, 14, 18, 20, 21))],
)
def test_programs_do_not_take_large_positions_for_negative_ones(dtype: str, number: int):
    function, (x, indices, *rest), _ = CASES[number]
    positions = np.abs(indices.numpy()).astype(dtype)
    positions.flat[-1] = np.iinfo(dtype).max
    inputs = x, meta.array(positions), *rest
    with meta.with_dialect("tvm"):
        result = meta.vm.compile(meta.trace(function))(*inputs).numpy()
    with meta.with_dialect("reference"):
        np.testing.assert_allclose(result, meta.vm.compile(meta.trace(function))(*inputs).numpy(), rtol=1e-6)


@pytest.mark.parametrize(("pivots", "match"), [
    ([[3, 0]], r"\[pivots_to_permutation\] pivots\[0, 1\] is 0, out of range for size 3; expected 1 to 3"),
    ([[3, 3], [4, 2]], r"pivots\[1, 0\] is 4.*meta.clip\(pivots, 1, 3\)"),
    ([[-(2**31), 2]], r"pivots\[0, 0\] is -2147483648"),
])  # fmt: skip
def test_pivots_count_from_one(pivots: Any, match: str) -> None:
    """Programs leave out exchanges with rows that do not exist."""
    p = meta.array(pivots, dtype="int32")
    results = []
    for dialect in ("torch", "reference"):
        with meta.with_dialect(dialect):
            with pytest.raises(PositionError, match=match):
                meta.pivots_to_permutation(p, 3)
            results.append(meta.vm.compile(meta.trace(lambda x: meta.pivots_to_permutation(x, 3)))(p).numpy())
    np.testing.assert_array_equal(*results)
    assert (np.sort(results[0], -1) == np.arange(3)).all()


def test_every_tensor_of_positions_is_checked():
    """Operators of integer tensors called "indices" and the like say which values they accept."""
    zeros = {"one_hot"}  # no position: a row of zeros
    for op in all_ops():
        named = {"indices", "target"} & {arg.name for arg in op.schema.args if arg.is_tensor}
        if named and op.basename not in zeros and op.positions is None:
            with pytest.raises(MetaError):  # it refuses integers
                op.infer([ints(0) if arg.is_tensor else None for arg in op.schema.args])
    assert sum(op.positions is not None for op in all_ops()) >= 22


def test_positions_count_from_the_end_as_in_numpy():
    host = X.numpy()
    for i in ([-1, 0], [-3, 2]):
        np.testing.assert_array_equal(meta.take(X, ints(*i), 0).numpy(), np.take(host, i, 0))
        np.testing.assert_array_equal(X[ints(*i)].numpy(), host[i])
    np.testing.assert_array_equal(
        meta.take(X, ints(-13, 99), mode="wrap").numpy(), np.take(host, [-13, 99], mode="wrap")
    )
    np.testing.assert_array_equal(
        meta.take(X, ints(-13, 99), mode="clip").numpy(), np.take(host, [-13, 99], mode="clip")
    )
    unsigned = meta.array([255], dtype="uint8")
    with pytest.raises(PositionError, match=r"indices\[0\] is 255"):
        meta.take(meta.ones((4,)), unsigned)


def test_indexing_by_tensors_in_programs():
    indexed = meta.vm.compile(meta.trace(lambda x, i: x[i]))(X, ints(-3, 3, 2)).numpy()
    assert np.isnan(indexed).all(1).tolist() == [False, True, False]
    pairs = meta.vm.compile(meta.trace(lambda x, i: x[i, i]))(X, ints(-3, 3, -4)).numpy()
    np.testing.assert_array_equal(pairs, [X.numpy()[-3, -3], np.nan, np.nan])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "int64", "bool"])
def test_what_is_read_outside(dtype: str):
    table = meta.ones((2, 3), dtype=dtype)
    rows = meta.vm.compile(meta.trace(meta.embedding))(table, ints(1, 2))
    missing = {"int8": -128, "int64": -(2**63), "uint8": 0, "bool": False}.get(dtype, np.nan)
    expected = np.array([[1] * 3, [missing] * 3]).astype(rows.numpy().dtype)
    np.testing.assert_array_equal(rows.numpy().astype("float64"), expected.astype("float64"))


def test_gradients_of_index_select_add_up():
    x = meta.array(np.ones((2, 3), "float32"), requires_grad=True)
    (meta.index_select(x, -1, ints(0, 0, 2)) * meta.array([1.0, 2.0, 4.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[3.0, 0.0, 4.0]] * 2


def test_the_gradient_of_max_pooling_skips_empty_windows():
    y, i = meta.max_pool1d_with_indices(meta.ones((1, 1, 2)), 1, 2, 0, 1, False)
    assert meta.max_pool1d_dx(y, i * 0 - 1, (1, 1, 2), 1, 2, 0, 1, False).tolist() == [[[0.0, 0.0]]]


_CHECKED = """
import meta
from meta.errors import PositionError
x, i = meta.ones((3, 2)), meta.array([0, 3])
for function in (lambda x, i: meta.embedding(x, i) + 1.0, lambda x, i: meta.take(x, i, 0), lambda x, i: x[i]):
    compiled = meta.vm.compile(meta.trace(function))
    assert compiled(x, i * 0).shape == (2, 2)
    try:
        compiled(x, i)
    except PositionError as error:
        assert "indices[1] is 3, out of range for size 3; expected" in str(error), error
    else:
        raise AssertionError("not refused")
"""


def test_programs_refuse_if_asked():
    run = [sys.executable, "-c", _CHECKED]
    completed = subprocess.run(run, env={**os.environ, "META_CHECK": "1"}, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr[-2000:]


def test_axes_of_complex_tensors_count_from_the_end() -> None:
    x = meta.array([[1 + 2j, 3j], [4.0, 5.0], [6.0, 7j]])
    assert meta.gather(x, -2, meta.array([[2, 0]])).tolist() == [[6, 3j]]
    assert meta.take(x, meta.array([2]), -2).tolist() == [[6, 7j]]
    assert meta.scatter_add(x, -2, meta.array([[2, 2]]), x[:1]).tolist()[2] == [7 + 2j, 10j]
    with pytest.raises(PositionError, match=r"indices\[0, 0\] is 3, out of range for size 3"):
        meta.gather(x, -2, meta.array([[3, 0]]))
