"""`python -m meta demo` refuses what it cannot do before it trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from meta.cli import main


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--epochs", "0"], "'0' is no number; expected 1 and up"),
        (["--epochs=-1"], "'-1' is no number"),
        (["--batch", "0"], "'0' is no number"),
        (["--batch", "many"], "'many' is no number"),
        (["--output", "digits.txt"], "'digits.txt' is no picture; expected names that end in .png"),
        (["--output", "/proc/nowhere/digits.png"], "cannot write '/proc/nowhere/digits.png'"),
    ],
)
def test_options(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["demo", *arguments])
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_a_directory_is_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").mkdir()
    with pytest.raises(SystemExit):
        main(["demo", "--output", str(tmp_path / "a.png")])
    assert "cannot write" in capsys.readouterr().err


def test_a_batch_is_no_larger_than_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    assert main(["demo", "--batch", "5000"]) == 1
    assert (
        "error: [demo] a batch of 5000 from 1437 images; expected at most as many as there are"
        in capsys.readouterr().err
    )
