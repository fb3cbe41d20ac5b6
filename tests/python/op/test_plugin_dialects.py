"""Dialects of installed packages: found at the first dispatch or by name, and never in the way of other operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.python.op.test_plugins import install, run

WORKING = """
import sys
import meta
def sevens(x, *, out):
    out[...] = 7.0
def register():
    print("registered")
    meta.register_dialect("mine", plevel=20).implement("tanh", sevens)
"""


def test_the_first_dispatch_finds_a_dialect_and_the_import_does_not(tmp_path: Path) -> None:
    install(tmp_path, "working", WORKING, {"mine": "working:register"})
    code = (
        "import sys, meta; x = meta.array([1.0])\n"
        "assert 'working' not in sys.modules and 'meta.op.plugins' not in sys.modules\n"
        "print(meta.tanh(x).item(), meta.tanh(x).item(), meta.explain('tanh', x).chosen)"
    )
    assert run(tmp_path, code).stdout == "registered\n7.0 7.0 mine\n"


@pytest.mark.parametrize(
    "look_up",
    [
        "with meta.with_dialect('mine'): print(meta.tanh(meta.array([1.0])).item())",
        "print(meta.dialect('mine').plevel)",
        "print(meta.explain('tanh', meta.array([1.0])).chosen)",
        "print(meta.vm.compile(meta.trace(lambda x: meta.tanh(x)))(meta.array([1.0])).item())",
    ],
)
def test_every_look_up_finds_it(tmp_path: Path, look_up: str) -> None:
    install(tmp_path, "working", WORKING, {"mine": "working:register"})
    first, second, rest = run(tmp_path, f"import meta\n{look_up}").stdout.split("\n")
    assert (first, second, rest) in (("registered", result, "") for result in ("7.0", "20", "mine"))


def test_a_dialect_of_the_package_needs_no_plugins(tmp_path: Path) -> None:
    install(tmp_path, "working", WORKING, {"mine": "working:register"})
    assert run(tmp_path, "import meta; meta.dialect('tvm'); meta.dialect('reference')").stdout == ""


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
        (WORKING.replace("plevel=20", "plevel='20'"), "RegistryError: [register_dialect] plevel is '20'"),
        (WORKING.replace('"tanh"', '"tahn"'), "RegistryError: [registry] none of"),
        (WORKING.replace('"mine"', '"tvm"'), "RegistryError: [register_dialect] a dialect called 'tvm' exists already"),
    ],
)
def test_a_broken_plugin_warns_with_its_package(tmp_path: Path, code: str, problem: str) -> None:
    install(tmp_path, "broken", code, {"mine": "broken:register"})
    completed = run(tmp_path, "import meta; print(meta.tanh(meta.array([0.0])).item())")
    assert completed.stdout.endswith("0.0\n"), completed.stderr
    assert "PluginWarning: [plugins] 'mine' (broken:register) of broken 1.5 in meta.dialects raised" in completed.stderr
    assert problem in completed.stderr


def test_a_probe_turns_a_dialect_off(tmp_path: Path) -> None:
    code = WORKING.replace("plevel=20", "plevel=20, probe=lambda: 'no library'")
    install(tmp_path, "without_library", code, {"mine": "without_library:register"})
    completed = run(tmp_path, "import meta; print(meta.explain('tanh', meta.array([1.0])))")
    assert "mine (plevel 20): off: no library" in completed.stdout


def test_the_command_lists_plugins(tmp_path: Path) -> None:
    install(tmp_path, "working", WORKING, {"mine": "working:register"})
    install(tmp_path, "broken", "raise OSError('no driver')", {"other": "broken"})
    out = run(tmp_path, "from meta.cli import main; main(['env'])").stdout
    text = " ".join(out.split())  # rows are wrapped at the width of the terminal
    assert " mine on, plevel 20, for cpu " in text
    assert " mine on (working:register of working 1.5, meta.dialects)" in text
    assert " other off: OSError: no driver (broken of broken 1.5, meta.dialects)" in text
