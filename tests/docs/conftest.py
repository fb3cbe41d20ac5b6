"""The interpreter of pages and the site, which all tests share."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.docs.forks import Interpreter

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
    """The site, which the first of several workers builds."""
    pytest.importorskip("furo", reason="Sphinx is not installed (the extra docs)")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = folder / "result.json"
        if not result.exists():
            command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
            command += ["-d", str(folder / "trees"), str(ROOT / "docs"), str(folder / "html")]
            built = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
            result.write_text(json.dumps([built.stderr, built.returncode]), encoding="utf-8")
    return Site(folder / "html", *json.loads(result.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    interpreter = Interpreter()
    yield interpreter
    interpreter.close()
