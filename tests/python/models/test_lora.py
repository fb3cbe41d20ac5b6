"""Adapters: training against torch, frozen bases in 8 and 4 bits, files that peft reads, merging, refusals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError, FileError
from meta.frontend import huggingface
from meta.models.lora import adapters

from .tiny import tiny_llama

IDS = np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])


def losses_of(lm: Any, steps: int) -> list[float]:
    """Losses of compiled steps of gradient descent at rate 0.5."""

    def loss(scores: Any, ids: Any) -> Any:
        return meta.cross_entropy(scores[:, :-1].reshape((-1, 61)), ids[:, 1:].reshape((-1,)))

    step = meta.vm.compile(meta.optim.TrainStep(lm, meta.optim.SGD(lm, lr=0.5), loss))
    ids = meta.array(IDS)
    return [float(step(ids, ids).numpy()) for _ in range(steps)]


def drawn(lm: Any) -> Any:
    """The model with random numbers in all adapters."""
    rng = np.random.default_rng(5)
    with meta.no_grad():
        for _, _, layer in adapters(lm):
            for x in (layer.a, layer.b):
                x.update(meta.array(rng.normal(0, 0.3, x.shape).astype(np.float32)))
    return lm


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    huggingface.save(tmp_path / "base", tiny_llama())
    return tmp_path / "base"


def torch_model(folder: Path) -> Any:
    """transformers' model of a folder."""
    transformers = pytest.importorskip("transformers", reason="compares with transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(folder).float()


def test_losses_equal_torch(folder: Path) -> None:
    lm = drawn(huggingface.load(folder).lora(rank=3, alpha=6, targets=("q_proj", "v_proj", "down_proj")))
    torch = pytest.importorskip("torch")
    theirs = torch_model(folder).requires_grad_(False)
    trained: list[Any] = []
    named = dict(lm.named_models())
    for name, layer in theirs.named_modules():
        if name.rsplit(".", 1)[-1] in ("q_proj", "v_proj", "down_proj"):
            ours = named[name.removeprefix("model.")]
            a, b = (torch.tensor(x.detach().numpy().copy(), requires_grad=True) for x in (ours.a, ours.b))
            trained += [a, b]
            layer.register_forward_hook(lambda _, args, y, a=a, b=b: y + args[0] @ a.T @ b.T * 2.0)
    ids = torch.tensor(IDS)
    expected = []
    for _ in range(4):
        scores = theirs(ids).logits
        loss = torch.nn.functional.cross_entropy(scores[:, :-1].reshape(-1, 61), ids[:, 1:].reshape(-1))
        expected.append(loss.item())
        for x, dx in zip(trained, torch.autograd.grad(loss, trained), strict=True):
            x.data -= 0.5 * dx
    np.testing.assert_allclose(losses_of(lm, 4), expected, rtol=2e-5)
    assert expected[3] < expected[0]


@pytest.mark.parametrize("weights", [None, "int8", "int4:8"])
def test_only_adapters_are_trained_and_saved(folder: Path, weights: str | None, tmp_path: Path) -> None:
    lm = huggingface.load(folder, weights=weights)
    before, ids = {n: x.detach().numpy().copy() for n, x in lm.named_state()}, meta.array(IDS)
    scores = lm(ids).detach().numpy()
    lm.lora(rank=2, alpha=4)
    np.testing.assert_allclose(lm(ids).detach().numpy(), scores, rtol=1e-5, atol=1e-5)
    assert sum(x.requires_grad for x in lm.parameters()) == 2 * 2 * 2
    losses = losses_of(lm, 3)
    assert losses[2] < losses[0]
    after = {n.replace(".base.", "."): x.detach().numpy() for n, x in lm.named_state()}
    assert all(np.array_equal(after[n], x) for n, x in before.items())
    lm.save_lora(tmp_path / "adapters")
    files = {path.name: path.stat().st_size for path in (tmp_path / "adapters").iterdir()}
    assert files.keys() == {"adapter_config.json", "adapter_model.safetensors"}
    assert files["adapter_model.safetensors"] < 4000
    again = huggingface.load(folder, weights=weights).lora(rank=2, alpha=4).load_lora(tmp_path / "adapters")
    np.testing.assert_array_equal(again(ids).detach().numpy(), lm(ids).detach().numpy())
    assert again.infer_mode().generate([3, 1], 4) == lm.infer_mode().generate([3, 1], 4)
    if weights is not None:
        with pytest.raises(ArgumentError, match="8 or 4 bits"):
            lm.merge_lora()
        return
    expected = lm(ids).detach().numpy()
    assert not list(adapters(lm.merge_lora()))
    np.testing.assert_allclose(lm(ids).detach().numpy(), expected, rtol=1e-4, atol=1e-4)
    assert lm.state_dict().keys() == before.keys()


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, about names that peft uses
def test_peft_reads_the_files(folder: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="reads adapters with peft: pip install peft")
    torch = pytest.importorskip("torch")
    lm = drawn(huggingface.load(folder).lora(rank=3, alpha=6)).infer_mode()
    lm.save_lora(tmp_path / "adapters")
    theirs = peft.PeftModel.from_pretrained(torch_model(folder), tmp_path / "adapters")
    with torch.no_grad():
        expected = theirs(torch.tensor(IDS)).logits.detach().numpy()
    np.testing.assert_allclose(lm(meta.array(IDS)).detach().numpy(), expected, rtol=1e-4, atol=1e-4)
    theirs.save_pretrained(tmp_path / "theirs")
    other = huggingface.load(folder).lora(rank=3, alpha=6).load_lora(tmp_path / "theirs")
    np.testing.assert_allclose(other(meta.array(IDS)).detach().numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"alpha": -1.0}, "alpha -1.0"),
        ({"alpha": math.nan}, "alpha nan"),
        ({"targets": ("query",)}, "targets has 'query'; expected names of projections: down_proj, gate_proj"),
        ({"targets": ()}, "targets is empty"),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: Any, problem: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        tiny_llama().lora(**options)
    assert problem in " ".join(str(caught.value).split())


def test_other_files_and_models_are_refused(tmp_path: Path) -> None:
    lm = tiny_llama()
    for call in (lm.merge_lora, lambda: lm.save_lora(tmp_path)):
        with pytest.raises(ArgumentError, match="no adapters"):
            call()
    lm.lora(rank=2)
    with pytest.raises(ArgumentError, match="has adapters"):
        lm.lora(rank=2)
    lm.save_lora(tmp_path)
    with pytest.raises(FileError, match=r"lora_A.weight' is \(2, 16\).*and \(4, 16\) in the model"):
        tiny_llama().lora(rank=4).load_lora(tmp_path)
    with pytest.raises(FileError, match=r"no array in the model|missing in"):
        tiny_llama().lora(rank=2, targets=("k_proj",)).load_lora(tmp_path)
