"""BERT: features against transformers', padding and segments, heads that are not read, saving, rounding, adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError, NotSupportedError
from meta.frontend import huggingface

from .checkpoints import torch, transformers

IDS = np.array([[3, 14, 15, 92, 65, 35], [8, 9, 7, 0, 0, 0]])
MASK = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1], [0, 1, 1, 0, 0, 0]])


@pytest.fixture(scope="module", params=["BertModel", "BertForMaskedLM"])
def written(request: Any, tmp_path_factory: Any) -> tuple[Path, Any]:
    """A folder, and transformers' encoder."""
    config = transformers.BertConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    model = getattr(transformers, request.param)(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    return folder, getattr(model, "bert", model)


def features(model: Any, *args: Any) -> Any:
    return model(*(None if a is None else meta.array(a) for a in args)).numpy()


def test_features_equal_transformers(written: tuple[Path, Any], tmp_path: Path) -> None:
    folder, theirs = written
    bert = huggingface.load(folder)
    with torch.no_grad():
        plain = theirs(torch.tensor(IDS)).last_hidden_state.numpy()
        options = {"attention_mask": torch.tensor(MASK), "token_type_ids": torch.tensor(SEGMENTS)}
        padded = theirs(torch.tensor(IDS), **options).last_hidden_state.numpy()
    np.testing.assert_allclose(features(bert, IDS), plain, atol=1e-4)
    np.testing.assert_allclose(features(bert, IDS, MASK, SEGMENTS)[MASK == 1], padded[MASK == 1], atol=1e-4)
    np.testing.assert_allclose(features(bert, IDS[1:, :3], None, SEGMENTS[1:, :3])[0], padded[1, :3], atol=1e-4)
    compiled = meta.vm.compile(lambda ids, mask: bert(ids, mask), dynamic={"ids": {1: "n"}, "mask": {1: "n"}})
    np.testing.assert_allclose(features(compiled, IDS, MASK), features(bert, IDS, MASK), atol=1e-5)
    assert huggingface.examine(folder).problems == ()
    huggingface.save(tmp_path, bert)
    np.testing.assert_array_equal(features(huggingface.load(tmp_path), IDS), features(bert, IDS))
    rounded = features(huggingface.load(folder, weights="int8"), IDS)
    assert 0 < np.abs(rounded - plain).max() < 0.2
    assert sum(x.requires_grad for x in bert.lora(rank=2).parameters()) == 8
    with pytest.raises(NotSupportedError, match="Bert has no decoder"):
        bert.generate([3, 14], 2)
    with pytest.raises(ArgumentError, match="a text of 65 tokens; expected at most 64"):
        bert(meta.zeros((1, 65), "int64"))
