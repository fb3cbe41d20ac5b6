"""`python -m benchmarks.alternate` runs the benchmarks of two trees in turn and finds the rows that became slower."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import alternate
from benchmarks.alternate import Comparison, main

PROGRAM = """
import json, sys
group, file = sys.argv[2], sys.argv[4]
rows = {"eager": {"eager add": 1.0}, "vm": {"vm chain": VM, "vm step": 3.0}}
if group == "startup":
    sys.exit("no such group")
json.dump({"rows": [{"name": n, "value": v} for n, v in rows[group].items()]}, open(file, "w"))
"""


@pytest.fixture(autouse=True)
def _any_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave this process on its cores."""
    monkeypatch.setattr(alternate, "_one_device", lambda *_: None)


def sources(folder: Path, vm: float = 2.0) -> str:
    """A folder with benchmarks, one of whose rows takes the time `vm`."""
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "__init__.py").write_text("")
    (folder / "benchmarks" / "__main__.py").write_text(PROGRAM.replace("VM", str(vm)))
    return str(folder)


def test_a_slower_row_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = sources(tmp_path / "old"), sources(tmp_path / "new", 2.2)
    results = tmp_path / "results.json"
    assert main([old, new, "--rounds", "2", "--json", str(results)]) == 1
    out = capsys.readouterr().out
    assert "startup is left out: " in out
    assert "it ended with 1: no such group" in out
    assert "| vm chain | 2 | 2.2 | 1.100 | 1.000 | SLOWER |" in out
    assert out.endswith("3 rows, 1 slower, 0 faster\n")
    (chain,) = (row for row in json.loads(results.read_text()) if row["name"] == "vm chain")
    assert (chain["old"], chain["new"]) == ([2.0, 2.0], [2.2, 2.2])
    assert main([new, old, "--rounds", "1", "--part", "vm", "--only", "ch*in"]) == 0
    out = capsys.readouterr().out
    assert "| vm chain | 2.2 | 2 | 0.909 | 1.000 | faster |" in out
    assert "vm step" not in out


def test_times_within_the_spread_of_the_old_commit_are_noise() -> None:
    assert Comparison("row", [1.0, 1.0, 1.0], [1.1, 1.04, 1.05]).verdict == "SLOWER"
    assert Comparison("row", [1.0, 1.1, 1.0], [1.06, 1.2, 1.06]).verdict == ""
    assert Comparison("row", [1.0, 1.0, 1.0], [1.5, 1.0, 1.0]).verdict == ""


def test_commits_are_checked_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    sources(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "--no-verify", "-m", "first"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert main(["HEAD", "--rounds", "1", "--part", "vm"]) == 0
    assert "2 rows, 0 slower, 0 faster" in capsys.readouterr().out
    for source, problem in (
        ("HEAD~7", "'HEAD~7' is neither a folder nor a commit"),
        (".git", "has no folder benchmarks"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main([source, "."])
        assert problem in capsys.readouterr().err


def test_nothing_measured_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = sources(tmp_path / "tree")
    assert main([tree, tree, "--rounds", "1", "--only", "no such row"]) == 2
    with pytest.raises(SystemExit, match="2"):
        main([tree, tree, "--part", "mlp"])
    assert "there is no part mlp" in capsys.readouterr().err


def test_rows_of_training_and_operators(tmp_path: Path) -> None:
    line = 'RESULT {"meta": {"ms": 1.5, "first": 2.0}}\n'
    assert alternate._step("mlp", "words\n" + line, tmp_path) == {
        "mlp step": 1.5, "mlp first step": 2.0,
    }  # fmt: skip
    with pytest.raises(ValueError, match="it printed no result"):
        alternate._step("mlp", "", tmp_path)
    with pytest.raises(ValueError, match="no memory"):
        alternate._step("mlp", 'RESULT {"meta": {"error": "no memory"}}', tmp_path)
    file = tmp_path / "rows"
    file.write_text(json.dumps({"op": "tanh", "size": "4", "direction": "forward", "ours": 3.0}) + "\n")
    assert alternate._operators("", file) == {"tanh 4 forward": 3.0}
    assert alternate._operators("", tmp_path / "none") == {}


def test_suites_of_a_gpu_use_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    alternate._one_device("cuda-train", None)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
