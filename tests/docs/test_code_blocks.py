"""The code in README.md and docs/ runs, and the commands mentioned there exist."""

import re
import subprocess
from pathlib import Path

import pytest

from tests import sandbox

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).with_name("run_blocks.py")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
RUNNABLE = [page for page in PAGES if re.search(r"^ *```(py|console)", page.read_text(encoding="utf-8"), re.M)]


def run_page(page: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the blocks of a page in a separate process, so that operators it registers do not affect other tests, in a
    separate environment, so that packages it installs do not either."""
    python = sandbox.make(directory / ".venv")
    command = [str(python), "-W", "error", str(RUNNER), str(page)]
    return subprocess.run(
        command, cwd=directory, env=sandbox.environment(python), capture_output=True, text=True, check=False
    )


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_code_blocks_run(page: Path, tmp_path: Path) -> None:
    completed = run_page(page, tmp_path)
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))
    command = re.compile(r"(?:`|^ *\$? ?)make (?:\w+=\S+ )*([a-z][a-z-]*)(?=`|$| +#| \w+=)", re.M)
    named = set(command.findall(page.read_text(encoding="utf-8")))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_to_files_resolve(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    ("text", "succeeds"),
    [
        ("```python\nx = 1\n```\ntext\n```pycon\n>>> x + 1\n2\n```\n", True),
        ("```pycon\n>>> 1 + 1\n3\n```\n", False),
        ("```pycon\n>>> print('left right')\nleft ...\n```\n", True),
        ("```pycon\n>>> {}['key']\nTraceback (most recent call last):\n...\nKeyError: 'key'\n```\n", True),
        ("```pycon\n>>> {}['key']\nTraceback (most recent call last):\n...\nKeyError: 'other'\n```\n", False),
        ("```pycon\n>>> x = {}['key']\n```\n", False),
        ("```python\nassert 1 + 1 == 3\n```\n", False),
        ("```python\nimport warnings\nwarnings.warn('loud')\n```\n", False),
        ("```sh\nexit 1\n```\n", True),
        ("```toml file=folder/a.toml\nx = 1\n```\n```console\n$ cat folder/a.toml\nx = 1\n```\n", True),
        ("```python file=a.py\nassert False\n```\n", True),
        ("```console\n$ echo left right\nleft ...\n$ echo left\nleft\n```\n", True),
        ("```console\n$ echo left\nright\n```\n", False),
        ("```console\n$ echo left >&2; exit 3\nleft\n[exit status 3]\n```\n", True),
        ("```console\n$ echo left; exit 3\nleft\n```\n", False),
    ],
)
def test_runner(text: str, succeeds: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert (run_page(page, tmp_path).returncode == 0) is succeeds


def test_runner_names_the_line_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nx = 1\nx.missing\n```\n", encoding="utf-8")
    assert f'File "{page}", line 5' in run_page(page, tmp_path).stderr
