"""Every name, attribute and module of the package is read somewhere, classes have names of their own, and texts name
files that exist."""

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
CALLED_BY_NAME = re.compile(r"visit_[A-Z]\w*|_print_[A-Z]\w*|__\w+__|_fields_|_recreate_cm|_ctypes_|create_module")
"""Names that Python or a library calls: of syntax nodes, of ctypes, context managers, importers, printers of sympy."""


@cache
def texts() -> dict[Path, str]:
    paths = [path for folder in READERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    paths += [ROOT / "README.md", ROOT / "pyproject.toml", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    return {path: path.read_text() for path in paths if "docs/reference" not in path.as_posix()}


SUFFIXES = (".py", ".md", ".yaml", ".lark", ".toml")


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """The syntax nodes of each file of the package that is written by hand."""
    paths = [path for path in texts() if path.is_relative_to(ROOT / "meta") and path.suffix == ".py"]
    return {
        str(path.relative_to(ROOT)): list(ast.walk(ast.parse(texts()[path])))
        for path in paths if "_generated" not in path.parts
    }  # fmt: skip


@cache
def words() -> Counter[str]:
    return Counter(word for text in texts().values() for word in re.findall(r"[A-Za-z_]\w*", text))


@cache
def attributes_and_strings() -> set[str]:
    """What follows a dot, and words in quotes, in Python files outside of `nodes`: parsing them would take seconds."""
    others = [
        text for path, text in texts().items() if path.suffix == ".py" and str(path.relative_to(ROOT)) not in nodes()
    ]
    return {word for text in others for word in re.findall(r"\.([A-Za-z_]\w*)|[\"'](\w+)[\"']", text) for word in word}


def definitions(file: str) -> Iterator[tuple[int, str]]:
    """Functions, classes, fields and variables with their lines, without those that a decorator enters in a table."""
    for node in nodes()[file]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if not any(isinstance(each, ast.Call) or ast.unparse(each) in TABLES for each in node.decorator_list):
                yield node.lineno, node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.lineno, node.target.id
        elif isinstance(node, ast.Assign):
            yield from ((node.lineno, target.id) for target in node.targets if isinstance(target, ast.Name))


TABLES = ("row", "rule", "converter", "composition")


def test_names_have_readers() -> None:
    """A name occurs more often than it is defined."""
    places = [(file, line, name) for file in nodes() for line, name in definitions(file)]
    counts = Counter(name for _, _, name in places)
    unread = [
        f"{file}:{line}: {name}"
        for file, line, name in places if words()[name] <= counts[name] and not CALLED_BY_NAME.fullmatch(name)
    ]  # fmt: skip
    assert unread == []


def fields(file: str) -> Iterator[tuple[int, str]]:
    """Fields of dataclasses, with their lines."""
    for node in nodes()[file]:
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(each) for each in node.decorator_list):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield field.lineno, field.target.id


@cache
def read_attributes() -> set[str]:
    """Attributes that Python code reads, or names in a string: for `getattr`, `replace` and rows of tables."""
    read = {
        node.attr if isinstance(node, ast.Attribute) else node.value
        for file in nodes().values() for node in file
        if (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load))
        or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    }  # fmt: skip
    return read | attributes_and_strings()


READ_BY_OTHERS = re.compile(
    r"__defaults__|__signature__"  # Python
    r"|argtypes|restype|errcheck|atexit"  # ctypes and weakref.finalize
    r"|base_dir|ir_version"  # onnx-ir and onnx
    r"|usage|_boxed_call"  # argparse and torch.compile
    r"|input_size"  # users of torch's recurrent layers
)


def test_attributes_have_readers() -> None:
    """Fields of dataclasses, and attributes that statements set."""
    stores = [
        (file, node.lineno, node.attr)
        for file, members in nodes().items() for node in members
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]  # fmt: skip
    places = [(file, line, name) for file in nodes() for line, name in fields(file)] + stores
    unread = [
        f"{file}:{line}: {name}"
        for file, line, name in places if name not in read_attributes() and not READ_BY_OTHERS.fullmatch(name)
    ]  # fmt: skip
    assert unread == []


LOADED_BY_FOLDER = re.compile(
    r"meta\.(array_api|cli|op\.declare|op\.decompose|op\.dialect\.\w+"
    r"|frontend\.(onnx|relax|relay)\.(ops|export_ops)|frontend\.torch\.aten)\.\w+|meta\.__main__"
)
"""Modules that are imported by a name which is computed: commands, families and tables of rows."""


def test_modules_are_imported() -> None:
    modules = {file.removesuffix(".py").replace("/", ".") for file in nodes() if not file.endswith("__init__.py")}
    code = "\n".join(text for path, text in texts().items() if path.suffix == ".py")
    imported = set(re.findall(r"\bmeta(?:\.\w+)+", code))
    for package, listed in re.findall(r"^ *from (meta[\w.]*) import (\([^)]*\)|.*)", code, re.M):
        imported |= {f"{package}.{name}" for name in re.findall(r"\w+", listed)}
    assert not {module for module in modules - imported if not LOADED_BY_FOLDER.fullmatch(module)}


NODES_OF_RELAY = {"Call", "Constant", "GlobalVar", "If", "TensorType", "Tuple", "TupleGetItem", "TupleType", "Var"}
SHARED_CLASSES = NODES_OF_RELAY | {"UnsupportedError", "Profile", "Schedule"}
"""Nodes of two syntax trees, the errors of readers, and public classes: profiles of both kinds, TVM's schedules."""


def test_names_of_classes_are_unique() -> None:
    classes = (node.name for file in nodes().values() for node in file if isinstance(node, ast.ClassDef))
    counts = Counter(name for name in classes if not name.startswith("_"))
    assert {name for name, count in counts.items() if count > 1} == SHARED_CLASSES


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


def test_lists_of_modules_are_complete() -> None:
    """A package whose docstring lists modules, `name    description`, lists the modules that it has."""
    rows = re.compile(r"^((?:\w+, )*\w+) {2,}\S", re.M)
    for path in (ROOT / "meta").rglob("__init__.py"):
        listed = rows.findall(ast.get_docstring(ast.parse(texts()[path])) or "")
        files = {each.stem for each in path.parent.glob("*.py")} - {"__init__"}
        packages = {each.parent.name for each in path.parent.glob("*/*.py")}
        assert not listed or set(", ".join(listed).split(", ")) == files | packages, path.parent
