"""Random checkpoints of tiny models, written by transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip(
    "transformers", reason="compares with transformers: pip install 'meta-tvm[huggingface]'"
)

SIZES: Mapping[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 0, "eos_token_id": None,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
CONFIGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama_llama3": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True, "head_dim": 16}),
    "llama_linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "mistral": ("Mistral", {"sliding_window": 9, "head_dim": 8}),
    "qwen2": ("Qwen2", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "gemma": ("Gemma", {"head_dim": 12, "num_key_value_heads": 1}),
    "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 512}),
}


def write(folder: Path, name: str, **saving: Any) -> Any:
    """Write a checkpoint; returns transformers' model of it."""
    family, options = CONFIGS[name]
    sizes = {k: SIZES[k] for k in ("vocab_size", "bos_token_id", "eos_token_id")} if family == "GPT2" else SIZES
    config = getattr(transformers, f"{family}Config")(**{**sizes, **options})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for key, parameter in model.named_parameters():  # large, so that attention is far from a plain mean
        is_scale = parameter.ndim == 1 and key.endswith("weight") and family != "Gemma"  # Gemma's are around 0
        torch.nn.init.normal_(parameter, 1.0 if is_scale else 0.0, 0.2 if parameter.ndim == 1 else 0.3)
    model.save_pretrained(folder, **saving)
    return model
