"""Everything but the torch dialect works without torch. check-wheel runs these tests in an environment without it."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("without_torch.py")


def names() -> list[str]:
    """Names of the programs, read from the source because an import would hide torch in this process."""
    functions = [node for node in ast.parse(PROGRAMS.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [each.name for each in functions if not each.name.startswith("_") and not each.args.args]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", names())
def test_program(program: str) -> None:
    completed = python("-m", "tests.python.without_torch", program)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_every_operator(tmp_path: Path) -> None:
    """One sample of each operator, recorded with torch's results, runs in a process without torch."""
    pytest.importorskip("torch", reason="the expected results are torch's")
    from meta.eager.ndarray import NDArray
    from meta.testing.call import flat_results
    from meta.testing.generic import make_call, reference_results
    from tests.python.op.samples import first_rows, samples

    calls = []
    for row in (each for each in samples() if each in first_rows()):
        call = make_call(row, row.run_dtypes()[0])
        results = flat_results(call.to_meta().run())
        comparable = row.check is None and isinstance(results[0], NDArray)
        expected, exact = reference_results(row, call, results) if comparable else ([], [])
        calls.append((row.op, call.args, call.kwargs, expected, exact, row.tol))
    recording = tmp_path / "calls"
    recording.write_bytes(pickle.dumps(calls))
    completed = python("-m", "tests.python.without_torch", "every_operator", str(recording))
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.parametrize("statement", ["import torch", "import torch.nn", "from torch import Tensor"])
def test_rejects_imports_of_hidden_torch(statement: str) -> None:
    completed = python("-c", f"from tests.python.hide_torch import hide_torch; hide_torch(); {statement}")
    assert "ModuleNotFoundError: No module named 'torch'" in completed.stderr


def test_does_not_find_hidden_torch() -> None:
    ask = "import importlib.util; print(importlib.util.find_spec('torch'))"
    assert python("-c", f"from tests.python.hide_torch import hide_torch; hide_torch(); {ask}").stdout == "None\n"
