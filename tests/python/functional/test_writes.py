"""Writes at positions and by masks: values and gradients as torch's, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError, MetaError, TypeInferenceError
from tests.python.functional.against_torch import Function, compare, floats, same

TWICE = np.array([2, 0, 2])
PAIR = np.array([2, 0])
PLACES = np.array([[0, 1, 0], [2, 2, 0]])
MASK = np.array([[True, False, True], [False, True, True]])


def both(host: Any) -> tuple[Any, Any]:
    return meta.array(host), torch.from_numpy(host)


M_TWICE, T_TWICE = both(TWICE)
M_PAIR, T_PAIR = both(PAIR)
M_PLACES, T_PLACES = both(PLACES)
M_MASK, T_MASK = both(MASK)
M_PLACED, T_PLACED = {}, {}
for _name, _places in (("index_add", [2, 0, 2, 2, 1]), ("index_copy", [2, 0, 1])):
    M_PLACED[_name], T_PLACED[_name] = both(np.array(_places))

ROWS: dict[str, tuple[Function, Function, list[tuple[int, ...]]]] = {
    "index_add": (lambda x, s: meta.index_add(x, 1, M_TWICE, s, alpha=2),
                  lambda x, s: x.index_add(1, T_TWICE, s, alpha=2), [(2, 4), (2, 3)]),
    "index_add of complex numbers": (
        lambda x, s: meta.real(meta.index_add(x * (1 + 1j), 1, M_TWICE, s * 1j, alpha=0.5)),
        lambda x, s: (x * (1 + 1j)).index_add(1, T_TWICE, s * 1j, alpha=0.5).real, [(2, 4), (2, 3)]),
    "index_copy": (lambda x, s: meta.index_copy(x, 1, M_PAIR, s), lambda x, s: x.index_copy(1, T_PAIR, s),
                   [(2, 4), (2, 2)]),
    **{f"{name} along {axis} of {shape}": (
        lambda x, s, name=name, axis=axis: getattr(meta, name)(x, axis, M_PLACED[name], s),
        lambda x, s, name=name, axis=axis: getattr(x, name)(axis, T_PLACED[name], s), [shape, slices])
       for name, count in (("index_add", 5), ("index_copy", 3))
       for shape, axis, slices in (((3, 2), 0, (count, 2)), ((2, 3, 4), 1, (2, count, 4)), ((1, 3), 1, (1, count)),
                                   ((2, 3), 1, (2, count)), ((3,), 0, (count,)), ((0, 3, 2), 1, (0, count, 2)))},
    "index_fill": (lambda x, v: meta.index_fill(x, 1, M_TWICE, v), lambda x, v: x.index_fill(1, T_TWICE, v),
                   [(2, 4), ()]),
    **{f"index_reduce {how} {itself}": (
        lambda x, s, how=how, itself=itself: meta.index_reduce(x, 1, M_TWICE, s, how, itself),
        lambda x, s, how=how, itself=itself: x.index_reduce(1, T_TWICE, s, how, include_self=itself),
        [(2, 4), (2, 3)]) for how, itself in (("prod", True), ("mean", False), ("amin", False), ("amax", True))},
    **{f"scatter_reduce {how} {itself}": (
        lambda x, s, how=how, itself=itself: meta.scatter_reduce(x, 0, M_PLACES, s, how, itself),
        lambda x, s, how=how, itself=itself: x.scatter_reduce(0, T_PLACES, s, how, include_self=itself),
        [(3, 3), (2, 3)])
       for how, itself in (("sum", False), ("prod", False), ("mean", True), ("amin", True), ("amax", False))},
    "put": (lambda x, s: meta.put(x, M_TWICE, s, True), lambda x, s: x.put(T_TWICE, s, True), [(2, 4), (3,)]),
    "masked_fill": (lambda x, v: meta.masked_fill(x, M_MASK, v), lambda x, v: x.masked_fill(T_MASK, v),
                    [(2, 2, 3), ()]),
    "masked_select": (lambda x: meta.masked_select(x, M_MASK), lambda x: x.masked_select(T_MASK), [(2, 2, 3)]),
    "masked_select of a 0-d tensor": (lambda x: meta.masked_select(x, M_MASK), lambda x: x.masked_select(T_MASK), [()]),
    "masked_scatter": (lambda x, s: meta.masked_scatter(x, M_MASK, s), lambda x, s: x.masked_scatter(T_MASK, s),
                       [(2, 3), (5,)]),
    "take_along_dim": (lambda x: meta.take_along_dim(x, M_PLACES[:, :2], 0),
                       lambda x: torch.take_along_dim(x, T_PLACES[:, :2], 0), [(3, 1)]),
    "repeat_interleave": (lambda x: meta.repeat_interleave(x, M_TWICE, 0),
                          lambda x: x.repeat_interleave(T_TWICE, 0), [(3, 2)]),
}  # fmt: skip
INDICES: dict[str, tuple[Any, ...]] = {
    "one": (PAIR,),
    "neighbours": (None, PAIR, PAIR),
    "apart": (PAIR % 2, None, PAIR),
    "broadcast, from the end": (PAIR.reshape(2, 1) % 2, -PAIR),
    "matrix": (None, None, PAIR.reshape(1, 2)),
    "mask": (MASK,),
}


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")  # torch calls it beta
@pytest.mark.parametrize("name", ROWS)
def test_as_torch(name: str) -> None:
    ours, theirs, shapes = ROWS[name]
    compare(ours, theirs, [floats(*shape) for shape in shapes])


@pytest.mark.parametrize("name", INDICES)
def test_index_put(name: str) -> None:
    hosts = INDICES[name]
    arrays = tuple(None if host is None else meta.array(host) for host in hosts)
    tensors = [None if host is None else torch.from_numpy(host) for host in hosts]
    x = floats(3, 3, 4) if name == "one" else floats(2, 3, 4)
    values = floats(*torch.ops.aten.index(torch.from_numpy(x), tensors).shape)
    accumulate = name == "one"
    compare(
        lambda x, v: meta.index_put(x, arrays, v, accumulate),
        lambda x, v: torch.ops.aten.index_put(x, tensors, v, accumulate),
        [x, values],
    )


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
def test_bools_and_integers() -> None:
    x, t = both(MASK)
    for how in ("sum", "prod", "amin", "amax"):
        same(meta.scatter_reduce(x, 1, M_PLACES, x, how), t.scatter_reduce(1, T_PLACES, t, how))
    same(meta.index_add(x, 1, M_TWICE, x), t.index_add(1, T_TWICE, t))
    same(meta.index_put(x, (None, M_TWICE), x, True), torch.ops.aten.index_put(t, [None, T_TWICE], t, True))
    x, t = both(np.arange(-3, 6, dtype=np.int32).reshape(3, 3))
    for how in ("prod", "mean", "amin", "amax"):
        same(meta.index_reduce(x, 0, M_TWICE, x, how, False), t.index_reduce(0, T_TWICE, t, how, include_self=False))
    same(meta.scatter(x, 0, M_PLACES, 2, "prod"), t.scatter(0, T_PLACES, 2, reduce="multiply"))


def test_src_may_be_larger_than_the_positions() -> None:
    x, src = meta.zeros((3, 3)), meta.array(floats(3, 4))
    y = meta.scatter_reduce(x, 0, M_PLACES, src, "sum")
    assert y.tolist() == meta.scatter_add(x, 0, M_PLACES, src[:2, :3]).tolist()
    src.requires_grad = True
    meta.scatter(x, 0, M_PAIR.reshape(1, 2), src).sum().backward()
    assert src.grad.tolist() == [[1, 1, 0, 0], [0] * 4, [0] * 4]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: meta.index_add(x, 2, M_PAIR, x), TypeInferenceError, r"\[index_add\] axis 2 is out of range"),
        (lambda x: meta.index_add(x, 0, M_PAIR, x[:, :1]), TypeInferenceError, r"'src' has shape \(2, 1\); expected"),
        (lambda x: meta.index_copy(x, 0, M_PLACES, x), TypeInferenceError, r"indices have shape \(2, 3\);"),
        (lambda x: meta.index_copy(x, 0, x[0], x), TypeInferenceError, "indices have dtype float32; expected int32"),
        (lambda x: meta.index_fill(x.cast("int64"), 0, M_PAIR, 0.5), TypeInferenceError, "value is 0.5 for x of int64"),
        (lambda x: meta.index_reduce(x, 0, M_PAIR, x, "sum"), ArgumentError, r"\[index_reduce\] reduction is 'sum'"),
        (lambda x: meta.scatter_reduce(x, 0, M_PLACES, x[:1], "sum"), TypeInferenceError, "src at least as large"),
        (lambda x: meta.scatter(x, 0, M_PLACES, x.cast("int64")), TypeInferenceError, "one dtype for both"),
        (lambda x: meta.put(x, M_PAIR, x), TypeInferenceError, r"indices have shape \(2,\), src \(2, 3\)"),
        (lambda x: meta.put(x, x, x), TypeInferenceError, "indices have dtype float32; expected int64"),
        (lambda x: meta.index_put(x, (M_PAIR,), x[:, :2]), TypeInferenceError, "shapes that broadcast"),
        (lambda x: meta.index_put(x, (M_PAIR,) * 3, x), TypeInferenceError, "3 indices for rank 2"),
        (lambda x: meta.index_put(x, (M_MASK[:1],), x), TypeInferenceError, r"a mask of shape \(1, 3\) for axes"),
        (lambda x: meta.masked_fill(x, M_PLACES, 0), TypeInferenceError, r"\[masked_fill\] 'mask' has dtype int64"),
        (lambda x: meta.masked_scatter(x, M_MASK, x[0]), TypeInferenceError, "src has 3 elements for 4"),
        (lambda x: meta.take_along_dim(x, x, 0), TypeInferenceError, r"\[take_along_dim\] indices have dtype float32"),
        (lambda x: meta.take_along_dim(x, M_PAIR, 0), TypeInferenceError, "'x' has rank 2, 'indices' 1"),
        (lambda x: meta.repeat_interleave(x, M_TWICE, 0), TypeInferenceError, r"repeats have shape \(3,\)"),
        (lambda x: meta.repeat_interleave(x, -M_PAIR, 0), TypeInferenceError, "repeats contain -2"),
    ],
)  # fmt: skip
def test_refusals(call: Callable[[Any], Any], error: type[MetaError], match: str) -> None:
    with pytest.raises(error, match=match):
        call(meta.array(floats(2, 3)))
