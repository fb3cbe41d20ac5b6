"""Attention with masks, bags of embeddings, dropout of channels and temporal classification, compared with torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

import meta
from meta import vm
from meta.backend.tvm import kernel as kernels
from meta.errors import ArgumentError, PositionError, TypeInferenceError
from meta.testing.arrays import check, to_torch
from tests.python.functional.against_torch import floats
from tests.python.functional.rows import Row, assert_agrees, classes

QKV = [floats(2, 4, 3, 8), floats(2, 4, 5, 8), floats(2, 4, 5, 6)]
GROUPED = [floats(4, 3, 8), floats(2, 3, 8), floats(2, 3, 6)]
MASK = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
INDICES, OFFSETS = np.array([1, 3, 3, 0, 4, 1]), np.array([0, 2, 2, 5])
LABELS = np.array([[1, 2, 2], [3, 1, 1], [2, 1, 3]])


def attended(mask: Any = None, inputs: Any = QKV, **how: Any) -> Row:
    names = {"causal": "is_causal", "grouped": "enable_gqa"}
    theirs = {names.get(k, k): v for k, v in how.items()}
    return Row(
        lambda q, k, v: meta.attention(q, k, v, None if mask is None else meta.array(mask), **how),
        lambda q, k, v: tf.scaled_dot_product_attention(q, k, v, None if mask is None else to_torch(mask), **theirs),
        inputs,
    )


def bag(mode: Any, indices: Any = INDICES, offsets: Any = OFFSETS, weights: Any = None, **how: Any) -> Row:
    def ours(w: Any, *weights: Any) -> Any:
        offsets_array = None if offsets is None else meta.array(offsets)
        return meta.embedding_bag(w, meta.array(indices), offsets_array, mode, *weights, **how)

    def theirs(w: Any, *weights: Any) -> Any:
        torch_offsets = None if offsets is None else to_torch(offsets)
        extra = {"per_sample_weights": weights[0]} if weights else {}
        return tf.embedding_bag(to_torch(indices), w, torch_offsets, mode=mode, **how, **extra)

    return Row(ours, theirs, [floats(5, 3)] if weights is None else [floats(5, 3), weights])


def classified(target: Any, inputs: Any, labels: Any, **how: Any) -> Row:
    """Of logits: torch's gradient assumes log_softmax."""

    def ours(x: Any) -> Any:
        lengths = (labels, inputs) if isinstance(labels, int) else (meta.array(labels), meta.array(inputs))
        return meta.ctc_loss(meta.log_softmax(x), meta.array(target), lengths[1], lengths[0], **how)

    def theirs(x: Any) -> Any:
        lengths = torch.tensor(inputs), torch.tensor(labels)
        return tf.ctc_loss(tf.log_softmax(x, -1), to_torch(target), *lengths, **how)

    return Row(ours, theirs, [floats(6, 3, 4) if isinstance(labels, list) else floats(6, 4)])


ROWS: dict[str, Row] = {
    "attention": attended(inputs=[floats(3, 8), floats(4, 5, 8), floats(1, 5, 6)]),
    "attention to allowed keys": attended(MASK),
    "attention with added numbers": attended(floats(4, 1, 5), scale=0.3),
    "attention of groups": attended(None, GROUPED, grouped=True, causal=True),
    "bag sum": bag("sum", weights=floats(6)),
    "bag mean": bag("mean", padding_idx=3),
    "bag max": bag("max", padding_idx=-5),
    "bags of one length": bag("sum", np.array([[1, 4], [0, 1]]), None),
    "bags with an end": bag("mean", offsets=np.array([0, 2, 6]), include_last_offset=True),
    "ctc": classified(LABELS, [6, 5, 6], [3, 2, 3]),
    "ctc of joined targets": classified(LABELS.ravel()[:5], [6, 6, 4], [3, 0, 2], reduction="none", blank=0),
    "ctc of a sequence": classified(np.array([1, 3]), 6, 2, reduction="sum", blank=2),
    "ctc that does not fit": classified(LABELS, [6, 3, 2], [3, 3, 3], reduction="none", zero_infinity=True),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients(name: str) -> None:
    assert_agrees(ROWS[name])


def test_targets_that_do_not_fit_have_infinite_loss() -> None:
    x = meta.log_softmax(meta.array(floats(2, 1, 4)))
    assert meta.ctc_loss(x, meta.array(np.array([[1, 1]])), [2], [2]).item() == math.inf


def test_labels_that_are_no_classes_are_refused() -> None:
    x = meta.log_softmax(meta.array(floats(3, 1, 4)))
    with pytest.raises(PositionError, match="4"):
        meta.ctc_loss(x, meta.array(np.array([[1, 4]])), [3], [2])
    assert math.isfinite(meta.ctc_loss(x, meta.array(np.array([[1, 4]])), [3], [1]).item())


def test_the_gradient_of_ctc_agrees_with_torch() -> None:
    x = np.log(np.full((5, 2, 3), 1 / 3, np.float32))
    ours, theirs = meta.array(x), to_torch(x).requires_grad_()
    ours.requires_grad = True
    target = np.array([[1, 2], [2, 2]])
    meta.ctc_loss(ours, meta.array(target), [5, 4], [2, 1]).backward()
    tf.ctc_loss(theirs, to_torch(target), (5, 4), (2, 1)).backward()
    check(ours.grad, theirs.grad)


def test_heads() -> None:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(6, 2, add_bias_kv=True, add_zero_attn=True)
    x, hidden = torch.randn(3, 2, 6), torch.tensor([[False, True, False], [False, False, True]])
    mask = torch.randn(4, 3, 3)
    expected = layer(x, x, x, key_padding_mask=hidden.float(), attn_mask=mask)
    arrays = (layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias)
    query, *parameters = (meta.array(t.detach().numpy()) for t in (x, *arrays))
    assert layer.bias_k is not None
    assert layer.bias_v is not None
    bias_k, bias_v = (meta.array(t.detach().numpy()) for t in (layer.bias_k, layer.bias_v))
    y, weights = meta.multi_head_attention(
        query, query, query, 2, *parameters, mask=meta.array(mask.numpy()),
        key_padding_mask=meta.array(hidden.float().numpy()), bias_k=bias_k, bias_v=bias_v, add_zero=True,
        need_weights=True,
    )  # fmt: skip
    check(y, expected[0].detach())
    check(weights, expected[1].detach())
    single = meta.multi_head_attention(query[:, 0], query[:, 0], query[:, 0], 2, *parameters, causal=True)
    check(single, meta.multi_head_attention(query, query, query, 2, *parameters, causal=True).numpy()[:, 0])


@pytest.mark.parametrize("how", [{}, {"attn_mask": MASK}, {"is_causal": True, "scale": 0.3}, {"enable_gqa": True}])
def test_torch_arguments(how: dict[str, Any]) -> None:
    inputs = GROUPED if "enable_gqa" in how else QKV
    ours, theirs = ({k: of(v) if k == "attn_mask" else v for k, v in how.items()} for of in (meta.array, to_torch))
    y = meta.scaled_dot_product_attention(*map(meta.array, inputs), **ours)
    check(y, tf.scaled_dot_product_attention(*map(to_torch, inputs), **theirs))


def test_dropout_draws_from_the_default_generator() -> None:
    q = meta.ones((1, 4, 64))
    meta.random.seed(0)
    first, other = (meta.scaled_dot_product_attention(q, q, q, dropout_p=0.5).numpy() for _ in range(2))
    meta.random.seed(0)
    np.testing.assert_array_equal(meta.scaled_dot_product_attention(q, q, q, dropout_p=0.5).numpy(), first)
    assert (first != other).any()


@pytest.mark.parametrize("how", [((True,), {}), ((), {"causal": True}), ((True, 0.3), {}), ((False,), {"scale": 0.3})])
def test_the_former_call_returns_the_pair_and_warns(how: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    args, kwargs = how
    with pytest.warns(DeprecationWarning, match=r"are now meta\.attention_with_lse; with is_causal="):
        pair = meta.scaled_dot_product_attention(*map(meta.array, QKV), *args, **kwargs)
    for result, expected in zip(pair, meta.attention_with_lse(*map(meta.array, QKV), *args, **kwargs), strict=True):
        check(result, expected)


def test_a_program_attends() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return meta.attention(q, k, v, meta.array(MASK), causal=True)

    arrays = [meta.array(h) for h in QKV]
    check(vm.compile(meta.trace(attend))(*arrays), attend(*arrays).numpy())


def test_rows_of_a_largest_norm() -> None:
    table = floats(4, 3)
    ours = meta.embedding_renorm(meta.array(table), meta.array([1, 1, 3]), 0.4, 1.0).numpy()
    theirs = to_torch(table.copy())
    tf.embedding(torch.tensor([1, 1, 3]), theirs, max_norm=0.4, norm_type=1.0)
    check(ours, theirs)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_dropout_of_channels(rank: int) -> None:
    x, key = meta.ones((4, 8, *(2,) * rank)), meta.random.next_key()
    drop: Callable[..., Any] = getattr(meta, f"dropout{rank}d")
    y = drop(x, key, 0.5).numpy().reshape(4, 8, -1)
    assert set(np.unique(y)) == {0.0, 2.0}
    assert (y == y[:, :, :1]).all()
    if rank != 2:
        single = drop(x[0], key, 0.5).numpy().reshape(8, -1)
        assert (single == single[:, :1]).all()


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    meta.random.seed(0)
    x = meta.random.normal((200, 200))
    y = meta.alpha_dropout(x, meta.random.next_key(), 0.3).numpy()
    assert abs(y.mean()) < 0.02
    assert abs(y.var() - 1) < 0.02
    channels = meta.feature_alpha_dropout(meta.zeros((4, 6, 5)), meta.random.next_key(), 0.5).numpy()
    assert (channels == channels[:, :, :1]).all()
    assert meta.alpha_dropout(x, meta.random.next_key(), 1.0).numpy().any() == np.False_


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: meta.attention(x, x, x, dropout=0.5), r"dropout is 0.5, key is None; expected a key; pass key="),
        (lambda x: meta.attention(x, x[:2], x, grouped=True), r"'q' has shape \(3, 4, 4\), keys or values \(2, 4, 4\)"),
        (lambda x: meta.multi_head_attention(x, x, x, 3, x[0], None, x[0], None), r"heads is 3, features are 4"),
        (lambda x: meta.multi_head_attention(x, x, x, 2, x[0], None, x[0], None, dropout=0.5), r"dropout is 0.5, seed"),
        (
            lambda x: meta.embedding_renorm(x, meta.array([1]), 1.0),
            r"\[embedding_renorm\] 'weight' has shape \(3, 4, 4",
        ),
        (
            lambda x: meta.embedding_bag(x[0], meta.array([1])),
            r"indices are int64 of shape \(1,\), offsets None; expec",
        ),
        (lambda x: meta.embedding_bag(x, meta.array([[1]])), r"'weight' has shape \(3, 4, 4\); expected \(rows, feat"),
        (
            lambda x: meta.embedding_bag(x[0], meta.array([[1]]), mode="min"),
            r"mode is 'min'; expected \"sum\", \"mean\"",
        ),
        (lambda x: meta.embedding_bag(x[0], meta.array([1]), x[0, 0]), r"offsets are float32 of shape \(4,\)"),
        (lambda x: meta.embedding_bag(x[0], meta.array([[1]]), padding_idx=4), r"padding_idx is 4; expected -4 to 3"),
        (
            lambda x: meta.embedding_bag(x[0], meta.array([[1]]), None, "max", x[0, :1, :1]),
            r"with mode 'max'; expected",
        ),
        (
            lambda x: meta.embedding_bag(x[0], meta.array([[1]]), None, "sum", x[0]),
            r"have shape \(4, 4\), indices \(1,",
        ),
        (
            lambda x: meta.dropout1d(x[0, 0], meta.random.next_key()),
            r"\[dropout1d\] 'x' has shape \(4,\); expected rank 2",
        ),
        (lambda x: meta.alpha_dropout(x, meta.random.next_key(), 2), r"\[alpha_dropout\] p is 2; expected a probabil"),
        (
            lambda x: meta.feature_alpha_dropout(x[0, 0], meta.random.next_key()),
            r"'x' has shape \(4,\); expected \(n, c",
        ),
        (
            lambda x: meta.ctc_loss(x, meta.array(classes(4, 4, 2)), [4] * 4, [2] * 4, 9),
            r"blank is 9; expected 0 to 3, a class",
        ),
        (lambda x: meta.ctc_loss(x, x, [4] * 4, [2] * 4), r"target is float32 of shape \(3, 4, 4\)"),
        (
            lambda x: meta.ctc_loss(x, meta.array(classes(4, 4, 2)), [4], [2] * 4),
            r"lengths are int64 .*; expected 4 int",
        ),
        (lambda x: meta.ctc_loss(x[:0], meta.array(LABELS), [4] * 4, [2] * 4), r"x is float32 of shape \(0, 4, 4\)"),
    ],
)
def test_wrong_arguments(call: Callable[[Any], Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        call(meta.ones((3, 4, 4)))


def test_heads_that_do_not_broadcast() -> None:
    with pytest.raises(TypeInferenceError, match=r"\[attention\] shapes \(2,\), \(3,\) and \(3,\)|do not broadcast"):
        meta.attention(meta.ones((2, 4, 4)), meta.ones((3, 4, 4)), meta.ones((3, 4, 4)))


def test_lengths_share_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only lengths that are divided into register tiles have kernels of their own."""
    built: list[str] = []
    build = kernels._load_or_build
    monkeypatch.setattr(kernels, "_load_or_build", lambda spec: built.append(spec.name) or build(spec))
    for batch, queries, keys in ((2, 3, 3), (3, 5, 9), (4, 6, 11), (2, 2, 13)):
        hosts = [floats(batch, 2, n, 12) for n in (queries, keys, keys)]
        arrays = [meta.array(x) for x in hosts]
        tensors = [to_torch(x).requires_grad_() for x in hosts]
        for x in arrays:
            x.requires_grad = True
        y = meta.attention(*arrays)
        expected = tf.scaled_dot_product_attention(*tensors)
        check(y.detach(), expected.detach())
        y.sum().backward()
        expected.sum().backward()
        for x, t in zip(arrays, tensors, strict=True):
            check(x.grad, t.grad)
    attention = [name for name in built if "attention" in name]
    assert len(attention) == len(set(attention))
