"""Attention and transformers equal torch's with the same values, with all masks, in both modes and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.errors import ArgumentError

torch = pytest.importorskip("torch", reason="the layers are compared with torch's")

from tests.python.nn.pairs import (  # noqa: E402  # torch is needed first
    assert_close,
    assert_equal_gradients,
    assert_equal_input_gradients,
    assert_equal_results,
    backward,
)

B, L, S, E, H = 2, 4, 5, 8, 2
RNG = np.random.default_rng(0)
HIDDEN = np.triu(np.ones((L, L), bool), 1)
ADDED = RNG.standard_normal((L, S)).astype(np.float32)
PADDED = np.array([[False] * S, [False, False, True, False, True]])
BY_HEAD = RNG.standard_normal((B * H, L, S)).astype(np.float32)


def normal(*shape: int) -> Any:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)


def loaded(ours: Any, theirs: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.randn(p.shape) * 0.5)
    assert ours.load_torch_state_dict(theirs.state_dict()) == ([], [])
    return ours, theirs


def inputs(*hosts: Any) -> tuple[list[Any], list[Any]]:
    return [meta.array(x, requires_grad=True) for x in hosts], [torch.tensor(x, requires_grad=True) for x in hosts]


def compare(ours: Any, theirs: Any, hosts: Any, our_call: Any, their_call: Any) -> None:
    """Results and gradients in train mode, results and gradients of inputs in inference mode."""
    xs, ts = inputs(*hosts)
    y, t = our_call(ours, *xs), their_call(theirs, *ts)
    assert_equal_results(y, t)
    backward(y)
    backward(t)
    assert_equal_gradients(ours, theirs, xs, ts)
    xs, ts = inputs(*hosts)
    y, t = our_call(ours.infer_mode(), *xs), their_call(theirs.eval(), *ts)
    assert_equal_results(y, t)
    backward(y)
    backward(t)
    assert_equal_input_gradients(xs, ts)


def masks(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a call in meta and in torch."""
    causal = np.triu(np.ones((L, S), bool), 1)
    return {
        "none": ({}, {}),
        "causal": ({"is_causal": True}, {"attn_mask": torch.tensor(causal)}),
        "hidden": ({"mask": meta.array(causal)}, {"attn_mask": torch.tensor(causal)}),
        "added": ({"mask": meta.array(ADDED)}, {"attn_mask": torch.tensor(ADDED)}),
        "by head": ({"mask": meta.array(BY_HEAD)}, {"attn_mask": torch.tensor(BY_HEAD)}),
        "padding": ({"key_padding_mask": meta.array(PADDED)}, {"key_padding_mask": torch.tensor(PADDED)}),
        "both": (
            {"is_causal": True, "key_padding_mask": meta.array(PADDED)},
            {"attn_mask": torch.tensor(causal), "key_padding_mask": torch.tensor(PADDED)},
        ),
    }[name]


@pytest.mark.parametrize("name", ["none", "causal", "hidden", "added", "by head", "padding", "both"])
def test_cross_attention(name: str) -> None:
    ours, theirs = loaded(nn.MultiHeadAttention(E, H), torch.nn.MultiheadAttention(E, H, batch_first=True))
    our_masks, their_masks = masks(name)
    compare(
        ours, theirs, (normal(B, L, E), normal(B, S, E), normal(B, S, E)),
        lambda m, *x: m(*x, **our_masks), lambda m, *x: m(*x, need_weights=False, **their_masks)[0],
    )  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"batch_first": False}])
def test_self_attention(options: dict[str, Any]) -> None:
    ours, theirs = loaded(nn.MultiHeadAttention(E, H, **options),
                          torch.nn.MultiheadAttention(E, H, **{"batch_first": True} | options))  # fmt: skip
    shape = (L, B, E) if options.get("batch_first") is False else (B, L, E)
    compare(ours, theirs, (normal(*shape),), lambda m, x: m(x), lambda m, x: m(x, x, x, need_weights=False)[0])


@pytest.mark.parametrize("average", [True, False])
def test_keys_and_values_of_other_sizes_and_weights(average: bool) -> None:
    ours, theirs = loaded(nn.MultiHeadAttention(E, H, kdim=3, vdim=6, batch_first=False),
                          torch.nn.MultiheadAttention(E, H, kdim=3, vdim=6))  # fmt: skip
    options = {"need_weights": True, "average_attn_weights": average}
    hosts = (normal(L, B, E), normal(S, B, 3), normal(S, B, 6))
    compare(ours, theirs, hosts, lambda m, *x: m(*x, **options), lambda m, *x: m(*x, **options))


def test_attention_runs_the_attention_operator_unless_a_mask_or_dropout_needs_the_weights() -> None:
    model, x = nn.MultiHeadAttention(E, H, dropout=0.5), meta.ones((B, L, E))
    assert "attention_with_lse" not in model.ir(x)
    model.infer_mode()
    assert "attention_with_lse" in model.ir(x, is_causal=True)
    assert "attention_with_lse" not in model.ir(x, mask=meta.zeros((L, L)))


def test_dropout_drops_attention_weights() -> None:
    meta.random.seed(0)
    model = nn.MultiHeadAttention(E, H, dropout=0.5)
    _, weights = model(meta.ones((8, 30, E)), need_weights=True, average_attn_weights=False)
    scaled = weights.detach().numpy() * 30
    assert set(np.unique(scaled.round(3))) == {0.0, 2.0}
    assert abs(scaled.mean() - 1) < 0.05


def test_a_query_whose_keys_are_all_hidden_has_finite_results_and_gradients() -> None:
    model, x = nn.MultiHeadAttention(E, H), meta.array(normal(B, L, E), requires_grad=True)
    y, weights = model(x, mask=meta.ones((L, L), "bool"), need_weights=True)
    np.testing.assert_allclose(weights.detach(), np.full((B, L, L), 1 / L), rtol=1e-6)
    y.sum().backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()).all()


LAYER: dict[str, Any] = {"dim_feedforward": 12, "dropout": 0.0}
VARIANTS: list[dict[str, Any]] = [
    {"norm_first": False, "activation": "relu"},
    {"norm_first": True, "activation": "gelu", "batch_first": False, "layer_norm_eps": 1e-3},
    {"norm_first": True, "activation": "relu", "bias": False},
]


def oriented(options: dict[str, Any], *shape: int) -> Any:
    x = normal(*shape)
    return x if options.get("batch_first", True) else np.swapaxes(x, 0, 1).copy()


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("masked", [False, True])
def test_encoder_layers(options: dict[str, Any], masked: bool) -> None:
    torch_options = {**LAYER, "batch_first": True, **options}
    layer = torch.nn.TransformerEncoderLayer(E, H, **torch_options)
    ours, theirs = loaded(nn.TransformerEncoderLayer(E, H, **LAYER, **options), layer)
    padded = PADDED[:, :L]
    ours_by = (meta.array(HIDDEN), meta.array(padded)) if masked else ()
    theirs_by = (torch.tensor(HIDDEN), torch.tensor(padded)) if masked else ()
    compare(ours, theirs, (oriented(options, B, L, E),), lambda m, x: m(x, *ours_by), lambda m, x: m(x, *theirs_by))


@pytest.mark.parametrize("options", VARIANTS)
def test_decoder_layers(options: dict[str, Any]) -> None:
    torch_options = {**LAYER, "batch_first": True, **options}
    layer = torch.nn.TransformerDecoderLayer(E, H, **torch_options)
    ours, theirs = loaded(nn.TransformerDecoderLayer(E, H, **LAYER, **options), layer)
    ours_by = {"tgt_is_causal": True, "memory_key_padding_mask": meta.array(PADDED)}
    theirs_by = {"tgt_mask": torch.tensor(HIDDEN), "memory_key_padding_mask": torch.tensor(PADDED)}
    hosts = (oriented(options, B, L, E), oriented(options, B, S, E))
    compare(ours, theirs, hosts, lambda m, *x: m(*x, **ours_by), lambda m, *x: m(*x, **theirs_by))


def stacks() -> tuple[Any, Any]:
    """An encoder and a decoder of two layers with norms at the end, in meta and in torch."""

    class Seq2Seq(meta.Model):
        def build(self) -> None:
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, **LAYER), 2, nn.LayerNorm(E))
            self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(E, H, **LAYER), 2, nn.LayerNorm(E))

        def forward(self, source: Any, target: Any) -> Any:
            return self.decoder(target, self.encoder(source), tgt_is_causal=True)

    class TorchSeq2Seq(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            options = {**LAYER, "activation": "gelu", "batch_first": True, "norm_first": True}
            encoder = torch.nn.TransformerEncoderLayer(E, H, **options)
            decoder = torch.nn.TransformerDecoderLayer(E, H, **options)
            self.encoder = torch.nn.TransformerEncoder(encoder, 2, torch.nn.LayerNorm(E), enable_nested_tensor=False)
            self.decoder = torch.nn.TransformerDecoder(decoder, 2, torch.nn.LayerNorm(E))

        def forward(self, source: Any, target: Any) -> Any:
            return self.decoder(target, self.encoder(source), tgt_mask=torch.tensor(HIDDEN))

    return loaded(Seq2Seq(), TorchSeq2Seq())


def test_stacks() -> None:
    ours, theirs = stacks()
    compare(ours, theirs, (normal(B, S, E), normal(B, L, E)), lambda m, *x: m(*x), lambda m, *x: m(*x))


def test_compiled_stacks() -> None:
    ours, theirs = stacks()
    xs, ts = inputs(normal(B, S, E), normal(B, L, E))
    y, t = meta.vm.compile(ours)(*xs), theirs(*ts)
    assert_close(y, t)
    backward(y)
    backward(t)
    assert_equal_gradients(ours, theirs, xs, ts)


def test_layers_of_a_stack_share_no_values() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, **LAYER), 2)
    first, second = (layer.first.w for layer in encoder.layers)
    np.testing.assert_array_equal(first.detach(), second.detach())
    nn.init.zeros_(first)
    assert second.detach().numpy().any()


def test_masks_also_have_the_names_of_torch() -> None:
    layer, x = nn.TransformerEncoderLayer(E, H), meta.array(normal(B, L, E))
    hidden, padded = meta.array(HIDDEN), meta.array(PADDED[:, :L])
    expected = layer(x, mask=hidden, key_padding_mask=padded)
    np.testing.assert_array_equal(layer(x, src_mask=hidden, src_key_padding_mask=padded).detach(), expected.detach())
    attention = layer.attention
    expected = attention(x, mask=hidden).detach()
    np.testing.assert_array_equal(attention(x, attn_mask=hidden).detach(), expected)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda: nn.TransformerEncoderLayer(8, 2)(meta.ones((1, 2, 8)), mask=HIDDEN, src_mask=HIDDEN),
         r"\[TransformerEncoderLayer\] mask and src_mask are passed, which are one argument; expected one of mask"),
        (lambda: nn.TransformerEncoderLayer(8, 2, activation="rel"),
         r"\[TransformerEncoderLayer\] activation is 'rel'; expected \"relu\", \"gelu\" or a function"),
        (lambda: nn.MultiHeadAttention(8, 2)(meta.ones((1, 2, 8)), meta.ones((2, 2))),
         r"\[MultiHeadAttention\] one of key and value is None; expected both or neither; a mask is passed as mask="),
    ],
)  # fmt: skip
def test_refuses(use: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        use()
