"""Without torch everything but the torch dialect works. check-wheel runs this again where torch is not installed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("without_torch.py")


def names() -> list[str]:
    """The programs, read from the source: importing it would hide torch in this process."""
    functions = [node for node in ast.parse(PROGRAMS.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [function.name for function in functions if not function.name.startswith("_")]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", names())
def test_program(program: str) -> None:
    done = python("-m", "tests.python.without_torch", program)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("statement", ["import torch", "import torch.nn", "from torch import Tensor"])
def test_hidden_torch_cannot_be_imported(statement: str) -> None:
    done = python("-c", f"from tests.python.hide_torch import hide_torch; hide_torch(); {statement}")
    assert "ModuleNotFoundError: No module named 'torch'" in done.stderr


def test_hidden_torch_is_not_found() -> None:
    ask = "import importlib.util; print(importlib.util.find_spec('torch'))"
    assert python("-c", f"from tests.python.hide_torch import hide_torch; hide_torch(); {ask}").stdout == "None\n"
