"""docs/semantics.md lists the environment variables that the package reads, CONTRIBUTING.md those of tests."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/semantics.md").read_text(encoding="utf-8")
LISTED = set(re.findall(r"^\| `([A-Z][A-Z0-9_]+)` \|", PAGE, re.M))


def variables(source: str) -> Iterator[str]:
    """The names that are read from `os.environ` or by `os.getenv`, and every name that begins with META_."""
    for node in ast.walk(ast.parse(source)):
        keys: list[ast.expr] = []
        if isinstance(node, ast.Call) and re.search(r"\b(environ\.\w+|getenv)$", ast.unparse(node.func)):
            keys = node.args[:1]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            keys = [node.slice]
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]).endswith("environ"):
            keys = [node.left]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"META_[A-Z0-9_]+", str(node.value)):
            keys = [node]
        yield from (str(each.value) for each in keys if isinstance(each, ast.Constant))


@cache
def read_by_package() -> frozenset[str]:
    """The names that the package reads; files that name neither are not parsed."""
    sources = (path.read_text(encoding="utf-8") for path in ROOT.glob("meta/**/*.py"))
    return frozenset(name for text in sources if re.search(r"environ|getenv|META_", text) for name in variables(text))


def test_every_variable_is_listed() -> None:
    assert "META_CACHE_DIR" in read_by_package()
    macros = re.findall(r"\bMETA_\w+", (ROOT / "meta/deploy/runtime/meta_program.h").read_text(encoding="utf-8"))
    assert not read_by_package() - LISTED - set(macros)


def test_listed_variables_of_the_package_are_read() -> None:
    assert not {name for name in LISTED if name.startswith("META_")} - read_by_package()


def test_variables_of_tests_are_listed() -> None:
    listed = LISTED | set(re.findall(r"`(META_[A-Z_]+)[`=]", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    paths = [path for folder in ("tests", "scripts", "benchmarks") for path in ROOT.glob(f"{folder}/**/*.py")]
    sources = [path.read_text(encoding="utf-8") for path in paths if path != Path(__file__)]
    read = {name for text in sources if re.search(r"environ\b.*META_", text) for name in variables(text)}
    assert "META_TEST_PROGRAMS" in read
    assert not {name for name in read if name.startswith("META_")} - listed


def test_every_way_of_reading_is_found() -> None:
    source = "environ.get('A', '')\nos.environ['B']\nos.getenv('C')\n'D' in os.environ\nNAME = 'META_E'\nx.get('F')\n"
    assert set(variables(source)) == {"A", "B", "C", "D", "META_E"}
