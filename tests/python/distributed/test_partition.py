"""Programs on parts of their values, all ranks of which run in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.distributed.mesh import Group
from meta.distributed.tensor.parameters import ParameterPart
from meta.distributed.tensor.partition import partition_pass
from meta.distributed.tensor.placement import Sharded
from meta.ir.builder import Module
from meta.ir.type import tensor_type
from meta.ir.verifier import verify
from meta.ir.visitor import walk
from tests.python.distributed.ranks import run_ranks

RANKS = 2
GROUP = Group("tp", RANKS)


def _values(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape)


def _part(shape: tuple[int, ...], placement: Sharded) -> ParameterPart:
    return ParameterPart("w", None, tensor_type(shape, "float64"), placement, GROUP)


def _parts(w: np.ndarray[Any, Any], placement: Sharded) -> list[Any]:
    """The parts of all ranks."""
    axis, blocks = placement.axis, placement.blocks
    cut = np.split(w, blocks * RANKS, axis)
    return [meta.array(np.concatenate(cut[rank::RANKS], axis)) for rank in range(RANKS)]


def partitioned(function: Callable[..., Any], w: Any, placement: Sharded, others: tuple[Any, ...]) -> Module:
    """The program of `function(w, *others)` with parts of w as its first input."""
    part = _part(w.shape, placement)

    def program(own: Any, *rest: Any) -> Any:
        return function(part.whole(own), *rest)

    inputs = [tensor_type(part.shape, str(w.dtype)), *(meta.array(x).type for x in others)]
    module = meta.trace(program).record(*inputs).module
    verify(module)
    new = partition_pass(GROUP, {module.main.params[0]})(module)
    verify(new)
    assert [p.type for p in new.main.params] == [p.type for p in module.main.params]
    assert new.main.body.type == module.main.body.type
    return new


def collectives(module: Module) -> dict[str, int]:
    names = (
        b.value.op_name
        for b in walk(module.main)
        if getattr(getattr(b.value, "op", None), "family", "") == "collective"
    )  # type: ignore[union-attr]
    return dict(Counter(name for name in names if name != "group_rank"))


def _flat(results: Any) -> list[Any]:
    return [x.numpy() for x in (results if isinstance(results, tuple) else (results,))]


X, TOKENS, LABELS = _values(3, 4, seed=1), np.array([[0, 5], [3, 1], [2, 4]]), np.array([1, 5, -100])
GATHER, REDUCE = {"all_gather": 1}, {"all_reduce": 1}
Case = tuple[str, Callable[..., Any], tuple[int, ...], Sharded, tuple[Any, ...], dict[str, int]]
CASES: list[Case] = [
    ("columns", lambda w, x: meta.tanh(meta.dense(x, w)), (6, 4), Sharded(0), (X,), GATHER),
    ("columns of blocks", lambda w, x: meta.dense(x, w) * 2.0, (6, 4), Sharded(0, 3), (X,), GATHER),
    ("bias", lambda b, x: x + b, (4,), Sharded(0), (X,), GATHER),
    ("rows", lambda w, x, b: meta.dense(x, w, b), (6, 4), Sharded(1), (X, _values(6)), REDUCE),
    ("rows of blocks", lambda w, x: meta.dense(x, w), (6, 4), Sharded(1, 2), (X,), REDUCE),
    ("columns, rows", lambda w, x: meta.relu(x @ w.transpose()) @ w, (6, 4), Sharded(0), (X,), REDUCE),
    ("sum of sums", lambda w, x: meta.dense(x, w) + meta.dense(x * 2.0, w), (6, 4), Sharded(1), (X,), REDUCE),
    ("sum and its view", lambda w, x: _with_view(meta.dense(x, w)), (6, 4), Sharded(1), (X,), REDUCE),
    ("batch", lambda w, x: meta.matmul(w, x), (2, 3, 4), Sharded(0), (_values(2, 4, 5),), GATHER),
    ("broadcast batch", lambda w, x: meta.matmul(x, w), (2, 4, 3), Sharded(0), (X,), GATHER),
    ("total", lambda w: meta.sum(w * w), (6, 4), Sharded(0), (), REDUCE),
    ("mean of rows", lambda w: meta.mean(w, 0), (6, 4), Sharded(1), (), GATHER),
    ("mean", lambda w: meta.mean(w, (0, 1), True), (6, 4), Sharded(1), (), REDUCE),
    ("extrema", lambda w: (meta.max(w, 0), meta.min(w)), (6, 4), Sharded(0), (), {"all_reduce": 2}),
    ("any", lambda w: meta.any(meta.greater(w, 1.5), 0), (6, 4), Sharded(0), (), REDUCE),
    ("sum_to", lambda w: (meta.sum_to(w, (4,)), meta.sum_to(w, (6, 1))), (6, 4), Sharded(0), (), REDUCE | GATHER),
    ("rows of softmax", lambda w: meta.softmax(w), (6, 4), Sharded(0), (), GATHER),
    ("softmax along parts", lambda w: meta.softmax(w), (6, 4), Sharded(1), (), GATHER | {"all_reduce": 2}),
    ("softmax of parts, summed", lambda w: meta.sum(meta.softmax(w) * w), (6, 4), Sharded(1), (), {"all_reduce": 3}),
    ("layer_norm", lambda w, s: meta.layer_norm(w, s, s), (6, 4), Sharded(0), (_values(4),), GATHER),
    ("scales", lambda w, dy: meta.layer_norm_dwb(w, dy), (6, 4), Sharded(0), (_values(6, 4),), {"all_reduce": 2}),
    ("transposed", lambda w: meta.transpose(w, (2, 0, 1)).swap_axis(0, 1), (2, 3, 4), Sharded(2), (), GATHER),
    ("moved", lambda w: meta.moveaxis(w, (0,), (2,)), (2, 3, 4), Sharded(0), (), GATHER),
    ("merged", lambda w: meta.reshape(w, (3, 8)) * 1.5, (3, 2, 4), Sharded(1), (), GATHER),
    ("merged behind", lambda w: meta.reshape(w, (3, 8)) * 1.5, (3, 2, 4), Sharded(2), (), GATHER),
    ("taken apart", lambda w: meta.reshape(w, (3, 2, 4)) * 1.5, (3, 8), Sharded(1), (), GATHER),
    ("reshaped across", lambda w: meta.reshape(w, (4, 3)) * 1.5, (3, 4), Sharded(1), (), GATHER),
    ("heads", lambda w, x: _second(meta.dense(x, w)) * 2.0, (12, 4), Sharded(0, 3), (X,), GATHER),
    ("blocks", lambda w: tuple(p * 2 for p in meta.split(w, 3, 0)), (12, 2), Sharded(0, 3), (), {"all_gather": 3}),
    ("parts together", lambda w: meta.concatenate([w, w * 2.0], 0) + 1.0, (4, 2), Sharded(0), (), GATHER),
    ("along others", lambda w: meta.stack([meta.concatenate([w, w], 1)] * 2, 0), (4, 2), Sharded(0), (), GATHER),
    ("new axes", lambda w: meta.squeeze(meta.expand_dims(w, (0, 2)), (0,)), (4, 2), Sharded(0), (), GATHER),
    ("sliced", lambda w: w[:, 1:3] + meta.pad(w, ((0, 0), (0, -2))), (4, 4), Sharded(0), (), GATHER),
    ("sliced along parts", lambda w: w[1:3] * 2.0, (4, 4), Sharded(0), (), GATHER),
    ("taken", lambda w: meta.take(w, meta.array([2, 0]), 1) * 2.0, (4, 4), Sharded(0), (), GATHER),
    ("features of a table", lambda w, i: meta.embedding(w, i) * 2.0, (6, 4), Sharded(1), (TOKENS,), GATHER),
    ("rows of a table", lambda w, i: meta.embedding(w, i) * 2.0, (6, 4), Sharded(0), (TOKENS,), REDUCE),
    ("scan along parts", lambda w: meta.cumsum(w, 0), (6, 4), Sharded(0), (), GATHER),
    ("sorted rows", lambda w: meta.sort(meta.cumsum(w, 1)) * 2.0, (6, 4), Sharded(0), (), GATHER),
    ("matrices", lambda w: meta.det(meta.inv_ex(w)[0]) * 2.0, (4, 3, 3), Sharded(0), (), GATHER),
    ("groups", lambda w, x: meta.relu(meta.conv1d(x, w, groups=2)), (4, 1, 3), Sharded(0), (_values(3, 2, 5),), GATHER),
    ("channels", lambda w, x: meta.relu(meta.conv1d(x, w)), (4, 2, 3), Sharded(0), (_values(3, 2, 5),), GATHER),
    ("images", lambda w, k: meta.max_pool1d(meta.conv1d(w, k), 2), (4, 2, 5), Sharded(0), (_values(3, 2, 2),), GATHER),
    ("kernels of images", lambda w, dy: meta.conv1d_dw(w, dy, (3, 2, 2)), (4, 2, 5), Sharded(0), (_values(4, 3, 4),),
     REDUCE),
    ("replicated operand", lambda w, x: w * x + meta.relu(x), (6, 4), Sharded(0), (_values(6, 4),), GATHER),
    ("attention", lambda w, k: meta.scaled_dot_product_attention(w, k, k, is_causal=True), (2, 3, 4), Sharded(0),
     (_values(2, 3, 4),), GATHER),
    ("loss", lambda w, x, t: meta.cross_entropy(meta.dense(x, w), t), (6, 4), Sharded(0), (X, LABELS),
     {"all_reduce": 3}),
    ("losses of blocks", lambda w, x, t: meta.cross_entropy(meta.dense(x, w), t, reduction="none"), (6, 4),
     Sharded(0, 3), (X, LABELS), {"all_reduce": 3}),
    ("smoothed loss", lambda w, x, t: meta.cross_entropy(meta.dense(x, w), t, label_smoothing=0.1), (6, 4), Sharded(0),
     (X, LABELS), {"all_reduce": 4}),
    ("gradient of a loss", lambda w, x, t: meta.cross_entropy_dx(meta.dense(x, w), t, meta.array(2.0, "float64")),
     (6, 4), Sharded(0), (X, LABELS), GATHER | {"all_reduce": 2}),
    ("gathered along parts", lambda w, i: meta.gather(w, 0, i), (12, 2), Sharded(0, 3),
     (np.array([[0, 5], [11, 4], [7, 1]]),), REDUCE),
    ("parts of a dropout", lambda w: meta.sum(_dropout(w)), (6, 4), Sharded(0), (), REDUCE),
    ("a mean by elements", lambda w, t: meta.mse_loss(w, t), (6, 4), Sharded(0), (_values(6, 4, seed=2),), REDUCE),
]  # fmt: skip


def _with_view(y: Any) -> Any:
    return meta.exp(y) * meta.exp(meta.reshape(y, (18,))).reshape((3, 6))


def _dropout(w: Any) -> Any:
    return meta.dropout(w, meta.array([3, 0]), 0.5)[0]


def _second(qkv: Any) -> Any:
    return meta.split(meta.reshape(qkv, (3, 3, 2, 2)), 3, 1)[1]


@pytest.mark.parametrize(
    ("name", "function", "shape", "placement", "others", "expected"), CASES, ids=[c[0] for c in CASES]
)
def test_results_of_parts_equal_the_whole_result(
    name: str, function: Callable[..., Any], shape: tuple[int, ...], placement: Sharded, others: tuple[Any, ...],
    expected: dict[str, int],
) -> None:  # fmt: skip
    w = _values(*shape)
    module = partitioned(function, w, placement, others)
    whole = _flat(function(meta.array(w), *map(meta.array, others)))
    for results in run_ranks(module, [[own, *map(meta.array, others)] for own in _parts(w, placement)]):
        for result, desired in zip(results, whole, strict=True):
            np.testing.assert_allclose(result, desired, 1e-12, 1e-12, err_msg=str(module))
    assert collectives(module) == expected, module


def test_losses_of_invalid_labels_are_nan() -> None:
    w, labels = _values(6, 4), np.array([6, 1, 2])

    def losses(w: Any, x: Any, t: Any) -> Any:
        return meta.cross_entropy(meta.dense(x, w), t, reduction="none")

    module = partitioned(losses, w, Sharded(0), (X, labels))
    for (result,) in run_ranks(module, [[own, meta.array(X), meta.array(labels)] for own in _parts(w, Sharded(0))]):
        assert np.isnan(result).tolist() == [True, False, False]
