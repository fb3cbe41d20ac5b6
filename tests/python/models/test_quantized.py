"""Models with weights in 8 and 4 bits: rounding, reading, generation, saving and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError, FileError
from meta.frontend import huggingface
from meta.models import Llama
from meta.models.quantized import quantize_rows, weight_format

from .tiny import tiny_llama, uncached


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    huggingface.save(tmp_path, tiny_llama())
    return tmp_path


@pytest.mark.parametrize("weights", ["int8", "int4:4", "int4:16"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_integers_are_nearest(weights: str, dtype: str) -> None:
    rows = np.random.default_rng(1).normal(0, 1, (5, 32)).astype(np.float32)
    rows[1] = 0
    rows[2] = -np.abs(rows[2])
    form = weight_format(weights)
    groups = form.groups("w", 32)
    w, scale = quantize_rows(rows, form, groups, dtype)
    back = meta.dequantize_weight(meta.array(w), meta.array(scale)).numpy()
    steps = np.repeat(scale.astype(np.float32), 32 // groups, 1)
    # Half a step, and half a unit in the last place of the scale for each of at most 127 steps.
    assert (np.abs(back - rows) <= steps * (0.501 if dtype == "float32" else 0.501 + 127 * 2.0**-9)).all()
    assert not back[1].any()


def rounded(weights: str) -> Any:
    """The tiny model with float weights that are rounded as `weights` says."""
    lm = tiny_llama()
    form = weight_format(weights)
    for x in lm.parameters():
        if x.ndim == 2:
            w, scale = quantize_rows(x.numpy(), form, form.groups("w", x.shape[1]), "float32")
            x.update(meta.dequantize_weight(meta.array(w), meta.array(scale)))
    return lm


@pytest.mark.parametrize("weights", ["int8", "int4:8"])
def test_a_model_computes_as_its_rounded_weights(folder: Path, weights: str) -> None:
    lm, expected = huggingface.load(folder, weights=weights), rounded(weights)
    assert lm.lm_head.w is lm.embed_tokens.w
    assert lm.lm_head.w.dtype == ("int8" if weights == "int8" else "uint8")
    ids = meta.array([[3, 1, 4, 1, 5]])
    np.testing.assert_allclose(lm(ids).numpy(), expected(ids).numpy(), rtol=1e-4, atol=1e-4)
    tokens = uncached(expected, [3, 1, 4], 6)
    assert lm.generate([3, 1, 4], 6) == tokens
    assert lm.generate([3, 1, 4], 6, compiled=False) == tokens
    huggingface.save(folder / "rounded", lm)
    again = huggingface.load(folder / "rounded")
    assert again.generate([3, 1, 4], 6) == tokens
    assert huggingface.examine(folder / "rounded").problems == ()
    with pytest.raises(ArgumentError, match="has weights in int"):
        huggingface.load(folder / "rounded", weights="int4:2")


def test_bfloat16_and_gpt2(folder: Path, tmp_path: Path) -> None:
    lm = huggingface.load(folder, dtype="bfloat16", weights="int4:8")
    assert {x.dtype for _, x in lm.named_state()} == {"bfloat16", "uint8"}
    assert len(lm.generate([3, 1, 4], 4)) == 4
    entries = {"model_type": "gpt2", "vocab_size": 40, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
    gpt2 = meta.models.GPT2(entries)
    rng = np.random.default_rng(0)
    with meta.no_grad():
        for x in gpt2.parameters():
            x.update(meta.array(rng.normal(0, 0.3, x.shape).astype(np.float32)))
    huggingface.save(tmp_path / "gpt2", gpt2.infer_mode())
    small = huggingface.load(tmp_path / "gpt2", weights="int8")
    ids = meta.array([[3, 1, 4, 1, 5]])
    np.testing.assert_allclose(small(ids).numpy(), gpt2(ids).numpy(), atol=0.15)


@pytest.mark.parametrize("weights", ["int9", "int4", "int4:3", "int4:0", "int4:-2", "int4:64 ", 8])
def test_unknown_weights_are_refused(folder: Path, weights: Any) -> None:
    with pytest.raises(ArgumentError, match="weights is"):
        huggingface.load(folder, weights=weights)


def test_groups_divide_rows(folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"rows of 16 weights and weights='int4:64' groups of 64"):
        huggingface.load(folder, weights="int4:64")


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_scales_are_refused(folder: Path, scale: float) -> None:
    huggingface.save(folder, huggingface.load(folder, weights="int8"))
    arrays = meta.load(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight_scale"
    values = arrays[name].numpy().copy()
    values[3] = scale
    meta.save(folder / "model.safetensors", {**arrays, name: meta.array(values)})
    with pytest.raises(FileError, match=f"'{name}' has the scale {scale}"):
        huggingface.load(folder)


def test_weights_that_are_not_finite_are_refused(folder: Path) -> None:
    lm: Llama = tiny_llama()
    lm.layers[0].mlp.up_proj.w[2, 3] = float("nan")
    huggingface.save(folder, lm)
    with pytest.raises(ArgumentError, match="NaN or infinite"):
        huggingface.load(folder, weights="int8")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(huggingface.UnsupportedError, match="quantization_config"):
        huggingface.load(folder)
