"""The check of wording in `make lint-style`, scripts/prose.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import prose


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('def f():\n    """The shape.\n\n    It is that of x."""\n', 4),
        ("a = 1\nb = 2  # a tensor of which one axis is 1\n", 2),
        ("a = 1\n# The bytes that a kernel reads, and those\n# of its results.\n", 2),
        ('def f(x):\n    raise ValueError(f"{x}: expected the one that was saved")\n', 2),
        ("s = f\"{len('a tensor, too')}\"\n", 1),
    ],
)
def test_a_file_with_such_wording_is_reported(
    source: str, line: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert prose.main([str(path)]) == 1
    assert f"{path}:{line}: " in capsys.readouterr().out


def test_pages_are_read_without_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Title\n\n```sh\nthat of\n```\n\nThe shape is that\nof x.\n")
    assert prose.main([str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path}:7: ")


def test_names_of_tests_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "test_module.py"
    path.write_text("def test_shapes():\n    pass\n\n\ndef test_shapes_are_those_of_numpy():\n    pass\n")
    assert prose.main([str(path)]) == 1
    assert f"{path}:5: test_shapes_are_those_of_numpy\n" in capsys.readouterr().out


def test_allowed_uses_and_other_wording_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "module.py"
    path.write_text('TEXT = "7 elements, too few"\n# Whether x has the shape of y, and that often.\nthat_of = 1\n')
    assert prose.main([str(path)]) == 0
    assert capsys.readouterr().out == ""


def test_generated_modules_are_skipped() -> None:
    assert not any(prose.GENERATED in file.parents for file in prose._files(prose.FOLDERS))
