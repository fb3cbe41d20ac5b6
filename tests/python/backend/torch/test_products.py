"""Matrix products by torch's BLAS, called without Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.tvm import adapter as tvm
from meta.device import device
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType, tensor_type
from meta.op.dispatch import Kernel, implementations
from meta.op.registry import get

pytest.importorskip("torch")

from meta.backend.torch import products

CPU = device("cpu")


def of(dtype: str, *shape: Any, on: Any = CPU) -> TensorType:
    return tensor_type(shape, dtype, on)


def kernel(op: str, *args: Any, out: TensorType) -> Kernel:
    """Torch's kernel for a call."""
    implementation = next(i for i in implementations(get(op)) if i.dialect.name == "torch")
    return implementation.dialect.kernel(implementation, CallInfo(get(op), args, out, out.device))


def draw(dtype: str, *shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pytest.fixture(params=["blas", "aten"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether products run in the BLAS directly or, as where torch has none that can be called, by ATen."""
    if request.param == "aten":
        monkeypatch.setattr(products, "_module", lambda: None)
    elif products._module() is None:
        pytest.skip("torch has no BLAS that can be called")
    return request.param


@pytest.mark.parametrize("sizes", [(6, 5, 4), (1, 9, 1), (3, 0, 2), (0, 3, 2), (3, 2, 0)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_matrices_in_every_layout(by: str, dtype: str, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    for transpose_a in (False, True):
        for transpose_b in (False, True):
            a = draw(dtype, *((k, m) if transpose_a else (m, k)))
            b = draw(dtype, *((n, k) if transpose_b else (k, n)))
            types = of(dtype, *a.shape), of(dtype, *b.shape)
            run = kernel("matmul", *types, transpose_a, transpose_b, out=of(dtype, m, n))
            assert isinstance(run, tvm.PackedFunction) == (by == "blas")
            y = meta.array(np.full((m, n), np.nan, dtype))  # what is there before is not read
            run(meta.array(a)._data, meta.array(b)._data, y._data)
            expected = (a.T if transpose_a else a).astype("float64") @ (b.T if transpose_b else b).astype("float64")
            np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("leading", [(4,), (2, 3), (2, 0), (2, 1, 3)])
def test_dense_of_every_rank_with_and_without_bias(by: str, leading: tuple[int, ...]) -> None:
    x, w, bias = draw("float32", *leading, 5), draw("float32", 7, 5), draw("float32", 7)
    types, out = (of("float32", *x.shape), of("float32", 7, 5)), of("float32", *leading, 7)
    plain, biased = kernel("dense", *types, None, out=out), kernel("dense", *types, of("float32", 7), out=out)
    assert {isinstance(run, tvm.PackedFunction) for run in (plain, biased)} == {by == "blas"}
    arrays = [meta.array(a)._data for a in (x, w, bias)]
    for run, operands, expected in ((plain, arrays[:2], x @ w.T), (biased, arrays, x @ w.T + bias)):
        y = meta.array(np.full((*leading, 7), np.nan, np.float32))
        run(*operands, y._data)
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "out", "transpose_a"),
    [
        (of("float16", 3, 4), of("float16", 4, 5), of("float16", 3, 5), False),
        (of("int32", 3, 4), of("int32", 4, 5), of("int32", 3, 5), False),
        (of("float32", 2, 3, 4), of("float32", 2, 4, 5), of("float32", 2, 3, 5), False),
        (of("float32", 2, 4, 3), of("float32", 4, 5), of("float32", 2, 3, 5), True),
        (of("float32", 4), of("float32", 4, 5), of("float32", 5), False),
        (of("float32", 1 << 32, 1), of("float32", 1, 1), of("float32", 1 << 32, 1), False),
        (of("float32", meta.dim.SymDim("n"), 4), of("float32", 4, 5), of("float32", meta.dim.SymDim("n"), 5), False),
        (of("float32", 3, 4, on=device("cuda")), of("float32", 4, 5, on=device("cuda")),
         of("float32", 3, 5, on=device("cuda")), False),
    ],
)  # fmt: skip
def test_other_products_stay_with_aten(a: TensorType, b: TensorType, out: TensorType, transpose_a: bool) -> None:
    call = CallInfo(get("matmul"), (a, b, transpose_a, False), out, out.device)
    assert products.matrix_product(call, transposed_a=transpose_a) is None


def test_programs_call_the_blas_and_agree_with_eager_calls() -> None:
    x, w, b = (meta.array(draw("float32", *shape)) for shape in ((64, 48), (80, 48), (80,)))

    @meta.trace
    def step(x: Any, w: Any, b: Any) -> Any:
        y = meta.dense(x, w, b)
        return y, meta.matmul(y, w), meta.matmul(y, x, transpose_a=True)

    eager = step(x, w, b)
    for result, expected in zip(meta.vm.compile(step)(x, w, b), eager, strict=True):
        assert result.tolist() == expected.tolist()
    y = x.numpy() @ w.numpy().T + b.numpy()
    np.testing.assert_allclose(eager[2].numpy(), y.T @ x.numpy(), rtol=1e-4, atol=1e-4)
