"""The site, which tests of its pages build once."""

import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Site:
    """A built site. warnings: what Sphinx printed."""

    folder: Path
    warnings: str
    status: int

    @cache  # noqa: B019  # one site a session
    def pages(self) -> dict[str, str]:
        """The HTML of each page by its path."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(self.folder.rglob("*.html"))
        }


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    pytest.importorskip("furo", reason="Sphinx is not installed (the extra docs)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(folder / "trees")]
    completed = subprocess.run(
        [*command, str(ROOT / "docs"), str(folder / "html")], capture_output=True, text=True, check=False, cwd=ROOT
    )
    return Site(folder / "html", completed.stderr, completed.returncode)
