"""`python -m meta demo`: results first, details on request, and invalid options rejected before it trains."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from meta.cli import demo, digits, main
from meta.cli.train import Result


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--epochs", "0"], "'0' is not a positive integer; expected 1, 2, ..."),
        (["--epochs=-1"], "'-1' is not a positive integer"),
        (["--batch", "0"], "'0' is not a positive integer"),
        (["--batch", "many"], "'many' is not a positive integer"),
        (["--output", "digits.txt"], "'digits.txt' is not a PNG file name; expected a name that ends in .png"),
        (["--output", "/proc/nowhere/digits.png"], "cannot write '/proc/nowhere/digits.png'"),
    ],
)
def test_rejects_invalid_options(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["demo", *arguments])
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_rejects_a_directory_as_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").mkdir()
    with pytest.raises(SystemExit):
        main(["demo", "--output", str(tmp_path / "a.png")])
    assert "cannot write" in capsys.readouterr().err


def test_rejects_batches_larger_than_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    assert main(["demo", "--batch", "5000"]) == 1
    assert "error: [demo] --batch is 5000; expected at most 1437, the number of images" in capsys.readouterr().err


@pytest.mark.parametrize("verbose", [False, True])
def test_prints_results_first_and_details_on_request(
    verbose: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sklearn", "matplotlib", "rich"):
        pytest.importorskip(name)
    monkeypatch.setenv("COLUMNS", "80")
    labels = digits.load().test_labels
    counts = Counter({("max_pool2d_with_indices", "tvm"): 2})
    results = [
        Result(name, [2.5] * 60, [0.1] + [0.002] * 59, 0.98, labels, 2**20, None, counts, dict.fromkeys(counts, "tvm"))
        for name, *_ in demo.CONFIGURATIONS
    ]
    monkeypatch.setattr(demo, "_train_all", lambda *_: results)
    picture = tmp_path / "digits.png"
    assert main(["demo", "--output", str(picture), *["--verbose"] * verbose]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["configuration", "test", "accuracy", "time", "per", "step", "first", "step"]
    assert [line.split("  ")[0].strip() for line in lines[1:4]] == ["eager", "vm", "vm bfloat16"]
    assert lines[1].split() == ["eager", "98.00%", "2.00", "ms", "0.10", "s"]
    assert lines[4:6] == [
        "eager and VM agree: losses of 50 steps differ by at most 0.0e+00",
        f"loss curves and misclassified digits: {picture}",
    ]
    assert picture.stat().st_size > 10_000
    titles = [line.strip("─ ") for line in lines if line.startswith("─")]
    details = ["memory", "the training step as a program", "calls of dialects in a training step"]
    assert titles == details * verbose
    assert any(line.strip().startswith("max_pool2d_with_indices") for line in lines) == verbose
