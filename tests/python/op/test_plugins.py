"""Plugins of installed packages, loaded in a process with a temporary distribution on its path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from meta.op.dispatch import dialect
from meta.op.plugins import BUILT_IN, DERIVING

ROOT = Path(__file__).resolve().parents[3]


def install(folder: Path, package: str, code: str, points: dict[str, str], group: str = "meta.dialects") -> None:
    """A distribution as pip would unpack it: a module, and metadata with entry points."""
    (folder / f"{package}.py").write_text(code)
    information = folder / f"{package}-1.5.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """A process with the distributions of `folder` installed."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


LOAD = """
import warnings
from meta.op import plugins
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loaded = [plugins.load("meta.dialects") for _ in range(2)]
assert loaded[0] is loaded[1]
for plugin in loaded[0]:
    print(plugin.package, plugin.name, plugin.failure)
for warning in caught:
    assert warning.category is plugins.PluginWarning
    print(warning.message)
"""


def test_loads_modules_and_functions_once_in_order(tmp_path: Path) -> None:
    install(tmp_path, "second", "print('second')", {"module": "second"})
    install(tmp_path, "first", "def a(): print('a')\ndef b(): print('b')", {"b": "first:b", "a": "first:a"})
    completed = run(tmp_path, LOAD)
    assert completed.stdout.split("\n") == [
        "a",
        "b",
        "second",
        "first 1.5 a ",
        "first 1.5 b ",
        "second 1.5 module ",
        "",
    ]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("raise OSError('no driver')", "OSError: no driver"),
        ("", "AttributeError: module 'broken' has no attribute 'register'"),
        ("def register(dialect): pass", "TypeError: register() missing 1 required positional argument: 'dialect'"),
    ],
)
def test_warns_of_a_broken_plugin_and_loads_the_others(tmp_path: Path, code: str, error: str) -> None:
    install(tmp_path, "broken", code, {"mine": "broken:register"})
    install(tmp_path, "working", "print('working')", {"other": "working"})
    completed = run(tmp_path, LOAD)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("working\n")
    assert f"broken 1.5 mine {error}" in completed.stdout
    assert f"[plugins] 'mine' (broken:register) of broken 1.5 in meta.dialects raised {error}" in completed.stdout


def test_a_plugin_may_look_up_what_plugins_add(tmp_path: Path) -> None:
    code = "from meta.op import plugins\nassert plugins.load('meta.dialects') == ()\nprint('looked up')"
    install(tmp_path, "curious", code, {"mine": "curious"})
    assert run(tmp_path, LOAD).stdout == "looked up\ncurious 1.5 mine \n"


def test_groups_are_separate(tmp_path: Path) -> None:
    install(tmp_path, "operators", "print('loaded')", {"mine": "operators"}, group="meta.operators")
    assert run(tmp_path, LOAD).stdout == ""


def test_every_dialect_that_derives_implementations_is_listed() -> None:
    assert tuple(name for name in BUILT_IN if dialect(name).derived is not None) == DERIVING


def test_a_first_call_imports_only_dialects_with_its_family(tmp_path: Path) -> None:
    code = """
import sys, meta
meta.softmax(meta.array([[1.0, 2.0]]))
print({name for name in ("torch", "triton") if f"meta.op.dialect.{name}" in sys.modules})
"""
    assert run(tmp_path, code).stdout == "set()\n"
