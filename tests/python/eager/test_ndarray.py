"""Arrays: construction, shared memory, Python's protocols, printing, copying, errors."""

from __future__ import annotations

import math
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import meta
from meta import dtype as dtypes
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, DeviceError, GradientError

SHAPES = [(), (0,), (3,), (2, 0, 3), (1, 1), (2, 3, 4)]


def numpy_values(shape: tuple[int, ...], dtype: str) -> Any:
    return (
        (np.arange(int(np.prod(shape))) % 2 if dtype == "bool" else np.arange(int(np.prod(shape))))
        .reshape(shape)
        .astype(dtypes.to_numpy(dtype))
    )


def address(x: Any) -> int:
    return x.__array_interface__["data"][0]


# --- NumPy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dtypes.ALL)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_round_trip_through_numpy(shape: tuple[int, ...], dtype: str) -> None:
    host = numpy_values(shape, dtype)
    x = meta.array(host)
    assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes) == (shape, dtype, host.ndim, host.size, host.nbytes)
    back = x.numpy()
    assert back.dtype == host.dtype
    assert back.shape == host.shape
    np.testing.assert_array_equal(back, host)


@pytest.mark.parametrize("dtype", dtypes.ALL)
def test_numpy_memory_is_shared_both_ways(dtype: str) -> None:
    host = numpy_values((2, 3), dtype)
    x = meta.from_numpy(host)
    assert address(x.numpy()) == address(host)
    host[0, 0] = 1
    assert x.numpy()[0, 0] == 1
    x[1, 2] = False
    assert host[1, 2] == 0


@pytest.mark.parametrize("offset", range(1, 16))
def test_computes_on_shared_memory_at_any_address(offset: int) -> None:
    """Slices may start at any address; kernels need no alignment."""
    host = np.arange(64 + offset, dtype=np.float32)[offset:]
    x = meta.from_numpy(host)
    assert address(x.numpy()) == address(host)
    np.testing.assert_array_equal((x + x).numpy(), host + host)
    np.testing.assert_allclose(meta.exp(x * 0.01).sum().item(), np.exp(host * 0.01).sum(), rtol=1e-5)


def test_copies_memory_that_cannot_be_shared() -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    readonly = base.copy()
    readonly.flags.writeable = False
    for host in (base.T, base[:, ::2], base[::-1], readonly, base.astype(">f4")):
        x = meta.from_numpy(host)
        np.testing.assert_array_equal(x.numpy(), host)
        assert address(x.numpy()) != address(host)


def test_array_copies_and_asarray_shares() -> None:
    host = np.zeros(3, np.float32)
    assert address(meta.array(host).numpy()) != address(host)
    assert address(meta.asarray(host).numpy()) == address(host)
    x = meta.asarray(host)
    assert address(meta.asarray(x).numpy()) == address(host)
    assert address(meta.array(x).numpy()) != address(host)


def test_strides_of_axes_of_size_one_do_not_matter() -> None:
    host = np.lib.stride_tricks.as_strided(np.arange(3, dtype=np.float32), (1, 3), (999, 4))
    x = meta.from_numpy(host)
    np.testing.assert_array_equal((x + x).numpy(), 2 * host)


def test_memory_outlives_its_source() -> None:
    x = meta.from_numpy(np.full(1000, 7, np.float32))
    view = meta.array([1.0, 2.0]).numpy()
    junk = [np.zeros(1000, np.float32) for _ in range(100)]
    assert junk
    assert x.sum().item() == 7000
    assert view.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [(1.5, "float32", ()), (2, "int64", ()), (True, "bool", ()), ([1, 2], "int64", (2,)),
     ([[1.0], [2]], "float32", (2, 1)), ([], "float32", (0,)),
     ([True, False], "bool", (2,)), (np.float64(1), "float64", ()), (range(3), "int64", (3,)),
     ([1j, 2.0], "complex64", (2,)),
     (np.zeros(2, ml_dtypes.bfloat16), "bfloat16", (2,))],
    ids=repr,
)  # fmt: skip
def test_dtype_of_python_data(data: Any, dtype: str, shape: tuple[int, ...]) -> None:
    x = meta.array(data)
    assert (x.dtype, x.shape) == (dtype, shape)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", torch.float64, np.int32, float, "half"])
def test_accepts_every_form_of_a_dtype(dtype: Any) -> None:
    assert meta.array([0, 1], dtype=dtype).dtype == dtypes.canonical(dtype)


@pytest.mark.parametrize(
    ("data", "message"),
    [([[1], [2, 3]], "cannot make an array"), (["a"], "holds text"), ([object()], "holds objects"),
     (np.zeros(2, "datetime64[s]"), "datetime64"), ({"a": 1}, "holds objects"), (2**70, "beyond 64 bits")],
)  # fmt: skip
def test_rejects_data_that_is_not_numeric(data: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        meta.array(data)


@pytest.mark.parametrize(
    ("data", "dtype", "number"), [([1, 300], "uint8", "300"), (-1, "uint8", "-1"), ([math.nan], "int32", "nan")]
)
def test_rejects_numbers_outside_the_range(data: Any, dtype: str, number: str) -> None:
    with pytest.raises(ArgumentError, match=f"the number {number} does not fit into {dtype}; expected"):
        meta.array(data, dtype=dtype)
    x = meta.zeros((2,), dtype=dtype)
    if number != "nan":
        with pytest.raises(ArgumentError, match=f"the number {number} does not fit into {dtype}"):
            x[:] = data
    assert x.tolist() == [0, 0]
    assert meta.array(np.array([300]), dtype="uint8").tolist() == [44]  # arrays are cast


def test_rejects_arrays_larger_than_the_memory() -> None:
    with pytest.raises(DeviceError, match=r"cannot allocate .* bytes; expected at most"):
        meta.ones((10**12, 10**6))


def test_array_protocol() -> None:
    x = meta.array([1.0, 2.0])
    assert address(np.asarray(x)) == address(x.numpy())
    assert np.asarray(x, np.float64).dtype == np.float64
    assert address(np.array(x)) != address(x.numpy())
    with pytest.raises(ValueError, match="not in memory as"):
        np.array(x, np.float64, copy=False)


def test_numpy_operands_defer_to_arrays() -> None:
    x = meta.array([1.0, 2.0])
    total = np.ones(2, np.float32) + x
    assert isinstance(total, NDArray)
    assert total.tolist() == [2.0, 3.0]
    assert isinstance(np.float32(2) * x, NDArray)


# --- DLPack ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dtypes.ALL)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_round_trip_through_torch(shape: tuple[int, ...], dtype: str) -> None:
    tensor = torch.arange(int(np.prod(shape))).reshape(shape).to(getattr(torch, dtype))
    x = meta.from_dlpack(tensor)
    assert (x.shape, x.dtype) == (shape, dtype)
    back = torch.from_dlpack(x)
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)
    if x.size:
        assert back.data_ptr() == tensor.data_ptr()


def test_shares_torch_tensors_that_require_gradients() -> None:
    tensor = torch.ones(3, requires_grad=True)
    x = meta.from_dlpack(tensor)
    assert not x.requires_grad
    x[0] = 5
    assert tensor[0] == 5


@pytest.mark.parametrize("make", [lambda t: t.T, lambda t: t[:, ::2], lambda t: t.expand(2, 4, 6)])
def test_strided_torch_tensors_are_copied(make: Any) -> None:
    tensor = make(torch.arange(24.0).reshape(4, 6))
    x = meta.from_dlpack(tensor)
    np.testing.assert_array_equal(x.numpy(), tensor.numpy())
    np.testing.assert_array_equal(meta.array(tensor).numpy(), tensor.numpy())


def test_misaligned_torch_tensors_are_shared() -> None:
    tensor = torch.arange(65.0)[1:]
    x = meta.from_dlpack(tensor)
    assert address(x.numpy()) == tensor.data_ptr()
    np.testing.assert_array_equal((x * 2).numpy(), tensor.numpy() * 2)


def test_rejects_objects_without_dlpack() -> None:
    with pytest.raises(ArgumentError, match="list has no __dlpack__"):
        meta.from_dlpack([1.0])
    with pytest.raises(ArgumentError, match="float8_e5m2"):
        meta.from_dlpack(torch.zeros(2, dtype=torch.float8_e5m2))


def test_numpy_through_dlpack() -> None:
    host = np.arange(4, dtype=np.int32)
    assert address(meta.from_dlpack(host).numpy()) == address(host)
    assert address(np.from_dlpack(meta.from_numpy(host))) == address(host)
    host.flags.writeable = False
    assert meta.from_dlpack(host).tolist() == [0, 1, 2, 3]


# --- Python's protocols ----------------------------------------------------------------------------------------------


def test_converts_one_element_to_a_number() -> None:
    assert float(meta.array(1.5)) == 1.5
    assert int(meta.array([[3]])) == 3
    assert bool(meta.array(0.0)) is False
    assert [10, 20, 30][meta.array(2)] == 30
    assert isinstance(meta.array(2).item(), int)
    assert isinstance(meta.array(True).item(), bool)
    assert meta.array(2.5, dtype="bfloat16").item() == 2.5
    assert f"{meta.array(3.14159):.2f}" == "3.14"
    assert meta.array([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]


def test_rejects_conversion_of_several_elements() -> None:
    x = meta.array([1.0, 2.0])
    for convert in (float, int, bool, NDArray.item):
        with pytest.raises(ArgumentError, match=r"shape \(2,\); expected one element"):
            convert(x)
    with pytest.raises(ArgumentError, match="integer dtype"):
        [1, 2, 3][meta.array(1.0)]


def test_divmod() -> None:
    x = meta.array([7, -7])
    assert [y.tolist() for y in divmod(x, 2)] == [[3, -4], [1, 1]]
    assert [y.tolist() for y in divmod(15, x)] == [[2, -3], [1, -6]]


def test_len_and_iteration() -> None:
    x = meta.array([[1, 2], [3, 4], [5, 6]])
    assert len(x) == 3
    assert [row.tolist() for row in x] == [[1, 2], [3, 4], [5, 6]]
    with pytest.raises(ArgumentError, match="0-d"):
        len(meta.array(1))
    with pytest.raises(ArgumentError, match="0-d"):
        iter(meta.array(1))


def test_arrays_are_keys() -> None:
    x, y = meta.array([1.0]), meta.array([1.0])
    assert {x: 1, y: 2}[x] == 1


def test_transposes_and_dtypes_as_attributes() -> None:
    x = meta.array(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    np.testing.assert_array_equal(x.T.numpy(), x.numpy().T)
    np.testing.assert_array_equal(x.mT.numpy(), x.numpy().swapaxes(-1, -2))
    assert x.astype("int32").dtype == "int32"


def test_suggests_attributes_for_misspelt_names() -> None:
    x = meta.array([1.0])
    with pytest.raises(AttributeError, match=r"no attribute 'reshpe'; did you mean 'reshape'"):
        x.reshpe  # noqa: B018
    assert not hasattr(x, "__cuda_array_interface__")


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (lambda: meta.array([[1.0, 2.0]]), "[[1. 2.]]\n<NDArray [1 x 2] @ cpu, dtype=float32>"),
        (lambda: meta.array(3), "3\n<NDArray [scalar] @ cpu, dtype=int64>"),
        (lambda: meta.zeros((0, 2)), "[]\n<NDArray [0 x 2] @ cpu, dtype=float32>"),
        (lambda: meta.array([1.5], dtype="bfloat16"), "[1.5]\n<NDArray [1] @ cpu, dtype=bfloat16>"),
        (lambda: meta.array([True]), "[ True]\n<NDArray [1] @ cpu, dtype=bool>"),
    ],
)
def test_repr(x: Any, text: str) -> None:
    assert repr(x()) == text
    assert str(x()) == text


@pytest.mark.parametrize(
    ("data", "spec", "text"),
    [
        (np.float32(0.1), "", "0.1"),
        (np.float64(1e300), "", "1e+300"),
        (np.int64(-3), "", "-3"),
        (np.bool_(True), "", "True"),
        (np.float32(0.25), ".4f", "0.2500"),
        (np.int8(7), "03d", "007"),
        (np.float32([0.5]), ".1%", "50.0%"),
    ],
)
def test_formats_like_a_number(data: Any, spec: str, text: str) -> None:
    for requires_grad in (False, np.asarray(data).dtype.kind == "f"):
        assert format(meta.array(data, requires_grad=requires_grad), spec) == text


def test_formats_others_like_str() -> None:
    for x in (meta.array([1.0]), meta.array([1.0, 2.0])):
        assert f"{x}" == str(x) == repr(x)
    assert f"{meta.array(2.0).cast('bfloat16')}" == "2"
    with pytest.raises(ArgumentError, match=r"shape \(2,\); expected one element"):
        format(meta.array([1.0, 2.0]), ".2f")


def test_repr_of_many_values_is_short() -> None:
    text = repr(meta.zeros((1000, 1000)))
    assert "..." in text
    assert len(text) < 1000


def test_repr_shows_requires_grad() -> None:
    x = meta.array([1.0])
    x.requires_grad = True
    assert repr(x).endswith("dtype=float32, requires_grad>")


# --- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dtypes.ALL)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pickle(shape: tuple[int, ...], dtype: str) -> None:
    x = meta.array(numpy_values(shape, dtype))
    y = pickle.loads(pickle.dumps(x))
    assert y.type is x.type
    np.testing.assert_array_equal(y.numpy(), x.numpy())


# --- writes and places -----------------------------------------------------------------------------------------------


def test_rejects_exports_of_arrays_in_a_graph() -> None:
    x = meta.array([1.0])
    x.requires_grad = True
    for hand_out in (NDArray.numpy, torch.from_dlpack):
        with pytest.raises(GradientError, match=r"use x\.detach"):
            hand_out(x)
    assert np.asarray(x).tolist() == [1.0]


def test_to_returns_the_array_if_nothing_differs() -> None:
    x = meta.array([1.0])
    assert x.to("cpu") is x
    assert x.to(dtype="float32") is x
    assert x.to(dtype="float64").dtype == "float64"
    y = x.device_copy("cpu")
    y[0] = 5.0
    assert x.item() == 1.0


@pytest.mark.parametrize(
    "make", [lambda: meta.array([1.0], device="cuda:63"), lambda: meta.zeros((2,), device="cuda:63")]
)
def test_names_the_missing_device(make: Any) -> None:
    with pytest.raises(DeviceError, match=r"no device cuda\(63\)"):
        make()


def test_cached_calls_record_normalised_arguments() -> None:
    """The gradient receives an int axis as a tuple in the first and in later calls."""
    for _ in range(2):
        x = meta.array([[1.0, 2.0], [3.0, 4.0]])
        x.requires_grad = True
        meta.repeat(x, 2, axis=0).sum(0).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_arrays_can_require_gradients_at_construction() -> None:
    x = meta.array([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 4.0]
    with pytest.raises(GradientError, match="int64"):
        meta.array([1], requires_grad=True)
