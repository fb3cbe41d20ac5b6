"""Products of vectors and matrices, compared with torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import vm
from meta.dim import sym
from meta.errors import TypeInferenceError
from meta.ir.type import tensor_type
from tests.python.functional.linalg.against_torch import assert_same, compare, normal

SCALES = {"beta": 0.5, "alpha": 2.0}
ROWS: dict[str, tuple[Any, Any, list[Any]]] = {
    "mm": (meta.mm, torch.mm, [normal(2, 3), normal(3, 4)]),
    "bmm": (meta.bmm, torch.bmm, [normal(2, 2, 3), normal(2, 3, 4)]),
    "mv": (meta.mv, torch.mv, [normal(2, 3), normal(3)]),
    "dot": (meta.dot, torch.dot, [normal(3), normal(3, seed=1)]),
    "inner": (meta.inner, torch.inner, [normal(2, 3), normal(2, 4, 3)]),
    "inner of a number": (meta.inner, torch.inner, [normal(), normal(3)]),
    "outer": (meta.outer, torch.outer, [normal(2), normal(3)]),
    "tensordot": (lambda a, b: meta.tensordot(a, b, ((0, -1), (1, 0))),
                  lambda a, b: torch.tensordot(a, b, ((0, -1), (1, 0))), [normal(2, 3, 4), normal(4, 2, 5)]),
    "kron": (meta.kron, torch.kron, [normal(2, 3), normal(2, 1, 4)]),
    "trace": (meta.linalg.trace, torch.trace, [normal(3, 4)]),
    "addmm": (lambda *x: meta.addmm(*x, **SCALES), lambda *x: torch.addmm(*x, **SCALES),
              [normal(4), normal(2, 3), normal(3, 4)]),
    "addmv": (meta.addmv, torch.addmv, [normal(2), normal(2, 3), normal(3)]),
    "addbmm": (lambda *x: meta.addbmm(*x, **SCALES), lambda *x: torch.addbmm(*x, **SCALES),
               [normal(2, 4), normal(2, 2, 3), normal(2, 3, 4)]),
    "baddbmm": (lambda *x: meta.baddbmm(*x, **SCALES), lambda *x: torch.baddbmm(*x, **SCALES),
                [normal(2, 2, 4), normal(2, 2, 3), normal(2, 3, 4)]),
    "addr": (lambda *x: meta.addr(*x, **SCALES), lambda *x: torch.addr(*x, **SCALES),
             [normal(2, 3), normal(2), normal(3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_products_and_their_gradients(name: str) -> None:
    compare(*ROWS[name])


def test_integers_and_bool() -> None:
    a, b = np.arange(6).reshape(2, 3).astype("int32"), np.arange(6).reshape(3, 2).astype("int32")
    for ours, theirs, hosts in (
        (meta.mm, torch.mm, [a, b]),
        (meta.linalg.trace, torch.trace, [a]),
        (meta.kron, torch.kron, [a, b.astype("float32")]),
        (lambda x, y: meta.addbmm(x[:2, :2], x[None], y[None], alpha=3),
         lambda x, y: torch.addbmm(x[:2, :2], x[None], y[None], alpha=3), [a, b]),
        (lambda x: meta.addr(x[:, :2], x[:, 0], x[:, 1]), lambda x: torch.addr(x[:, :2], x[:, 0], x[:, 1]), [a > 2]),
    ):  # fmt: skip
        compare(ours, theirs, hosts, order=0)


@pytest.mark.parametrize("factors", [(0.5, 2.0), (0.5j, 2), (1, 0.5 - 1j)])
@pytest.mark.parametrize("name", ["addmm", "addmv", "addbmm", "baddbmm", "addr"])
def test_factors_of_complex_products(name: str, factors: tuple[complex, complex]) -> None:
    hosts = [(x + 1j * normal(*x.shape, seed=1)) for x in ROWS[name][2]]
    scales = dict(zip(("beta", "alpha"), factors, strict=True))
    ours = getattr(meta, name)(*map(meta.array, hosts), **scales)
    assert_same(ours, getattr(torch, name)(*map(torch.tensor, hosts), **scales))


def test_a_beta_of_zero_does_not_read_the_added_tensor() -> None:
    y = meta.addmm(meta.full((2, 2), float("nan")), meta.ones((2, 3)), meta.ones((3, 2)), beta=0)
    assert y.tolist() == [[3.0, 3.0], [3.0, 3.0]]


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2), (0, 3), (1, 1)])
def test_trace_of_any_shape(shape: tuple[int, int]) -> None:
    x = normal(*shape)
    assert_same(meta.linalg.trace(meta.array(x)), torch.trace(torch.tensor(x)))


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
@pytest.mark.parametrize(("equation", "shape"), [("ii->i", (3, 3)), ("iji->ji", (2, 3, 2)), ("iii->i", (2, 2, 2))])
def test_diagonals_in_einsum_keep_the_dtype(equation: str, shape: tuple[int, ...], dtype: str) -> None:
    x = (normal(*shape) * 3).astype(dtype)
    assert_same(meta.einsum(equation, meta.array(x)), torch.einsum(equation, torch.tensor(x)))


def test_programs_and_symbolic_sizes() -> None:
    a, b, x = (meta.array(normal(*s)) for s in ((3, 3), (3, 3), (3,)))
    step = meta.trace(lambda a, b, x: (meta.addmm(x, a, b, alpha=0.5), meta.linalg.trace(a)))
    for y, expected in zip(vm.compile(step)(a, b, x), step(a, b, x), strict=True):
        np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-12)
    n = sym("n")
    square = tensor_type((n, n))
    text = str(meta.trace(lambda a: (meta.kron(a, a), meta.linalg.trace(a))).record(square).module)
    assert 'Tensor[(n*n, n*n), "float32"]' in text


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: meta.mm(meta.ones((2,)), meta.ones((2, 3))), r"\[mm\] 'x1' has shape \(2,\); expected 2 axes"),
        (lambda: meta.mv(meta.ones((2, 3)), meta.ones((2,))), r"\[mv\] shapes \(2, 3\) and \(2,\) contract 3 with 2"),
        (lambda: meta.bmm(meta.ones((2, 2, 3)), meta.ones((1, 3, 2))), "batches of different sizes"),
        (lambda: meta.dot(meta.ones((2,)), meta.ones((2,), "float64")), "one dtype for both"),
        (lambda: meta.inner(meta.ones((2, 3)), meta.ones((2,))), "expected equal last sizes"),
        (lambda: meta.tensordot(meta.ones((2, 3)), meta.ones((2, 3)), 1), r"axes \(1,\) of shape \(2, 3\) and \(0,\)"),
        (lambda: meta.tensordot(meta.ones((2,)), meta.ones((2,)), 2), "axes is 2; expected 0 to 1"),
        (lambda: meta.addmm(meta.ones((3,)), meta.ones((2, 3)), meta.ones((3, 2))),
         r"\[addmm\] 'x' has shape \(3,\); expected a shape that broadcasts to \(2, 2\)"),
        (lambda: meta.addmm(*(meta.ones((2, 2), "int64") for _ in range(3)), alpha=0.5), "alpha is 0.5"),
        (lambda: meta.linalg.trace(meta.ones((2,))), r"\[trace\] 'x' has shape \(2,\)"),
    ],
)  # fmt: skip
def test_errors(call: Any, match: str) -> None:
    with pytest.raises(TypeInferenceError, match=match):
        call()
