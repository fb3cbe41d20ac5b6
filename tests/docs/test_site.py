"""The documentation site builds without a warning."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="Sphinx is not installed (the extra docs)")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "text", "-d", str(tmp_path / "trees")]
    completed = subprocess.run(
        [*command, str(ROOT / "docs"), str(tmp_path / "site")], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert completed.returncode == 0, completed.stderr
    api = (tmp_path / "site" / "api.txt").read_text(encoding="utf-8")
    assert "class Model(" in api
    assert "compile(" in api
