"""What decoders are made of: linear layers without initial values, rotary positions, and attention to a cache."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import meta
from meta import nn
from meta._generated.methods import Tensor
from meta.eager.ndarray import NDArray
from meta.errors import NotSupportedError
from meta.model.model import Model
from meta.model.names import Alias


def unwritten(*shape: int) -> NDArray:
    """Zeros that take no memory until they are written, for parameters that a checkpoint replaces."""
    return meta.from_numpy(np.zeros(shape, np.float32))


class PretrainedModel(Model):
    """A model of a folder.

    config: the entries of config.json.  lora_targets: the projections that have adapters by default."""

    config: dict[str, Any]
    lora_targets: ClassVar[Sequence[str]]
    lora_task: ClassVar[str | None] = None
    """What peft calls the task of the model, None for features."""

    @property
    def dtype(self) -> str:
        """The dtype of norms, and of weights that are not quantised."""
        return self.parameters()[-1].dtype

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Tokens that continue a text. Raises NotSupportedError: decoders define it."""
        raise NotSupportedError("generate", f"{type(self).__name__} has no decoder", "a decoder, such as Llama")


class Projection(nn.Linear):
    """y = x @ w^T + b, as nn.Linear; w and b are zeros until they are loaded."""

    def build(self, in_features: int, out_features: int, bias: bool = False) -> None:
        self.w = unwritten(out_features, in_features)
        self.b = unwritten(out_features) if bias else None


class TransposedProjection(Model):
    """x @ w + b, with w of shape (in, out): GPT-2 stores the transpose of a linear layer's."""

    weight, bias = Alias("w"), Alias("b")

    def build(self, in_features: int, out_features: int) -> None:
        self.w, self.b = unwritten(in_features, out_features), unwritten(out_features)

    def forward(self, x: Tensor) -> Tensor:
        return meta.matmul(x, self.w) + self.b


class TokenTable(Model):
    """Rows of a table, zeros until they are loaded."""

    weight = Alias("w")

    def build(self, count: int, size: int) -> None:
        self.w = unwritten(count, size)

    def forward(self, ids: Tensor) -> Tensor:
        return meta.embedding(self.w, ids)


class PositionTable(TokenTable):
    """A row for each position."""


class OffsetRMSNorm(Model):
    """x / rms(x) * (offset + w); Gemma stores w around an offset of 1."""

    weight = Alias("w")

    def build(self, size: int, eps: float, offset: float = 0.0) -> None:
        self.w, self.eps, self.offset = meta.ones((size,)), eps, offset

    def forward(self, x: Tensor) -> Tensor:
        if not self.offset:
            return meta.rms_norm(x, self.w, (-1,), self.eps)
        scaled = meta.rms_norm(x.cast("float32"), self.w.cast("float32") + self.offset, (-1,), self.eps)
        return scaled.cast(x.dtype)


def _gelu_tanh(x: Tensor) -> Tensor:
    return meta.gelu(x, approximate="tanh")


ACTIVATIONS: Mapping[str, Any] = {
    "gelu": meta.gelu,
    "gelu_fast": _gelu_tanh,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": meta.relu,
    "silu": meta.silu,
    "swish": meta.silu,
    "tanh": meta.tanh,
}
"""By the names that config.json has for them."""


class GatedMLP(Model):
    """down(activation(gate(x)) * up(x))."""

    def build(self, width: int, hidden: int, activation: str, bias: bool = False) -> None:
        self.gate_proj, self.up_proj = Projection(width, hidden, bias), Projection(width, hidden, bias)
        self.down_proj = Projection(hidden, width, bias)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


# --- rotary positions (J. Su et al., "RoFormer", 2021) ----------------------------------------------------------------


def rope_frequencies(size: int, parameters: Mapping[str, Any]) -> npt.NDArray[np.float32]:
    """The angle that each pair of `size` features turns by from one position to the next.

    parameters: rope_theta, and rope_type with its numbers: "default"; "linear", frequencies / factor; "llama3" (A.
        Dubey et al., "The Llama 3 Herd of Models", 2024), which divides low frequencies, keeps high ones and
        interpolates between. Raises NotSupportedError for other types."""
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    frequencies = parameters["rope_theta"] ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    if kind == "linear":
        frequencies = frequencies / parameters["factor"]
    elif kind == "llama3":
        low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
        turns = frequencies * parameters["original_max_position_embeddings"] / (2 * math.pi)
        kept = np.minimum(np.maximum((turns - low) / (high - low), 0), 1)
        frequencies = frequencies * (kept + (1 - kept) / parameters["factor"])
    elif kind != "default":
        raise NotSupportedError("huggingface", f"rope_type is {kind!r:.60}", "default, linear or llama3")
    return frequencies.astype(np.float32)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x, (rows, heads, length, features), with feature i turned against feature i + features // 2."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return meta.concatenate([first * cos - second * sin, second * cos + first * sin], -1).cast(x.dtype)


# --- attention to what the cache holds --------------------------------------------------------------------------------


class AttentionContext:
    """What the layers of one call share: positions, masks and the cache.

    Token i of a call is at slot `start + i` of every row; a row whose prompt is shorter than others begins at slot
    `pads[row]`. Each layer has an array of keys and one of values, (rows, heads, capacity, features), which the call
    writes in place. Without them tokens attend to one another only."""

    def __init__(
        self, ids: Tensor, start: Tensor | None = None, pads: Tensor | None = None, cache: Sequence[Tensor] = ()
    ) -> None:
        """ids: (rows, length).  start: (1,) or None for 0.  pads: (rows,) or None for 0."""
        self._cache, self._pads = cache, pads
        steps = meta.arange(0, ids.shape[1], dtype="int64", device=ids.device)
        self.slots = steps if start is None else start + steps
        slots = meta.expand_dims(self.slots, 0)
        self.positions = slots if pads is None else meta.maximum(slots - meta.expand_dims(pads, 1), 0)
        """The position of each token in its text, (1 or rows, length); padding has position 0."""
        self._masks: dict[int | None, Tensor] = {}
        self._turns: dict[int, tuple[Tensor, Tensor]] = {}

    def turns(self, frequencies: npt.NDArray[np.float32]) -> tuple[Tensor, Tensor]:
        """The cosines and sines of the positions' angles, (1 or rows, 1, length, features / 2)."""
        if id(frequencies) not in self._turns:
            speeds = meta.array(frequencies, device=self.slots.device)
            angles = meta.expand_dims(meta.expand_dims(self.positions, 1), 3).cast("float32") * speeds
            self._turns[id(frequencies)] = meta.cos(angles), meta.sin(angles)
        return self._turns[id(frequencies)]

    def attention(self, layer: int, q: Tensor, k: Tensor, v: Tensor, window: int | None = None) -> Tensor:
        """The attention of queries to keys and values of this call and of earlier ones, of the shape of q.

        q, k, v: (rows, heads, length, features); neighbouring heads of q share heads of k and v.
        window: the most slots that a query sees, its own included."""
        if self._cache:
            keys, values = self._cache[2 * layer : 2 * layer + 2]
            keys.update(meta.index_copy(keys, 2, self.slots, k))
            values.update(meta.index_copy(values, 2, self.slots, v))
            k, v = keys, values
        rows, heads, length, size = q.shape
        shared, count = k.shape[1], k.shape[2]
        groups = heads // shared
        # Queries of one group are rows of one product, so that keys and values are not repeated.
        scores = meta.matmul(q.reshape((rows, shared, groups * length, size)), k, transpose_b=True)
        scores = scores.reshape((rows, shared, groups, length, count)).cast("float32") * (1 / math.sqrt(size))
        # Finite, as padding may see nothing: its result is not read, but must not become NaN.
        weights = meta.softmax(meta.where(self._mask(count, window), scores, -1e30)).cast(v.dtype)
        mixed = meta.matmul(weights.reshape((rows, shared, groups * length, count)), v)
        return mixed.reshape((rows, heads, length, size))

    def _mask(self, count: Any, window: int | None) -> Tensor:
        """The slots that each query sees, (1 or rows, 1, 1, length, count)."""
        if window not in self._masks:
            keys = meta.expand_dims(meta.arange(0, count, dtype="int64", device=self.slots.device), 0)
            queries = meta.expand_dims(self.slots, 1)
            seen = keys <= queries
            if window is not None:
                seen = meta.logical_and(seen, keys > queries - window)
            seen = seen.reshape((1, 1, 1, *seen.shape))
            if self._pads is not None:
                pads = self._pads.reshape((-1, 1, 1, 1, 1))
                seen = meta.logical_and(seen, keys.reshape((1, 1, 1, 1, count)) >= pads)
            self._masks[window] = seen
        return self._masks[window]


def by_heads(x: Tensor, size: int) -> Tensor:
    """(rows, length, heads * size) as (rows, heads, length, size)."""
    rows, length, width = x.shape
    return x.reshape((rows, length, width // size, size)).transpose((0, 2, 1, 3))


def joined_heads(x: Tensor) -> Tensor:
    """The inverse of `by_heads`."""
    rows, heads, length, size = x.shape
    return x.transpose((0, 2, 1, 3)).reshape((rows, length, heads * size))
