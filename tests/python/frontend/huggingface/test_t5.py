"""T5: scores and greedy tokens against transformers', saving, rounding, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError
from meta.frontend import huggingface

from .checkpoints import torch, transformers

SOURCE = [3, 14, 15, 92, 65, 35, 8, 9, 79, 32, 38, 46, 26, 43, 38, 32, 79, 50, 28, 84]


@pytest.fixture(scope="module", params=["relu", "gated-gelu"])
def written(request: Any, tmp_path_factory: Any) -> tuple[Path, Any]:
    """A folder, and transformers' model."""
    config = transformers.T5Config(
        vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0,
        relative_attention_num_buckets=8, relative_attention_max_distance=16, feed_forward_proj=request.param,
        tie_word_embeddings=request.param == "relu",
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.25)
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    return folder, model


def test_scores_and_tokens_equal_transformers(written: tuple[Path, Any], tmp_path: Path) -> None:
    folder, theirs = written
    t5 = huggingface.load(folder)
    answer = [0, *SOURCE[::-1]]
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor([SOURCE]), decoder_input_ids=torch.tensor([answer])).logits.numpy()
        tokens = [0]
        for _ in range(20):
            options = {"input_ids": torch.tensor([SOURCE]), "decoder_input_ids": torch.tensor([tokens])}
            tokens.append(int(theirs(**options).logits[0, -1].argmax()))
    np.testing.assert_allclose(t5(meta.array([SOURCE]), meta.array([answer])).numpy(), expected, rtol=1e-4, atol=1e-4)
    assert t5.generate(SOURCE, 20) == tokens[1:]
    assert t5.generate(SOURCE, 3, compiled=False) == tokens[1:4]
    assert t5.generate(SOURCE, 20, stop=tokens[3]) == tokens[1 : 2 + tokens[1:].index(tokens[3])]
    huggingface.save(tmp_path, t5)
    assert huggingface.load(tmp_path).generate(SOURCE, 5, compiled=False) == tokens[1:6]
    assert huggingface.examine(folder).problems == ()
    rounded = huggingface.load(folder, weights="int8")
    floats = dict(t5.named_models())
    for name, layer in rounded.named_models():  # the same weights as floats
        if hasattr(layer, "scale") and name in floats and hasattr(layer, "w"):
            floats[name].w.update(meta.dequantize_weight(layer.w, layer.scale))
    pair = meta.array([SOURCE]), meta.array([answer])
    # Sums are in another order: errors are compared with the largest score.
    np.testing.assert_allclose(rounded(*pair).numpy(), t5(*pair).numpy(), rtol=0, atol=1e-4 * np.abs(expected).max())
    for ids, count in (([], 3), ([97], 3), ([1], 0)):
        with pytest.raises(ArgumentError, match="generate"):
            t5.generate(ids, count)
