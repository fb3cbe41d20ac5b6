"""Folders that `load` refuses, with what is wrong and what to do."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError, FileError
from meta.frontend import huggingface
from meta.frontend.huggingface import UnsupportedError
from meta.models.llama import llama_config
from tests.python.models.tiny import tiny_llama


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    huggingface.save(tmp_path, tiny_llama())
    return tmp_path


def set_entries(folder: Path, **entries: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **entries}))


def split(folder: Path) -> dict[str, str]:
    """Two shards and an index in place of the one file; returns the index."""
    arrays = meta.load(folder / "model.safetensors")
    names = sorted(arrays)
    index = {}
    for i, part in enumerate((names[::2], names[1::2])):
        meta.save(folder / f"part-{i}.safetensors", {n: arrays[n] for n in part})
        index |= dict.fromkeys(part, f"part-{i}.safetensors")
    (folder / "model.safetensors").unlink()
    write_index(folder, index)
    return index


def write_index(folder: Path, index: dict[str, str]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def test_a_folder_is_read_as_it_was_saved(folder: Path) -> None:
    expected = tiny_llama().state_dict()
    split(folder)
    state = huggingface.load(folder).state_dict()
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(state[name].numpy(), value.numpy())
    halves = huggingface.load(folder, dtype="float16").state_dict()
    for name, value in expected.items():
        np.testing.assert_array_equal(halves[name].numpy(), value.numpy().astype(np.float16))


def test_entries_of_older_versions_mean_the_same(folder: Path) -> None:
    ids = meta.array([[5, 6, 7, 8, 9, 1, 2, 3]])
    plain = huggingface.load(folder)(ids).numpy()
    set_entries(folder, rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0})
    expected = huggingface.load(folder)(ids).numpy()
    set_entries(folder, rope_parameters=None, rope_theta=500.0, rope_scaling={"type": "linear", "factor": 2.0})
    np.testing.assert_array_equal(huggingface.load(folder)(ids).numpy(), expected)
    assert not np.array_equal(plain, expected)
    set_entries(folder, dtype=None, torch_dtype="bfloat16")
    assert huggingface.load(folder).lm_head.w.dtype == "bfloat16"


@pytest.mark.parametrize("entries", [{}, {"use_sliding_window": True, "max_window_layers": 1}], ids=str)
def test_windows_of_configurations_without_layer_types(entries: dict[str, Any]) -> None:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    c = llama_config({"model_type": "qwen2", "vocab_size": 9, "sliding_window": 5, **sizes, **entries})
    assert c.windows == ((None, 5) if entries else (None, None))
    c = llama_config({"model_type": "mistral", "vocab_size": 9, "sliding_window": 5, **sizes})
    assert c.windows == (5, 5)


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def missing_shard(folder: Path) -> None:
    split(folder)
    (folder / "part-1.safetensors").unlink()


def stale_index(folder: Path) -> None:
    index = split(folder)
    write_index(folder, {**index, "lm_head.weight": "part-0.safetensors"})


def index_that_leaves_the_folder(folder: Path) -> None:
    index = split(folder)
    write_index(folder, {**index, "lm_head.weight": "../part-0.safetensors"})


def cut_off(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])


def hostile_header(folder: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 2**64]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def other_shapes(folder: Path) -> None:
    set_entries(folder, intermediate_size=20)


def more_layers(folder: Path) -> None:
    set_entries(folder, num_hidden_layers=3)


def text_for_config(folder: Path) -> None:
    (folder / "config.json").write_text("[1, 2")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (no_config, "config.json"),
        (text_for_config, "config.json is not a JSON object"),
        (no_weights, "has no weights; expected model.safetensors, or model.safetensors.index.json and its files"),
        (pickled, "has pickled weights only (pytorch_model.bin), which can run code when they are read; expected "),
        (missing_shard, "part-1.safetensors is missing in"),
        (stale_index, "lacks 'lm_head.weight', which model.safetensors.index.json names (1 in all)"),
        (index_that_leaves_the_folder, "names the file '../part-0.safetensors'; expected files in the folder itself"),
        (cut_off, "is not a valid file"),
        (hostile_header, "is not a valid file"),
        (other_shapes, "mlp.gate_proj.weight' has shape (24, 16), config.json says (20, 16)"),
        (more_layers, "'model.layers.2.self_attn.q_proj.weight' is missing"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_damaged_folders(folder: Path, damage: Callable[[Path], None], text: str) -> None:
    damage(folder)
    with pytest.raises(FileError) as error:
        huggingface.load(folder)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"hidden_act": "xielu"}, "hidden_act is 'xielu'; expected one of gelu, gelu_fast"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type is 'yarn'; expected default, linear or"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}; expected None"),
        ({"num_hidden_layers": 10**9}, "config.json describes no model: it has 1000000000 layers"),
        ({"vocab_size": 2**60}, "config.json describes no model"),
        ({"hidden_act": ["silu"]}, "hidden_act is ['silu']; expected one of gelu"),
        ({"hidden_size": "16"}, "config.json describes no model"),
        ({"model_type": "gpt2"}, "config.json describes no model: it has no 'n_embd'"),
        ({"num_hidden_layers": 1}, "the files have parameters that config.json does not describe"),
    ],
    ids=str,
)
def test_unsupported_choices(folder: Path, entries: dict[str, Any], text: str) -> None:
    set_entries(folder, **entries)
    with pytest.raises(UnsupportedError) as error:
        huggingface.load(folder)
    assert text in str(error.value)
    assert any(text in problem for problem in (*huggingface.examine(folder).problems, str(error.value)))
    assert not huggingface.examine(folder).supported


def test_what_an_unknown_architecture_lacks(folder: Path) -> None:
    arrays = meta.load(folder / "model.safetensors")
    arrays |= {f"model.layers.{i}.self_attn.sinks": meta.zeros((4,)) for i in range(2)}
    meta.save(folder / "model.safetensors", arrays)
    set_entries(folder, model_type="gptoss")
    examination = huggingface.examine(folder)
    assert [use.name for use in examination.missing] == ["model.layers.*.self_attn.sinks"]
    assert "MISSING  model.layers.*.self_attn.sinks" in str(examination)
    with pytest.raises(UnsupportedError) as error:
        huggingface.load(folder)
    text = "not one of llama, mistral, qwen2, qwen3, gemma, gpt2, bert, t5; the model of llama lacks "
    assert f"model_type is 'gptoss', {text}model.layers.*.self_attn.sinks" in str(error.value)


def test_other_dtypes_are_refused(folder: Path) -> None:
    with pytest.raises(ArgumentError, match="dtype is int8; expected a floating dtype"):
        huggingface.load(folder, dtype="int8")
