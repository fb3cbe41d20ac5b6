"""The scripts of examples/ train as torch does, and print what they promise; sizes are small."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="the digits are scikit-learn's")

SMALL = {
    "mlp": "--hidden 16",
    "lenet": "--batch 4 --eager",
    "bert": "--features 16 --layers 1 --tokens 8 --batch 4",
    "lstm": "--hidden 8 --length 5 --batch 8",
    "unet": "--width 4 --batch 8",
    "relay": "--batch 8",
}

TRAINED = {
    **{name: arguments.removesuffix(" --eager") for name, arguments in SMALL.items()},
    "resnet": "--depth 18 --width 4 --size 16 --batch 16 --samples 64",
    "gpt": "--features 16 --layers 1 --length 8 --batch 4 --letters 12",
}


def run(name: str, arguments: str) -> list[float]:
    return import_module(f"examples.{name}").main(arguments.split())


@pytest.mark.parametrize("name", SMALL)
def test_losses_equal_the_losses_of_torch(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    losses = run(name, f"{SMALL[name]} --steps 20 --compare-torch")
    assert len(losses) == 20
    assert "losses of 20 steps differ from torch's by at most" in capsys.readouterr().out


@pytest.mark.parametrize("depth", ["18", "50 --eager"])
def test_residual_networks_train_as_in_torch(depth: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = f"--depth {depth} --width 4 --size 16 --batch 16 --samples 64 --steps 20 --compare-torch"
    losses = run("resnet", arguments)
    assert losses[-1] < losses[0]
    assert "losses of 20 steps differ from torch's by at most" in capsys.readouterr().out


@pytest.mark.parametrize("name", TRAINED)
def test_printed_losses_of_compiled_steps_equal_eager_ones(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # the GPT draws its losses there
    arguments = f"{TRAINED[name]} --steps 6"
    compiled, eager = run(name, arguments), run(name, f"{arguments} --eager")
    assert compiled == pytest.approx(eager, rel=1e-4)
    assert len(set(compiled)) == 6
    printed = re.findall(r"^loss (\S+) -> (\S+) after 6 steps", capsys.readouterr().out, re.M)
    assert printed == [(f"{losses[0]:.4f}", f"{losses[-1]:.4f}") for losses in (compiled, eager)]


def test_a_difference_from_torch_ends_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.common.TOLERANCE", -1.0)
    with pytest.raises(SystemExit, match="expected at most -1"):
        run("relay", "--batch 8 --steps 1 --compare-torch --eager")


def test_the_gpt_writes_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "gpt.svg"
    losses = run("gpt", "--features 16 --layers 1 --length 8 --batch 4 --letters 12 --steps 20 --compare-torch "
                 f"--plot {path}")  # fmt: skip
    printed = capsys.readouterr().out
    assert losses[-1] < losses[0]
    assert "\nThe " in printed
    assert re.search(r"^\d+ % of its words are in the text$", printed, re.M)
    assert path.read_text(encoding="utf-8").count("<polyline") > 1
    assert 'aria-label="A small GPT"' in path.read_text(encoding="utf-8")
