"""Composed functions: values and gradients compared with torch or NumPy, and programs on the virtual machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

import meta
from meta import vm
from meta.dim import sym
from meta.errors import ArgumentError, TraceError
from meta.interpreter.run import run
from meta.ir.type import tensor_type
from meta.testing.arrays import check, to_torch


def floats(*shape: int, low: float = -1, high: float = 1) -> Any:
    return np.random.default_rng(sum(shape)).uniform(low, high, shape).astype(np.float32)


def einsum(equation: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return lambda *xs: meta.einsum(equation, *xs), lambda *xs: torch.einsum(equation, *xs)


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("ij->", [(2, 3)]),
    ("ii->i", [(3, 3)]),
    ("i,j", [(2,), (3,)]),
    ("...ij,...jk", [(2, 1, 2, 3), (4, 3, 2)]),
    ("bi,ijk,bk->bj", [(2, 3), (3, 4, 5), (2, 5)]),
    ("ab,ba->a", [(1, 3), (3, 1)]),
    ("ab,bc,cd,d->a", [(2, 3), (3, 4), (4, 5), (5,)]),
    ("a...,ab,b...->...b", [(2, 3, 1), (2, 4), (4, 5)]),
    ("ab,bc,cd->ad", [(2, 0), (0, 4), (4, 3)]),
    ("ab,bc,b->ac", [(2, 1), (3, 4), (3,)]),
    ("ij,j->ij", [(2, 3), (1,)]),
]
THETA = np.array([[[0.8, 0.1, 0.2], [-0.2, 1.1, -0.1]]], np.float32)
ROIS = np.array([[0, 0.4, 0.6, 3.2, 4.1], [1, -2, -3, 2, 2], [0, 2.2, 2.3, 2.4, 2.6]], np.float32)


def roi_align(x: Any, rois: Any, size: tuple[int, int], scale: float, ratio: int) -> Any:
    """Reference implementation, bin by bin."""
    out = []
    for b, x1, y1, x2, y2 in rois.tolist():
        x1, y1, x2, y2 = (v * scale for v in (x1, y1, x2, y2))
        w, h = max(x2 - x1, 1.0), max(y2 - y1, 1.0)
        ys = [y1 + h * (i + 0.5) / (size[0] * ratio) for i in range(size[0] * ratio)]
        xs = [x1 + w * (i + 0.5) / (size[1] * ratio) for i in range(size[1] * ratio)]
        grid = torch.stack([torch.stack([pixel(x[int(b)], v, u) for u in xs], -1) for v in ys], -2)
        out.append(tf.avg_pool2d(grid[None], ratio)[0])
    return torch.stack(out)


def pixel(x: Any, v: float, u: float) -> Any:
    _, h, w = x.shape
    if not (-1 <= v <= h and -1 <= u <= w):
        return x[:, 0, 0] * 0
    v, u = min(max(v, 0.0), h - 1.0), min(max(u, 0.0), w - 1.0)
    i, j = int(v), int(u)
    a, b, k, m = v - i, u - j, min(i + 1, h - 1), min(j + 1, w - 1)
    return (1 - a) * ((1 - b) * x[:, i, j] + b * x[:, i, m]) + a * ((1 - b) * x[:, k, j] + b * x[:, k, m])


def grid_sample_functions(**how: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    names = {"method": "mode"}

    def torch_sample(x: Any, grid: Any) -> Any:
        options = {"align_corners": True} | {names.get(k, k): v for k, v in how.items()}
        return tf.grid_sample(x, grid.movedim(1, -1), **options)

    return lambda x, grid: meta.grid_sample(x, grid, **how), torch_sample


ROWS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Any]]] = {
    **{f"einsum {eq}": (*einsum(eq), [floats(*shape) for shape in shapes]) for eq, shapes in EQUATIONS},
    "group_norm": (lambda x, w, b: meta.group_norm(x, 2, w, b), lambda x, w, b: tf.group_norm(x, 2, w, b),
                   [floats(2, 4, 3), floats(4), floats(4)]),
    "instance_norm": (lambda x, w: meta.instance_norm(x, w, axis=-1),
                      lambda x, w: tf.instance_norm(x.movedim(-1, 1), weight=w).movedim(1, -1),
                      [floats(2, 5, 3), floats(3)]),
    "affine_grid": (lambda t: meta.affine_grid(t, (3, 4)),
                    lambda t: tf.affine_grid(t, [1, 1, 3, 4], align_corners=True).movedim(-1, 1), [THETA]),
    "grid_sample": (*grid_sample_functions(), [floats(2, 2, 4, 5), floats(2, 2, 3, 3, low=-1.3, high=1.3)]),
    "grid_sample border": (*grid_sample_functions(padding_mode="border", align_corners=False),
                           [floats(1, 2, 4, 5), floats(1, 2, 3, 3, low=-1.3, high=1.3)]),
    "grid_sample mirrored": (*grid_sample_functions(padding_mode="reflection", align_corners=False),
                             [floats(1, 2, 4, 5), floats(1, 2, 3, 3, low=-2.3, high=2.3)]),
    "grid_sample nearest": (*grid_sample_functions(method="nearest"), [floats(1, 2, 4, 5), floats(1, 2, 3, 3)]),
    "roi_align": (lambda x: meta.roi_align(x, meta.array(ROIS), (2, 3), 0.9, 2),
                  lambda x: roi_align(x, ROIS, (2, 3), 0.9, 2), [floats(2, 2, 5, 6)]),
    "searchsorted": (lambda s, v: meta.searchsorted(s, v, right=True),
                     lambda s, v: torch.searchsorted(s.contiguous(), v, right=True),
                     [np.sort(floats(2, 6)), floats(2, 3)]),
}  # fmt: skip


DIFFERENTIATED = ["einsum bhqd,bhkd->bhqk", "einsum ii->i", "einsum ij,j->ij", "group_norm", "grid_sample"]


@pytest.mark.parametrize("name", ROWS)
def test_values(name: str) -> None:
    ours, torch_sample, hosts = ROWS[name]
    y, expected = ours(*map(meta.array, hosts)), torch_sample(*map(to_torch, hosts))
    check(y, expected)
    assert y.dtype == str(expected.dtype).removeprefix("torch.")


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients(name: str) -> None:
    ours, torch_sample, hosts = ROWS[name]
    arrays, tensors = [meta.array(h) for h in hosts], [to_torch(h) for h in hosts]
    for x, t in zip(arrays, tensors, strict=True):
        x.requires_grad = True
        t.requires_grad_()
    y, expected = ours(*arrays), torch_sample(*tensors)
    dy = floats(*expected.shape)
    y.backward(meta.array(dy))
    expected.backward(to_torch(dy))
    for x, t in zip(arrays, tensors, strict=True):
        check(x.grad, t.grad, rtol=1e-4)


@pytest.mark.parametrize("name", ["einsum ...ij,...jk", "instance_norm", "grid_sample nearest"])
def test_programs(name: str) -> None:
    ours, torch_sample, hosts = ROWS[name]
    y = vm.compile(meta.trace(ours))(*map(meta.array, hosts))
    check(y, torch_sample(*map(to_torch, hosts)))


def test_programs_reject_shapes_that_depend_on_values() -> None:
    with pytest.raises(TraceError, match="the shape of the result depends on values"):
        meta.trace(lambda x: meta.unique(x)).ir(meta.ones((3,)))


@pytest.mark.parametrize("values", [[3, 1, 3, 2, 1, 3], []])
def test_unique(values: list[int]) -> None:
    actual = meta.unique(meta.array(np.array(values, np.int32)))
    expected = np.unique(np.array(values, np.int32), return_inverse=True, return_counts=True)
    for ours, torch_sample in zip(actual, expected, strict=True):
        assert ours.tolist() == torch_sample.tolist()


@pytest.mark.parametrize(
    ("equation", "match"),
    [("ij,jk", "2 terms for 1 operands"), ("ijk", "of rank 2"), ("ij->k", "the result has 'k'"),
     ("i:j", "does not parse"), ("i...j...", "the term 'i...j...'"), ("ii", "sizes 2 and 3")],
)  # fmt: skip
def test_einsum_rejects(equation: str, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        meta.einsum(equation, meta.ones((2, 3)))


def test_einsum_contracts_in_the_order_of_least_work() -> None:
    matrix, vector = meta.ones((64, 64)), meta.ones((64,))
    text = meta.trace(lambda a, b, x: meta.einsum("ij,jk,k->i", a, b, x)).ir(matrix, matrix, vector)
    products = [line for line in text.splitlines() if "= matmul(" in line]
    assert len(products) == 2
    assert all("Tensor[(64, 1)" in line for line in products)


def test_einsum_of_symbolic_sizes_contracts_from_left_to_right() -> None:
    a, b = tensor_type((sym("n"), 3)), tensor_type((3, 4))
    record = meta.trace(lambda a, b, c: meta.einsum("ij,jk,kl->il", a, b, c)).record(a, b, tensor_type((4, 5)))
    hosts = [floats(2, 3), floats(3, 4), floats(4, 5)]
    check(run(record.module, *map(meta.array, hosts))[0], torch.einsum("ij,jk,kl->il", *map(to_torch, hosts)))


def test_other_functions_reject_wrong_arguments() -> None:
    with pytest.raises(ArgumentError, match="one size a label"):
        meta.einsum("i,i", meta.ones((2,)), meta.ones((3,)))
    with pytest.raises(ArgumentError, match="3 channels in 2 groups"):
        meta.group_norm(meta.ones((1, 3, 2)), 2)
    with pytest.raises(ArgumentError, match="sample_ratio 0"):
        meta.roi_align(meta.ones((1, 1, 2, 2)), meta.ones((1, 5)), (1, 1), sample_ratio=0)
