"""`python -m meta demo` rejects invalid options before it trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from meta.cli import main


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
