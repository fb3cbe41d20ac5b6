"""Every public import path stays: the modules of public_paths.txt with their names, and former paths with a warning."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from meta.lazy import MOVED

LISTED = [line.partition(":")[::2] for line in Path(__file__).with_name("public_paths.txt").read_text().splitlines()]


@pytest.mark.parametrize(("path", "names"), LISTED, ids=[path for path, _ in LISTED])
def test_public_path(path: str, names: str) -> None:
    module = import_module(path)
    assert isinstance(module, ModuleType)
    assert [name for name in names.split() if not hasattr(module, name)] == []


@pytest.mark.parametrize("path", MOVED)
def test_former_path_warns(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, path, raising=False)
    with pytest.warns(DeprecationWarning, match=rf"^{path} is now {MOVED[path]}$"):
        module = import_module(path)
    assert module is import_module(MOVED[path])


def test_unknown_path_is_refused() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'meta\.definitions'"):
        import_module("meta.definitions")
