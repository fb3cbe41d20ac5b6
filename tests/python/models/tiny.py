"""A tiny Llama with random weights, its config.json, and what it should do."""

from __future__ import annotations

from typing import Any

import numpy as np

import meta
from meta.models import Llama

ENTRIES = {
    "model_type": "llama", "vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 600, "tie_word_embeddings": True,
}  # fmt: skip


def tiny_llama(**entries: Any) -> Llama:
    """A model whose tokens vary."""
    lm = Llama({**ENTRIES, **entries})
    rng = np.random.default_rng(0)
    with meta.no_grad():
        for x in lm.parameters():
            x.update(meta.array(rng.normal(0, 0.4, x.shape).astype(np.float32)))
    return lm.infer_mode()


def programs(lm: Any) -> int:
    """How many programs a model has compiled."""
    executors = [executor for pair in vars(lm)["_programs"].values() for executor in pair]
    return sum(len(executor._programs) for executor in executors)


def uncached(lm: Any, ids: list[int], count: int) -> list[int]:
    """The most likely continuation, from the scores of the whole text at each step."""
    for _ in range(count):
        ids = [*ids, int(lm(meta.array([ids])).numpy()[0, -1].argmax())]
    return ids[-count:]
