"""Infinities and NaN among the operands of losses, products, attention, resizing and suppression: kernels and
references return the values of torch, and gradients of products are the products of the other elements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import meta
from meta.errors import LinAlgError

INF, NAN = math.inf, math.nan


@pytest.fixture(params=["tvm", "reference"])
def dialect(request: pytest.FixtureRequest) -> Iterator[str]:
    with meta.with_dialect(request.param):
        yield request.param


def _assert_equal(ours: Any, torch_result: Any) -> None:
    np.testing.assert_allclose(ours.numpy(), torch_result.detach().numpy(), rtol=1e-12, atol=1e-12)


def _special(shape: tuple[int, ...], place: int, value: float) -> Any:
    x = torch.linspace(-1, 2, math.prod(shape), dtype=torch.float64)
    x[place] = value
    return x.reshape(shape)


# --- resizing: an element whose weight is 0 counts, as in torch

MODES = [
    ("linear", "half_pixel", "linear"),
    ("linear", "align_corners", "linear"),
    ("nearest", "asymmetric", "nearest"),
    ("nearest", "tf_half_pixel_for_nn", "nearest-exact"),
]


@pytest.mark.usefixtures("dialect")
@pytest.mark.parametrize(("method", "coordinates", "mode"), MODES)
@pytest.mark.parametrize("value", [NAN, -INF])
def test_resize1d(method: str, coordinates: str, mode: str, value: float) -> None:
    corners = None if method == "nearest" else coordinates == "align_corners"
    for place in range(5):
        x = _special((1, 1, 5), place, value)
        expected = F.interpolate(x, 8, mode=mode, align_corners=corners)
        _assert_equal(meta.resize1d(meta.array(x.numpy()), 8, method, coordinates), expected)
    for place in range(8):
        dy = _special((1, 1, 8), place, value)
        x = torch.zeros((1, 1, 5), dtype=torch.float64, requires_grad=True)
        (dx,) = torch.autograd.grad(F.interpolate(x, 8, mode=mode, align_corners=corners), x, dy)
        _assert_equal(meta.resize1d_dx(meta.array(dy.numpy()), (1, 1, 5), method, coordinates), dx)


@pytest.mark.usefixtures("dialect")
@pytest.mark.parametrize(("size", "count"), [(4, 1), (1, 1), (1, 3)])
@pytest.mark.parametrize("value", [NAN, INF])
def test_resize1d_with_sizes_of_one(size: int, count: int, value: float) -> None:
    """With them, the weights are constants of the kernel."""
    x = _special((1, 1, size), -1, value)
    expected = F.interpolate(x, count, mode="linear", align_corners=True)
    _assert_equal(meta.resize1d(meta.array(x.numpy()), count, "linear", "align_corners"), expected)
    for place in range(size):
        x = _special((1, 1, size), place, value)
        expected = x[..., :1] * 1.0 + x[..., min(1, size - 1)] * 0.0
        _assert_equal(meta.resize1d(meta.array(x.numpy()), 1, "linear", "pytorch_half_pixel"), expected)


@pytest.mark.usefixtures("dialect")
@pytest.mark.parametrize(("method", "mode"), [("linear", "bilinear"), ("cubic", "bicubic")])
def test_resize2d(method: str, mode: str) -> None:
    for place in (0, 1, 12, 24):
        x = _special((1, 1, 5, 5), place, NAN)
        expected = F.interpolate(x, (8, 7), mode=mode, align_corners=False)
        coefficient = (-0.75,) if method == "cubic" else ()
        ours = meta.resize2d(meta.array(x.numpy()), (8, 7), method, "half_pixel", "round_prefer_floor", *coefficient)
        assert np.array_equal(np.isnan(ours.numpy()), expected.isnan().numpy())


# --- losses with label smoothing: classes of infinite weight reach only their own terms


@pytest.mark.usefixtures("dialect")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weight", [(1.0, 2.0, INF), (0.0, 2.0, 1.0), (INF, -INF, 0.0), (1.0, NAN, 1.0)])
@pytest.mark.parametrize("x", [((0.5, 1.0, -2.0), (0.1, -0.2, 0.3)), ((0.5, -INF, 1.0), (0.25, 0.0, INF))])
def test_class_losses(smoothing: float, reduction: str, weight: Any, x: Any) -> None:
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    target = np.array([0, 1])
    t, w, logits = torch.tensor(target), *(torch.tensor(values, dtype=torch.float64) for values in (weight, x))
    ours = meta.cross_entropy(meta.array(np.array(x)), meta.array(target), weight=meta.array(w.numpy()), **options)
    _assert_equal(ours, F.cross_entropy(logits, t, w, **options))
    if not smoothing:
        ours = meta.nll_loss(meta.array(np.array(x)), meta.array(target), weight=meta.array(w.numpy()), **options)
        _assert_equal(ours, F.nll_loss(logits, t, w, reduction=reduction))


# --- reductions and their gradients


@pytest.mark.usefixtures("dialect")
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("value", [-INF, INF, NAN, 2.0])
def test_logsumexp_of_a_scalar(dtype: str, value: float) -> None:
    x = meta.array(value).cast(dtype)
    np.testing.assert_equal(meta.logsumexp(x).tolist(), value)
    np.testing.assert_equal(meta.logsumexp(meta.reshape(x, (1,)), axis=()).tolist(), [value])


@pytest.mark.usefixtures("dialect")
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((2.0, INF), (INF, 2.0)),
        ((2.0, -INF, INF, -3.0), (INF, -INF, INF, -INF)),
        ((0.0, INF, 3.0), (INF, 0.0, NAN)),
        ((0.0, 0.0, -INF), (NAN, NAN, 0.0)),
        ((0.0, 2.0, 3.0), (6.0, 0.0, 0.0)),
        ((2.0, NAN, 3.0), (NAN, NAN, NAN)),
        ((0.0, NAN, 3.0), (NAN, NAN, NAN)),
        ((2.0, 3.0, 4.0), (12.0, 8.0, 6.0)),
    ],
)
def test_gradient_of_prod(row: tuple[float, ...], expected: tuple[float, ...]) -> None:
    x = meta.array(np.array([row, (1.0,) * len(row)]))
    ours = meta.prod_dx(x, meta.ones((2,), "float64"), (1,), False)
    np.testing.assert_equal(ours.tolist(), [list(expected), [1.0] * len(row)])


# --- attention


@pytest.mark.parametrize("dialect", ["tvm", "torch", "reference"])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_of_infinite_scores(dialect: str, causal: bool) -> None:
    """A query whose scores are all -inf gets 0 and passes no gradient on; it does not read the keys after it."""
    q, k, v, dy = (np.ones((3, 2)), np.ones((3, 2)), np.arange(6.0).reshape(3, 2), np.ones((3, 2)))
    q[0] = -INF
    arrays = [meta.array(x) for x in (q, k, v, dy)]
    with meta.with_dialect(dialect):
        y, lse = meta.attention_with_lse(*arrays[:3], causal=causal)
        gradients = meta.attention_with_lse_dx(*arrays[:3], y, lse, arrays[3], causal=causal)
    expected = F.scaled_dot_product_attention(*(torch.tensor(x) for x in (q, k, v)), is_causal=causal)
    _assert_equal(y, expected)
    assert y.tolist()[0] == [0.0, 0.0]
    assert lse.tolist()[0] == -INF
    assert np.isfinite(gradients[0].numpy()).all()
    assert np.isfinite(gradients[2].numpy()).all()

    arrays[0] = meta.array(-q)
    with meta.with_dialect(dialect):
        y, lse = meta.attention_with_lse(*arrays[:3], causal=causal)
    assert np.isnan(y.numpy()[0]).all()
    assert math.isnan(lse.tolist()[0])


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("position", [3, 600])
def test_attention_by_torch_of_a_key_that_is_not_finite(value: float, position: int) -> None:
    """Keys are taken in blocks of several hundred, and NaN is lost in none of them."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, 4)).astype("float32") for n in (5, 700, 700))
    k[0, position] = value
    with meta.with_dialect("torch"):
        y, lse = meta.attention_with_lse(*map(meta.array, (q, k, v)))
    expected = torch.logsumexp(torch.tensor(q) @ torch.tensor(k).mT / 2, -1).numpy()
    np.testing.assert_allclose(lse.numpy(), np.where(np.isposinf(expected), NAN, expected), rtol=1e-5)
    assert (np.isnan(y.numpy()).all(-1) == ~(expected < INF)).all()


# --- suppression


@pytest.mark.usefixtures("dialect")
def test_boxes_of_nan_scores_come_first() -> None:
    """As by torch's `argsort(descending=True)`, by which torchvision suppresses."""
    boxes = np.array([[[0.0, 0, 1, 1], [5, 5, 6, 6], [2, 2, 3, 3]]])
    scores = np.array([[INF, NAN, -INF]])
    indices, count = meta.non_max_suppression(meta.array(boxes), meta.array(scores), 0.5)
    assert indices.tolist() == [torch.tensor(scores[0]).argsort(descending=True).tolist()]
    assert count.tolist() == [3]


# --- expressions that TVM lowers wrongly


@pytest.mark.parametrize("name", ["mod", "floor_divide", "trunc_mod", "power", "atan2", "hypot"])
@pytest.mark.parametrize("dtypes", [("float64", "bfloat16"), ("bfloat16", "float64")])
def test_bfloat16_in_computations_of_float64(name: str, dtypes: tuple[str, str]) -> None:
    rng = np.random.default_rng(0)
    a, b = (meta.array(rng.uniform(0.5, 9, 40)).cast(dtype) for dtype in dtypes)
    function = getattr(meta, name)
    with meta.with_dialect("tvm"):
        ours = function(a, b)
    with meta.with_dialect("reference"):
        expected = function(a.cast("float64"), b.cast("float64"))
    np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-12)


def test_bfloat16_loaded_by_a_fused_kernel_of_float64() -> None:
    def remainder(x: Any, y: Any) -> Any:
        return x.cast("float64") % y.cast("float64") // 0.25

    rng = np.random.default_rng(0)
    a, b = (meta.array(rng.uniform(0.5, 9, 40)).cast("bfloat16") for _ in range(2))
    compiled = meta.vm.compile(meta.trace(remainder))(a, b)
    assert compiled.tolist() == remainder(a, b).tolist()


@pytest.mark.parametrize("name", ["left_shift", "right_shift"])
def test_programs_shift_unsigned_numbers(name: str) -> None:
    x = meta.array(np.arange(9, dtype=np.uint8)[None])
    by = meta.array(np.array([0, 1, 2, 7, 8, 9, 255, 3, 4], np.uint8))
    function = getattr(meta, name)
    compiled = meta.vm.compile(meta.trace(lambda x, by: function(x, by)))(x, by)
    assert compiled.tolist() == function(x, by).tolist()


@pytest.mark.parametrize("dialect", ["torch", "reference"])
def test_factorizations_that_do_not_converge(dialect: str) -> None:
    x = meta.array(np.full((2, 3, 3), math.nan))
    factorizations = {"eig": meta.eig, "eigh": meta.eigh, "svd": meta.svd, "pinv": meta.pinv, "cofactor": meta.cofactor}
    with meta.with_dialect(dialect):
        for name, function in factorizations.items():
            with pytest.raises(LinAlgError, match=rf"\[{name}\] the algorithm does not converge .*; replace inf"):
                function(x)


@pytest.mark.parametrize("shape", [(2, 5, 0), (0, 5, 3), (2, 5, 0, 3)], ids=str)
def test_losses_of_no_element(shape: tuple[int, ...]) -> None:
    """Sums over several axes of no element divide by none of their sizes, which would end the process."""
    x, target = meta.zeros(shape), meta.zeros((shape[0], *shape[2:]), dtype="int64")
    for reduction in ("sum", "mean"):
        total = meta.nll_loss(x, target, reduction=reduction).item()
        assert total == 0.0 if reduction == "sum" else math.isnan(total)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_eigenvalues_near_the_limit_of_the_dtype(dtype: str) -> None:
    """LAPACK writes outside of its arrays for some of them."""
    matrix = np.array([[2.0, 1.0], [1.0, 2.0]])
    scale = 2.0**126 if dtype == "float32" else 2.0**1000
    values, vectors = meta.eig(meta.array(np.stack([matrix, matrix * scale])).cast(dtype))
    np.testing.assert_allclose(np.sort(values.numpy().real / [[1.0], [scale]], -1), [[1.0, 3.0]] * 2, rtol=1e-6)
    np.testing.assert_allclose(abs(vectors.numpy()), 0.5**0.5, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_the_reference_of_tanhshrink_has_the_digits_of_float32(dtype: str) -> None:
    x = meta.array([0, 1, 3], dtype=dtype)
    with meta.with_dialect("reference"):
        np.testing.assert_allclose(meta.tanhshrink(x).numpy(), [0.0, 0.23840584, 2.0049453], rtol=1e-6)
