"""fold_views: libraries that take strides read operands where they are in the memory of others."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import passes
from meta.ir.expr import Call, CallInfo
from meta.ir.layout import StridedLayout
from meta.passes.fold_views import StridedOp, fold_views
from tests.python.passes.programs import program
from tests.python.vm.programs import assert_same, randoms

Strides = list[tuple[int, ...]]


def takes_even_offsets(call: CallInfo) -> bool:
    return all(each is None or each.offset % 2 == 0 for each in call.layouts)


@contextmanager
def library(tensors: Any, seen: Strides, name: str = "strided") -> Generator[None]:
    """A dialect that multiplies matrices and takes strides, except for odd offsets. seen: the strides of operands."""

    def by_torch(a: Any, b: Any, transpose_a: bool, transpose_b: bool, *, out: Any) -> None:
        seen.extend((a.stride(), b.stride()))
        out.copy_(torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b))

    def by_numpy(a: Any, b: Any, transpose_a: bool, transpose_b: bool, *, out: Any) -> None:
        seen.extend(tuple(s // x.itemsize for s in x.strides) for x in (a, b))
        out[...] = np.matmul(a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b)

    with meta.register_dialect(name, plevel=30, tensors=tensors) as dialect:
        dialect.implement("matmul", by_torch if tensors == "torch" else by_numpy, strided=takes_even_offsets)
        yield


def scores(x: Any, w: Any) -> Any:
    """Queries and keys of two heads are halves of one product."""
    q, k = (meta.transpose(meta.reshape(part, (2, 3, 2, 4)), (0, 2, 1, 3)) for part in meta.split(meta.tanh(x), 2, -1))
    return meta.matmul(q, k, transpose_b=True) + w


SHAPES = (2, 3, 16), (3,)


@pytest.mark.parametrize("tensors", ["torch", "numpy"])
def test_operands_are_read_in_place(tensors: str) -> None:
    seen: Strides = []
    args = randoms(*SHAPES)
    with meta.with_dialect(["tvm"]):
        expected = meta.vm.compile(scores)(*args)
    with library(tensors, seen):
        compiled = meta.vm.compile(scores)
        assert_same(compiled(*args), expected)
        kernels = compiled.profile(*args, repeat=1)
    assert seen[:2] == [(48, 4, 16, 1)] * 2
    assert "transpose" not in str(kernels)
    assert "split" not in str(kernels)


def folded(
    function: Callable[..., Any], *shapes: tuple[int, ...]
) -> tuple[list[tuple[StridedLayout | None, ...]], list[str]]:
    """The layouts of strided calls, and the operators of the program after the pass."""
    with library("torch", []):
        module = fold_views(passes.standard()(program(function, *shapes)))
    calls = [b.value for b in module.main.body.bindings if isinstance(b.value, Call)]
    return [c.op.layouts for c in calls if isinstance(c.op, StridedOp)], [c.op_name for c in calls]


def read_otherwise(x: Any, w: Any) -> Any:
    """What something else reads is computed anyway."""
    y = meta.transpose(meta.tanh(x), (1, 0))
    return meta.matmul(y, w), y


def odd_offset(x: Any, w: Any) -> Any:
    return meta.matmul(meta.tanh(x)[:, 1:4], w)


def even_offset(x: Any, w: Any) -> Any:
    return meta.matmul(meta.tanh(x)[:, 2:5], w)


def backwards(x: Any, w: Any) -> Any:
    return meta.matmul(meta.strided_slice(meta.tanh(x), (0, 4), (4, 1), (1, -1)), w)


def every_second(x: Any, w: Any) -> Any:
    return meta.matmul(meta.strided_slice(meta.tanh(x), (0, -6), (4, 6), (1, 2)), w)


def repeated(x: Any, w: Any) -> Any:
    return meta.matmul(meta.broadcast_to(meta.tanh(x), (2, 4, 6)), meta.broadcast_to(w, (2, 6, 2)))


@pytest.mark.parametrize(
    ("function", "w", "layouts"),
    [
        (read_otherwise, (4, 2), []),
        (odd_offset, (3, 2), []),
        (backwards, (3, 2), []),
        (even_offset, (3, 2), [(StridedLayout((4, 6), (4, 3), (6, 1), 2), None)]),
        (every_second, (3, 2), [(StridedLayout((4, 6), (4, 3), (6, 2)), None)]),
        (
            repeated,
            (6, 2),
            [(StridedLayout((4, 6), (2, 4, 6), (0, 6, 1)), StridedLayout((6, 2), (2, 6, 2), (0, 2, 1)))],
        ),
    ],
)
def test_layouts_of_operands(function: Callable[..., Any], w: tuple[int, ...], layouts: list[Any]) -> None:
    assert folded(function, (4, 6), w)[0] == layouts
    args = randoms((4, 6), w)
    expected = function(*args)
    with library("torch", []):
        result = meta.vm.compile(function)(*args)
    for x, y in zip(*((v if isinstance(v, tuple) else (v,)) for v in (result, expected)), strict=True):
        assert_same(x, y)


def test_parts_of_what_a_copy_made() -> None:
    """A reshape of a transpose is a copy, which the operand is a part of."""

    def function(x: Any, w: Any) -> Any:
        return meta.matmul(meta.reshape(meta.transpose(meta.tanh(x), (1, 0)), (4, 6))[:, 2:4], w)

    layouts, operators = folded(function, (4, 6), (2, 2))
    assert layouts == [(StridedLayout((4, 6), (4, 2), (6, 1), 2), None)]
    assert operators == ["tanh", "transpose", "reshape", "matmul"]


def test_symbolic_sizes_are_copied() -> None:
    with library("torch", []):
        compiled = meta.vm.compile(even_offset, dynamic={"x": {0: "n"}})
        for n in (2, 5):
            args = randoms((n, 6), (3, 2))
            assert_same(compiled(*args), even_offset(*args))


def test_a_parameter_is_read_before_it_is_written() -> None:
    """The part of a parameter that a library reads is where the program writes its new value."""
    layer = meta.nn.Linear(6, 6)

    def step(x: Any) -> Any:
        with meta.no_grad():
            y = meta.matmul(x, meta.transpose(layer.w, (1, 0))[:, 2:])
            layer.w.update(layer.w * 2.0)
            return y

    (x,) = randoms((4, 6))
    before = layer.w.detach().numpy().copy()
    with library("torch", []):
        compiled = meta.vm.compile(step)
        results = [compiled(x).numpy() for _ in range(2)]
    for i, result in enumerate(results):
        np.testing.assert_allclose(result, x.numpy() @ before.T[:, 2:] * 2**i, rtol=1e-5)


def heads_last(q: Any, k: Any, v: Any) -> Any:
    """The transposed result and the logarithms."""
    y, lse = meta.attention_with_lse(q, k, v)
    return meta.transpose(y, (0, 2, 1, 3)) * 2.0, lse


def both_ways(q: Any, k: Any, v: Any) -> Any:
    y, lse = meta.attention_with_lse(q, k, v)
    return meta.transpose(y, (0, 2, 1, 3)) + meta.transpose(y, (0, -2, -3, 3)), y, lse


@pytest.mark.parametrize("tensors", ["torch", "numpy"])
def test_results_are_written_in_the_order_that_is_read(tensors: Any) -> None:
    seen: Strides = []

    def attend(q: Any, k: Any, v: Any, causal: bool, scale: Any, bias: Any, *, out: Any) -> None:
        y, lse = out
        seen.append(y.stride() if tensors == "torch" else tuple(s // y.itemsize for s in y.strides))
        scores = np.asarray(q) @ np.asarray(k).swapaxes(-1, -2) / 2.0
        total = np.log(np.exp(scores).sum(-1))
        result = np.exp(scores - total[..., None]) @ np.asarray(v), total
        for target, value in zip((y, lse), result, strict=True):
            target[...] = torch.from_numpy(value) if tensors == "torch" else value

    args = randoms(*((2, 3, 5, 4),) * 3)
    with meta.register_dialect("ordered", plevel=30, tensors=tensors) as dialect:
        dialect.implement("attention_with_lse", attend, ordered=lambda call: call.orders[1] is None)
        for function in (heads_last, both_ways):
            module = fold_views(passes.standard()(program(function, *[a.shape for a in args])))
            operators = [b.value.op_name for b in module.main.body.bindings if isinstance(b.value, Call)]
            assert ("transpose" in operators) is (function is both_ways)
            for x, expected in zip(meta.vm.compile(function)(*args), function(*args), strict=True):
                assert_same(x, expected)
    assert seen.count((60, 4, 12, 1)) == 1  # of the program; eager calls and the other one are row-major


def test_saved_programs_find_the_kernels_again(tmp_path: Path) -> None:
    args, seen = randoms(*SHAPES), Strides()
    with library("torch", seen, "strided_and_saved"):
        compiled = meta.vm.compile(scores)
        expected = compiled(*args)
        compiled.save(tmp_path / "program")
        seen.clear()
        assert_same(meta.vm.load(tmp_path / "program")(*args), expected)
    assert seen == [(48, 4, 16, 1)] * 2
