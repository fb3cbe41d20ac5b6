"""Indexing: random indices compared with NumPy, gradients with torch; writes and errors."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError, GradientError, PositionError, TraceError, TypeInferenceError
from meta.interpreter.run import run

SHAPES = [(5,), (3, 4), (2, 3, 4), (1, 4, 1), (3, 0, 2), (2, 3, 2, 3)]


def values(shape: tuple[int, ...]) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def random_slice(rng: random.Random, size: int) -> slice:
    def bound() -> int | None:
        return rng.choice([None, rng.randint(-size - 2, size + 2)])

    return slice(bound(), bound(), rng.choice([None, 1, 1, 2, 3, -1, -2]))


def random_basic(rng: random.Random, shape: tuple[int, ...]) -> Any:
    """Integers, slices, None and ... in any order."""
    items: list[Any] = []
    for size in shape[: rng.randint(0, len(shape))]:
        items.append(rng.randint(-size, size - 1) if size and rng.random() < 0.4 else random_slice(rng, size))
    if rng.random() < 0.4:
        items.append(...)
        items += [random_slice(rng, size) for size in shape[len(items) - 1 :] if rng.random() < 0]
    for _ in range(rng.choice([0, 0, 1, 2])):
        items.insert(rng.randint(0, len(items)), None)
    return items[0] if len(items) == 1 and rng.random() < 0.5 else tuple(items)


def random_advanced(rng: random.Random, shape: tuple[int, ...]) -> Any:
    """At least one integer array, mixed with integers, slices and None."""
    broadcast = rng.choice([(), (3,), (2, 3)])
    items: list[Any] = []
    for size in shape[: rng.randint(1, len(shape))]:
        if size and rng.random() < 0.6:
            own = broadcast[rng.randint(0, len(broadcast)) :]
            items.append(
                np.array([rng.randrange(-size, size) for _ in range(int(np.prod(own)))], np.int64).reshape(own)
            )
        elif size and rng.random() < 0.3:
            items.append(rng.randint(-size, size - 1))
        else:
            items.append(random_slice(rng, size))
    if rng.random() < 0.3:
        items.insert(rng.randint(0, len(items)), None)
    return tuple(items)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", [random_basic, random_advanced])
def test_random_indices_agree_with_numpy(shape: tuple[int, ...], kind: Any) -> None:
    rng = random.Random(f"{shape}{kind.__name__}")
    host = values(shape)
    x = meta.array(host)
    for _ in range(60):
        index = kind(rng, shape)
        result, expected = x[index], host[index]
        assert result.shape == expected.shape, index
        np.testing.assert_array_equal(result.numpy(), expected, err_msg=repr(index))


def test_tensors_as_indices() -> None:
    host = values((4, 5))
    x = meta.array(host)
    rows = np.array([0, -1, 2])
    np.testing.assert_array_equal(x[meta.array(rows)].numpy(), host[rows])
    np.testing.assert_array_equal(x[meta.array(rows, dtype="int32"), [1, 2, 3]].numpy(), host[rows, [1, 2, 3]])
    np.testing.assert_array_equal(x[:, meta.array(2)].numpy(), host[:, 2])
    np.testing.assert_array_equal(x[[]].numpy(), host[[]])
    np.testing.assert_array_equal(x[range(1, 3)].numpy(), host[1:3])


@pytest.mark.parametrize("shape", [(6,), (3, 4)])
def test_masks_select_true_elements(shape: tuple[int, ...]) -> None:
    host = values(shape)
    x = meta.array(host)
    for mask in (host > 2, host < 0, host % 2 == 0):
        np.testing.assert_array_equal(x[mask].numpy(), host[mask])
        np.testing.assert_array_equal(x[meta.array(mask)].numpy(), host[mask])
    rows = np.arange(shape[0]) % 2 == 0
    np.testing.assert_array_equal(x[rows].numpy(), host[rows])
    np.testing.assert_array_equal(x[rows, ...].numpy(), host[rows, ...])


@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("chosen", [True, False])
def test_masks_without_axes(shape: tuple[int, ...], chosen: bool) -> None:
    host = values(shape)
    mask = np.array(chosen)
    for index in (mask, mask[()], meta.array(chosen)):
        x = meta.array(host)
        np.testing.assert_array_equal(x[index].numpy(), host[mask])
        x[index] = 7
        np.testing.assert_array_equal(x.numpy(), np.where(mask, 7, host))


def test_masks_of_size_0_pick_nothing() -> None:
    x = meta.array(values((3, 4)))
    empty = np.zeros(0, bool)
    assert x[empty].shape == (0, 4)
    before = x.tolist()
    x[empty] = 7
    assert x.tolist() == before


@pytest.mark.parametrize(
    "index",
    [1, -1, slice(None, None, -2), (..., 0), (None, 1), (slice(0, 2), slice(3, 0, -1)), [0, 0, 2],
     ([0, 2, 2], [1, 1, 1]), (slice(None), [3, 0, 3]), (slice(None), None, np.array([[1, 1], [0, 2]]))],
    ids=repr,
)  # fmt: skip
def test_gradients_flow_through_indices(index: Any) -> None:
    host = np.random.default_rng(0).uniform(-1, 1, (3, 4))
    x = meta.array(host)
    x.requires_grad = True
    (x[index] * x[index]).sum().backward()
    expected = np.zeros_like(host)
    np.add.at(expected, index, 2 * host[index])
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12)  # type: ignore[union-attr]
    assert meta.autograd.gradcheck(lambda v: v[index], x)
    assert meta.autograd.gradgradcheck(lambda v: v[index] * v[index], x)


def test_full_indices_share_memory_and_others_copy() -> None:
    x = meta.array(values((2, 3)))
    x[...][0, 0] = 7
    assert x.numpy()[0, 0] == 7
    x[0].copy()[0] = 9
    assert x.numpy()[0, 0] == 7


def test_iteration_and_unpacking() -> None:
    first, second = meta.array([[1.0, 2.0], [3.0, 4.0]])
    assert (first.tolist(), second.tolist()) == ([1.0, 2.0], [3.0, 4.0])
    assert [v.item() for v in meta.array([1, 2, 3])] == [1, 2, 3]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (3, r"3 is out of range for axis 0 of size 3; expected -3 to 2"),
        ((0, -5), r"-5 is out of range for axis 1 of size 4"),
        ((0, 0, 0), r"3 indices for shape \(3, 4\); expected at most 2"),
        ((..., ...), r"2 times '\.\.\.'"),
        ([0, 7], r"7 is out of range for axis 0 of size 3"),
        ((slice(None), [-5]), r"-5 is out of range for axis 1"),
        (1.5, r"float is not an index"),
        ("a", r"str is not an index"),
        (True, r"True is a bool"),
        ([0.5], r"array of float64"),
        ([[0], [1, 2]], r"ragged"),
        (slice(0, 2, 0), r"step 0"),
        (slice(0.5, 2), r"bound 0.5"),
        (np.array([True, False]), r"a mask of size 2 for an axis of size 3"),
        ((np.array(True), 0), r"0-d mask in a tuple"),
        (([0, 1], [0, 1, 2]), r"arrays of shapes \(2,\) and \(3,\)"),
    ],
    ids=repr,
)
def test_errors_list_allowed_indices(index: Any, message: str) -> None:
    x = meta.array(values((3, 4)))
    with pytest.raises(PositionError, match=message):
        x[index]
    with pytest.raises(PositionError, match=message):
        x[index] = 0


def test_out_of_range_is_an_index_error() -> None:
    with pytest.raises(IndexError, match="empty"):
        meta.zeros((0,))[0]


# --- writes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_writes_agree_with_numpy(shape: tuple[int, ...]) -> None:
    rng = random.Random(str(shape))
    for n in range(60):
        index = random_basic(rng, shape)
        host, x = values(shape), meta.array(values(shape))
        target = host[index].shape
        value = rng.choice([-1, 0.5, np.float32(2), np.full(target, 3, np.float32), np.full(target[1:], 4, np.float32)])
        host[index] = value
        x[index] = meta.array(value) if n % 2 else value
        np.testing.assert_array_equal(x.numpy(), host, err_msg=repr(index))


def test_arrays_and_masks_are_written_on_the_cpu() -> None:
    host = values((3, 4))
    x = meta.array(host)
    host[[0, -1], [1, 2]] = 7
    x[[0, -1], [1, 2]] = 7
    host[host > 6] = -1
    x[x > 6] = -1
    np.testing.assert_array_equal(x.numpy(), host)


@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64", "complex128"])
def test_numbers_are_converted_once(dtype: str) -> None:
    host = np.zeros(12, dtype)
    indices = [slice(0, 1), slice(1, 3), [3, -8], np.array([5, 6]), np.arange(12) == 7, (slice(8, 9),), Ellipsis]
    values = [0.1, 1e300, 1.00048828125 + 1e-12, 3, True, *([0.1 + 0.2j, 1e-300j] if dtype[0] == "c" else [])]
    for value, index in itertools.product(values, indices):
        for written in (value, [value], np.asarray(value)[()], meta.array(np.asarray([value]))):
            x = meta.array(host)
            x[-1] = value
            x[index] = written
            with np.errstate(over="ignore"):
                expected = host.copy()
                expected[-1] = value
                expected[index] = written
            np.testing.assert_array_equal(x.numpy(), expected, f"{index} {written}")


def test_programs_convert_numbers_once() -> None:
    def function(*xs: Any) -> Any:
        for x in xs:
            x[0] = 0.1
            x[1:3] = [0.7, 1.00048828125 + 1e-12]
            if x.dtype != "float16":
                x[3] = 1e300
        return [x * 1 for x in xs]

    arrays = [meta.zeros((4,), dtype) for dtype in ("float16", "float64", "complex128")]
    hosts = [x.numpy(copy=True) for x in arrays]
    results = meta.vm.compile(meta.trace(function))(*arrays)
    for result, array, expected in zip(results, arrays, function(*hosts), strict=True):
        np.testing.assert_array_equal(result.numpy(), expected)
        np.testing.assert_array_equal(array.numpy(), expected)


def test_writes_are_counted() -> None:
    x = meta.array([1.0, 2.0])
    x.requires_grad = True
    w = meta.array([3.0, 4.0])
    y = (x * w).sum()
    w[0] = 5.0
    with pytest.raises(GradientError, match="modified in place"):
        y.backward()


def test_rejects_writes_into_a_graph() -> None:
    x = meta.array([1.0, 2.0])
    x.requires_grad = True
    with pytest.raises(GradientError, match="a leaf that requires grad"):
        x[0] = 1.0
    with meta.no_grad():
        x[0] = 5.0
    assert x.tolist() == [5.0, 2.0]


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (np.zeros(3, np.float32), TypeInferenceError, r"a value of shape \(3,\) for \(4,\)|do not broadcast"),
        (np.zeros((2, 4), np.float32), TypeInferenceError, r"a value of shape \(2, 4\)"),
    ],
)
def test_rejects_values_that_do_not_fit(value: Any, error: type[Exception], message: str) -> None:
    x = meta.array(values((3, 4)))
    with pytest.raises(error, match=message):
        x[0] = value


def test_rejects_floats_in_integer_arrays() -> None:
    x = meta.array([1, 2, 3])
    with pytest.raises(TypeInferenceError, match=r"a value of float32 for a tensor of int64"):
        x[0] = 1.5
    x[0] = True
    assert x.tolist() == [1, 2, 3]


# --- traced ----------------------------------------------------------------------------------------------------------


def run_traced(function: Any, *arrays: Any) -> Any:
    """Record `function` and run its program with the interpreter."""
    (result,) = run(meta.trace(function).record(*arrays).module, *arrays)
    return result


@pytest.mark.parametrize(
    "index", [1, (slice(None), -1), (None, ..., slice(None, None, -1)), [0, 2], ([0, 1], [1, -1])], ids=repr
)
def test_indices_are_traced(index: Any) -> None:
    host = values((3, 4))
    result = run_traced(lambda x: x[index], meta.array(host))
    np.testing.assert_array_equal(result.numpy(), host[index])


def test_traced_positions_may_be_negative() -> None:
    host, rows = values((3, 4)), np.array([0, -1])
    result = run_traced(lambda x, i: x[i, i], meta.array(host), meta.array(rows))
    np.testing.assert_array_equal(result.numpy(), host[rows, rows])


def test_rejects_traced_masks() -> None:
    with pytest.raises(TraceError, match=r"use meta\.where"):
        run_traced(lambda x: x[x > 0], meta.array(values((3,))))


def test_setitem_as_an_operator_agrees_with_the_write() -> None:
    """`setitem` implements writes on other devices and in traces."""
    from meta.eager.assignment import setitem

    rng = random.Random(0)
    for shape in SHAPES:
        for _ in range(20):
            index = random_basic(rng, shape)
            host = values(shape)
            value = np.full(host[index].shape, -3, np.float32)
            result = setitem(meta.array(host), index, meta.array(value))
            host[index] = value
            np.testing.assert_array_equal(result.numpy(), host, err_msg=repr(index))
    assert setitem(meta.array([1.0, 2.0]), [1], 3.0).tolist() == [1.0, 3.0]


def test_gradients_of_replaced_parts_agree_with_torch() -> None:
    x, v = meta.array(values((3, 4))), meta.array(np.ones((2, 1), np.float32))
    x.requires_grad = v.requires_grad = True
    meta.strided_set(x * x, v * 3.0, (0, 1), (2, 3), ()).sum().backward()
    tx, tv = torch.tensor(values((3, 4)), requires_grad=True), torch.ones((2, 1), requires_grad=True)
    ty = (tx * tx).clone()
    ty[0:2, 1:3] = tv * 3.0
    ty.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), tx.grad.numpy())  # type: ignore[union-attr]
    np.testing.assert_allclose(v.grad.numpy(), tv.grad.numpy())  # type: ignore[union-attr]


def test_rejects_ragged_values() -> None:
    x = meta.array(values((3,)))
    with pytest.raises(ArgumentError):
        x[0] = [[1.0], [2.0, 3.0]]
