"""What type checkers and editors see of the package."""

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from meta._generated.table import ALIASES, FAMILIES, FUNCTIONS

PROGRAM = Path(__file__).with_name("user_program.py")
LAZY = ("meta", "meta.autograd", "meta.model", "meta.nn", "meta.optim", "meta.testing", "meta.vm")
PACKAGES = (*LAZY, "meta.amp", "meta.frontend.relay", "meta.passes", "meta.random")


def test_a_users_program_is_typed_and_unknown_names_are_reported() -> None:
    pytest.importorskip("pyright", reason="pyright is not installed (the extra dev)")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(PROGRAM)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROGRAM.parent)
    types: dict[int, str] = {}
    for message in json.loads(completed.stdout)["generalDiagnostics"]:
        text = re.sub(r'^Type of ".*" is "(.*)"$', r"reveals: \1", message["message"].replace("\n", " "))
        line = message["range"]["start"]["line"] + 1
        if message["severity"] == "error" or text.startswith("reveals: "):
            types[line] = text if message["severity"] == "information" else f"reports: {message['rule']}"
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    expected = {
        i: m.group(1) for i, line in enumerate(lines, 1) if (m := re.search(r"# (re(?:veals|ports): .*)$", line))
    }
    assert types == expected


@pytest.mark.parametrize("name", PACKAGES)
def test_lists_public_names_only(name: str) -> None:
    module = importlib.import_module(name)
    for public in dir(module):
        home = getattr(getattr(module, public), "__module__", None) or getattr(module, public).__name__
        assert not public.startswith("_")
        assert home.startswith("meta"), public


@pytest.mark.parametrize("name", LAZY)
def test_type_checkers_know_the_names_of_the_package(name: str) -> None:
    """The imports under TYPE_CHECKING and the names that are imported at their first use are the same."""
    module = importlib.import_module(name)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    branches = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for branch in branches for node in branch.body if isinstance(node, ast.ImportFrom)]
    typed = {alias.asname for node in imports for alias in node.names} - {None}
    whole = {node.module for node in imports if node.names[0].name == "*"}
    composed = {public for public, home in FUNCTIONS.items() if home in whole}
    at_once = {"Device", "device", *FAMILIES, *ALIASES, *composed} if name == "meta" else set()
    command = f"import {name}; print(*dir({name}))"  # in a new process: tests define operators
    listed = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout.split()
    assert typed | at_once == set(listed)
