"""Every name that the package defines is read somewhere, and texts name files that exist."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READERS = ("meta", "scripts", "benchmarks", "examples", "docs", "tests")
CALLED_BY_NAME = re.compile(r"visit_[A-Z]\w*|__\w+__|_fields_|_recreate_cm|_ctypes_")
"""Names that Python or a library calls: of syntax nodes, structures of ctypes, context managers."""


@cache
def texts() -> dict[Path, str]:
    paths = [path for folder in READERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    paths += [ROOT / "README.md", ROOT / "pyproject.toml", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    return {path: path.read_text() for path in paths if "docs/reference" not in path.as_posix()}


SUFFIXES = (".py", ".md", ".yaml", ".lark", ".toml")


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Functions, classes, fields and variables with their lines, without those that a decorator enters in a table."""
    for node in ast.walk(ast.parse(texts()[path])):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if not any(isinstance(each, ast.Call) or ast.unparse(each) in TABLES for each in node.decorator_list):
                yield node.lineno, node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.lineno, node.target.id
        elif isinstance(node, ast.Assign):
            yield from ((node.lineno, target.id) for target in node.targets if isinstance(target, ast.Name))


TABLES = ("row", "rule", "converter", "composition")


def test_names_have_readers() -> None:
    words = Counter(word for text in texts().values() for word in re.findall(r"[A-Za-z_]\w*", text))
    unread = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in texts() if path.is_relative_to(ROOT / "meta") and path.suffix == ".py"
        if "_generated" not in path.parts
        for line, name in names(path) if words[name] == 1 and not CALLED_BY_NAME.fullmatch(name)
    ]  # fmt: skip
    assert unread == []


def fields(path: Path) -> Iterator[tuple[int, str]]:
    """Fields of dataclasses, with their lines."""
    for node in ast.walk(ast.parse(texts()[path])):
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(each) for each in node.decorator_list):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield field.lineno, field.target.id


def test_fields_of_dataclasses_have_readers() -> None:
    python = "\n".join(text for path, text in texts().items() if path.suffix == ".py")
    read = set(re.findall(r"\.([A-Za-z_]\w*)", python)) | set(re.findall(r"\"(\w+)\"", python))
    unread = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in texts() if path.is_relative_to(ROOT / "meta") and path.suffix == ".py"
        for line, name in fields(path) if name not in read
    ]  # fmt: skip
    assert unread == []


FOLDERS = r"(?:meta|tests|scripts|benchmarks|docs|examples)"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_that_texts_name_exist(suffix: str) -> None:
    pattern = re.compile(rf"(?<![\w/.-]){FOLDERS}/[\w/.-]+\.(?:py|md|yaml|lark|toml)\b")
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts().items() if path.suffix == suffix and not path.is_relative_to(ROOT / "tests")
        for name in pattern.findall(text) if not (ROOT / name).exists()
    }  # fmt: skip
    assert missing == set()
