"""Layers and stacks of transformers (A. Vaswani et al., "Attention Is All You Need", 2017)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.errors import ArgumentError
from meta.model.model import Model
from meta.model.names import Alias
from meta.nn.attention import MultiHeadAttention, only_mask
from meta.nn.container import ModuleList
from meta.nn.dropout import Dropout
from meta.nn.linear import Linear
from meta.nn.norm import LayerNorm

Activation = str | Callable[[Any], Any]


class _TransformerLayer(Model):
    """Blocks with residual connections: x + block(norm(x)) if norm_first, else norm(x + block(x))."""

    _input_size = ("d_model", -1)
    linear1: Any
    linear2: Any
    norm_first: bool

    def build(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.0,
        activation: Activation = "gelu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = True,
        norm_first: bool = True,
        bias: bool = True,
    ) -> None:
        if isinstance(activation, str) and activation not in ("relu", "gelu"):
            expected = '"relu", "gelu" or a function'
            raise ArgumentError(type(self).__name__, f"activation is {activation!r}", expected)
        self.activation = activation
        self.norm_first = norm_first
        self.dropout = Dropout(dropout) if dropout else None
        self._create(
            lambda: MultiHeadAttention(d_model, nhead, dropout, bias, batch_first=batch_first),
            lambda: LayerNorm(d_model, layer_norm_eps, bias=bias),
            lambda: (Linear(d_model, dim_feedforward, bias), Linear(dim_feedforward, d_model, bias)),
        )

    def _create(
        self,
        attention: Callable[[], MultiHeadAttention],
        norm: Callable[[], LayerNorm],
        linear: Callable[[], tuple[Linear, Linear]],
    ) -> None:
        """Create the parts of the blocks, by functions that return a new one each."""
        raise NotImplementedError

    def _residual(self, x: Tensor, norm: Callable[[Any], Any], block: Callable[[Any], Any]) -> Tensor:
        return x + self._drop(block(norm(x))) if self.norm_first else norm(x + self._drop(block(x)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        activate = {"relu": meta.relu, "gelu": meta.gelu}[self.activation] if isinstance(self.activation, str) else None
        hidden = self.linear1(x)
        return self.linear2(self._drop((activate or self.activation)(hidden)))  # type: ignore[operator]

    def _drop(self, x: Tensor) -> Tensor:
        return x if self.dropout is None else self.dropout(x)


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention, then a network of two linear layers, each with a residual connection, over (batch, length,
    d_model).

    dropout: probability for attention weights, the hidden layer and both blocks.  activation: "relu", "gelu" or a
        function.
    norm_first: whether layer norm precedes each block, instead of following its sum.
    batch_first: False for tensors of shape (length, batch, d_model).
    The defaults of torch are dropout=0.1, activation="relu", batch_first=False and norm_first=False. Raises
    ArgumentError for an unknown activation and unless nhead divides d_model."""

    self_attn, linear1, linear2 = Alias("attention"), Alias("first"), Alias("last")

    def _create(self, attention: Any, norm: Any, linear: Any) -> None:
        self.attention = attention()
        self.norm1, self.norm2 = norm(), norm()
        self.first, self.last = linear()

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Masks are the same as in MultiHeadAttention. src_mask, src_key_padding_mask: torch's names of the same
        arguments.
        Raises ArgumentError for an argument that is passed by both names."""
        mask = only_mask("TransformerEncoderLayer", mask=mask, src_mask=src_mask)
        padding = {"key_padding_mask": key_padding_mask, "src_key_padding_mask": src_key_padding_mask}
        key_padding_mask = only_mask("TransformerEncoderLayer", **padding)

        def attend(x: Tensor) -> Tensor:
            return self.attention(x, key_padding_mask=key_padding_mask, mask=mask, is_causal=is_causal)

        return self._residual(self._residual(x, self.norm1, attend), self.norm2, self._feed_forward)


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to `memory`, the result of an encoder, then a network of two linear layers, each with a
    residual connection. Arguments, defaults and errors are the same as for TransformerEncoderLayer."""

    def _create(self, attention: Any, norm: Any, linear: Any) -> None:
        self.self_attn, self.multihead_attn = attention(), attention()
        self.linear1, self.linear2 = linear()
        self.norm1, self.norm2, self.norm3 = norm(), norm(), norm()

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The masks `tgt_...` are for self-attention, the masks `memory_...` for attention to memory; see
        MultiHeadAttention."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, key_padding_mask=tgt_key_padding_mask, mask=tgt_mask, is_causal=tgt_is_causal)

        def attend_to_memory(x: Tensor) -> Tensor:
            return self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, mask=memory_mask, is_causal=memory_is_causal
            )

        x = self._residual(self._residual(x, self.norm1, attend), self.norm2, attend_to_memory)
        return self._residual(x, self.norm3, self._feed_forward)


class TransformerEncoder(Model):
    """num_layers copies of an encoder layer in sequence, then `norm`, unless it is None. The copies start with equal
    values, as in torch."""

    def build(self, encoder_layer: Model, num_layers: int, norm: Model | None = None) -> None:
        self.layers = _copies(encoder_layer, num_layers)
        self.norm = norm

    def forward(
        self, x: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Masks are the same as in MultiHeadAttention."""
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, is_causal)
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Model):
    """num_layers copies of a decoder layer in sequence, then `norm`, unless it is None. The copies start with equal
    values, as in torch."""

    def build(self, decoder_layer: Model, num_layers: int, norm: Model | None = None) -> None:
        self.layers = _copies(decoder_layer, num_layers)
        self.norm = norm

    def forward(self, x: Tensor, memory: Tensor, **masks: Tensor | None) -> Tensor:
        """masks: the keyword arguments of TransformerDecoderLayer."""
        for layer in self.layers:
            x = layer(x, memory, **masks)
        return x if self.norm is None else self.norm(x)


def _copies(layer: Model, count: int) -> ModuleList:
    return ModuleList(copy.deepcopy(layer) for _ in range(count))
