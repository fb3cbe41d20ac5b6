"""The code in README.md and docs/ runs, and the commands mentioned there exist."""

import contextlib
import functools
import importlib
import re
import shutil
from pathlib import Path

import pytest

from meta.op import registry
from scripts.src_codegen.docs import is_internal, recorded
from tests.docs.forks import Interpreter
from tests.docs.outputs import matches, portable
from tests.docs.run_blocks import Page, blocks, examples

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.ipynb"))
RUNNABLE = [page for page in PAGES if re.search(r"^ *```(py|console)", page.read_text(encoding="utf-8"), re.M)]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [*RUNNABLE, *NOTEBOOKS], ids=name)
def test_code_blocks_run(page: Path, tmp_path: Path, interpreter: Interpreter) -> None:
    text = page.read_text(encoding="utf-8")
    if re.search(r'\[\\?"cc\\?"', text) and shutil.which("cc") is None:
        pytest.skip("the page calls a C compiler")
    if "meta.kernels.compile(" in text and not (shutil.which("ninja") and shutil.which("c++")):
        pytest.skip("the page calls a C++ compiler by ninja")
    status, output = interpreter.run_page(page, tmp_path)
    assert status == 0, output


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_shown_output_is_whole(page: Path) -> None:
    shown: list[str] = []
    for language, body, *_ in blocks(page.read_text(encoding="utf-8")):
        if language == "pycon":
            shown += [example.output for example in examples(body, 0, 0, ">>> ", "... ")]
        elif language in ("", "text", "console"):
            shown.append(body)
    assert [output for output in shown if re.search(r"(?:^|[\s;])\.\.\.$", output, re.M)] == []


def test_public_operators_have_an_example() -> None:
    missing = [op.name for op in registry.all_ops() if not is_internal(op) and op.name not in recorded()]
    assert missing == [], "python -m scripts.src_codegen"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))
    command = re.compile(r"(?:`|^ *\$? ?)make (?:\w+=\S+ )*([a-z][a-z-]*)(?=`|$| +#| \w+=)", re.M)
    named = set(command.findall(page.read_text(encoding="utf-8")))
    assert named <= targets


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "other-names"], ids=name)
def test_names_exist(page: Path) -> None:
    """other-names.md lists names that meta lacks; groups of entry points and operators of examples are no modules."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    named = set(re.findall(r"`(meta(?:\.\w+)+)(?=[`(\[])", text)) - {"meta.operators", "meta.dialects"}
    assert [path for path in sorted(named) if not path.startswith("meta.ops.") and not _exists(path)] == []


def _exists(path: str) -> bool:
    """Whether a module, or an attribute of one, has this path."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            value = importlib.import_module(".".join(parts[:count]))
            with contextlib.suppress(AttributeError):
                functools.reduce(getattr, parts[count:], value)
                return True
            return False
    return False


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
        ("```pycon\n>>> print('left right')\nleft ...\n```\n", False),
        ("```pycon\n>>> print('a\\n\\nb')\na\n\nb\n>>> 1\n1\n```\n", True),
        ("```pycon\n>>> for i in (1, 2):\n...     print(i)\n...\n1\n2\n```\n", True),
        ("```pycon\n>>> {}['key']\nTraceback (most recent call last):\n  File \"page.py\", line 1, in <module>\n"
         "KeyError: 'key'\n```\n", True),
        ("```pycon\n>>> {}['key']\nTraceback (most recent call last):\n  File \"page.py\", line 1, in <module>\n"
         "KeyError: 'other'\n```\n", False),
        ("```pycon\n>>> x = {}['key']\n```\n", False),
        ("```python\nassert 1 + 1 == 3\n```\n", False),
        ("```python\nimport warnings\nwarnings.warn('loud')\n```\n", False),
        ("```sh\nexit 1\n```\n", True),
        ("```toml file=folder/a.toml\nx = 1\n```\n```console\n$ cat folder/a.toml\nx = 1\n```\n", True),
        ("```python file=a.py\nassert False\n```\n", True),
        ("```console\n$ echo left\nright\n```\n", False),
        ("```console\n$ echo left >&2; exit 3\nleft\n[exit status 3]\n```\n", True),
        ("```console\n$ echo left; exit 3\nleft\n```\n", False),
    ],
)  # fmt: skip
def test_runner(text: str, succeeds: bool, tmp_path: Path, interpreter: Interpreter) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert (interpreter.run_page(page, tmp_path)[0] == 0) is succeeds


def test_runner_names_the_line_of_the_page(tmp_path: Path, interpreter: Interpreter) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nx = 1\nx.missing\n```\n", encoding="utf-8")
    assert f'File "{page}", line 5' in interpreter.run_page(page, tmp_path)[1]


def test_folders_of_the_machine_are_not_written() -> None:
    assert portable("at /home/me/lib/python3.11/site-packages/torch/nn/linear.py:1") == "at torch/nn/linear.py:1"
    assert portable(f"at {ROOT}/meta/dim.py:1") == "at meta/dim.py:1"


def test_output_that_differs_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```pycon\n>>> 1 + 1\n3\n>>> 4\n4\n```\n- x\n\n  ```pycon\n  >>> 5\n  ```\n", encoding="utf-8")
    run = Page(page)
    run.run()
    assert run.written() == "```pycon\n>>> 1 + 1\n2\n>>> 4\n4\n```\n- x\n\n  ```pycon\n  >>> 5\n  5\n  ```\n"


@pytest.mark.parametrize(
    ("page", "run", "equal"),
    [
        ("[0.25 0.5]", "[ 0.25000001  0.50000001]", True),
        ("[0.25 0.5]", "[0.26 0.5]", False),
        ("1e-07 and 0.0", "0.0 and 2e-7", True),
        ("3 calls", "4 calls", False),
        ("float32[3x8]", "float32[4x8]", False),
        ("x.grad", "x.data", False),
        ("0.03 s", "1.2 s", True),
        ("in 0.03s", "in 1.2s", True),
        ("0.03 s", "0.03 m", False),
        ("1,000 bytes", "1,100 bytes", True),
        ("1,000 bytes", "2,000 bytes", False),
        ("4 bytes, 0.3 MiB", "36 bytes, 0.2 MiB", True),
        ("needs 400,648, or 13.3% more", "needs 384,280, or 12.9% more", True),
        ("needs 400,648", "needs 200,648", False),
        ("<A at 0x7f00>", "<A at 0x7f11>", True),
        ("at step.py:3", "at /tmp/a/step.py:17", True),
        ("at step.py:3", "at other.py:3", False),
        ("name  us\na  1.5\nb  2", "name  us\nb  3.5\na  4.25", True),
        ("name  us\na  1.5\nb  2", "name  us\na  1.5\nc  2", False),
    ],
)
def test_output_is_compared_by_kind(page: str, run: str, equal: bool) -> None:
    assert matches(page, run) is equal
