"""Language models from checkpoints that transformers wrote: scores and tokens equal transformers'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.frontend import huggingface
from meta.model.names import torch_arrays
from meta.models.blocks import AttentionContext

from .checkpoints import CONFIGS, torch, write

STEPS = 64
PROMPT = 7


def their_scores(model: Any, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        return model(torch.tensor(ids)).logits.numpy()


def cached_scores(lm: Any, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The scores behind the prompt, and behind each of the other tokens, which are appended to a cache."""
    layers, heads, size = lm.cache_shape
    cache = [meta.zeros((len(ids), heads, ids.shape[1], size)) for _ in range(2 * layers)]
    scores = []
    for start, stop in [(0, PROMPT), *((i, i + 1) for i in range(PROMPT, ids.shape[1]))]:
        piece = meta.array(ids[:, start:stop])
        scores.append(
            lm.lm_head(lm.hidden(piece, AttentionContext(piece, meta.array([start]), None, cache)))[:, -1].numpy()
        )
    return np.stack(scores, 1)


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_and_tokens(name: str, tmp_path: Path) -> None:
    theirs = write(tmp_path, name)
    assert huggingface.examine(tmp_path).supported
    lm = huggingface.load(tmp_path)
    ids = np.random.default_rng(1).integers(0, 97, (2, PROMPT + STEPS))
    expected = their_scores(theirs, ids)
    np.testing.assert_allclose(lm(meta.array(ids)).numpy(), expected, atol=1e-4)
    np.testing.assert_allclose(cached_scores(lm, ids), expected[:, PROMPT - 1 :], atol=1e-4)
    prompts = torch.tensor(ids[:, :PROMPT])
    tokens = theirs.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=STEPS, do_sample=False)
    assert lm.generate(ids[:, :PROMPT], STEPS) == tokens[:, PROMPT:].tolist()
    assert lm.generate(ids[:, :PROMPT], STEPS, compiled=False) == tokens[:, PROMPT:].tolist()


@pytest.mark.parametrize("name", ["llama_llama3", "gpt2"])
def test_saved_folders_are_read_by_both(name: str, tmp_path: Path) -> None:
    theirs = write(tmp_path / "theirs", name, max_shard_size="20KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 2
    lm = huggingface.load(tmp_path / "theirs")
    huggingface.save(tmp_path / "ours", lm)
    assert json.loads((tmp_path / "ours" / "config.json").read_text()) == dict(lm.config)
    again = huggingface.load(tmp_path / "ours")
    read = type(theirs).from_pretrained(tmp_path / "ours")
    for key, value in theirs.state_dict().items():
        assert torch.equal(read.state_dict()[key], value), key
        np.testing.assert_array_equal(again.torch_state_dict()[key].numpy(), value.numpy())


def test_a_checkpoint_without_head_and_its_cast(tmp_path: Path) -> None:
    theirs = write(tmp_path, "gpt2")
    theirs.transformer.save_pretrained(tmp_path)
    lm = huggingface.load(tmp_path, dtype="bfloat16")
    assert {x.dtype for x in lm.parameters()} == {"bfloat16"}
    expected = theirs.state_dict()["transformer.h.1.mlp.c_fc.weight"].bfloat16()
    np.testing.assert_array_equal(lm.h[1].mlp.c_fc.w.cast("float32").numpy(), expected.float().numpy())
    ids = np.arange(20)[None]
    expected = their_scores(theirs, ids)
    scores = lm(meta.array(ids)).cast("float32").numpy()
    assert np.abs(scores - expected).max() < 0.05 * np.abs(expected).max()


def test_texts_of_unequal_lengths_equal_single_ones(tmp_path: Path) -> None:
    theirs = write(tmp_path, "mistral")
    lm = huggingface.load(tmp_path)
    prompts = [[5, 9, 3, 77, 21, 4, 8, 60, 2, 31, 12], [17], [40, 41, 3]]
    tokens = lm.generate(prompts, 20)
    for prompt, row in zip(prompts, tokens, strict=True):
        expected = theirs.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, len(prompt) :]
        assert row == expected.tolist()


@pytest.mark.parametrize("name", ["qwen3", "gemma", "gpt2"])
def test_gradients(name: str, tmp_path: Path) -> None:
    theirs = write(tmp_path, name)
    lm = huggingface.load(tmp_path).train_mode()
    ids = np.random.default_rng(2).integers(0, 97, (2, 12))
    labels = torch.tensor(ids[:, 1:])
    logits = theirs(torch.tensor(ids)).logits[:, :-1]
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()

    def step(ids: Any, labels: Any) -> Any:
        loss = meta.cross_entropy(lm(ids)[:, :-1].reshape((-1, 97)), labels.reshape((-1,)))
        loss.backward()
        return loss

    meta.vm.compile(step)(ids, ids[:, 1:].copy())
    gradients = {key: x.grad.numpy() for key, x in torch_arrays(lm).items()}
    for key, parameter in theirs.named_parameters():
        expected = parameter.grad.numpy()
        np.testing.assert_allclose(gradients[key], expected, atol=1e-5 * np.abs(expected).max(), err_msg=key)
