"""`python -m meta op new NAME --like OTHER`: rows, or a package, that compute what the other operator computes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from meta.cli import main
from meta.inspect.sources import CHECKOUT
from meta.template.rows import copies, insert

COPIED = ["tanh", "max", "abs", "softmax"]
"""An entry of a table; a statement with an alias; one with a Python operator; decorated functions."""

WRITE = """
import sys
from meta.cli import main
for other in sys.argv[1:]:
    assert main(["op", "new", f"new_{other}", "--like", other]) == 0
"""
CHECK = """
import sys
import numpy as np
import meta
from meta.inspect import checklist
from meta.testing import opcheck
x = meta.array(np.random.default_rng(0).uniform(0.1, 0.9, (3, 4)).astype("float32"))
for other in sys.argv[1:]:
    new, old = getattr(meta, f"new_{other}"), getattr(meta, other)
    np.testing.assert_array_equal(new(x).numpy(), old(x).numpy())
    report = opcheck(new, (x,))
    assert not {"dialects", "gradient", "second_order"} & {finding.check for finding in report.skipped}, report
    parts = checklist(f"new_{other}")
    assert {name for name, part in parts.items() if part.state == "missing"} == {"torch"}, parts
"""


def run(folder: Path, *arguments: str, paths: Sequence[Path] = ()) -> str:
    """The output of Python in a copy of the repository, or in the repository itself."""
    command = [sys.executable, *arguments]
    path = os.pathsep.join(map(str, (folder, *paths)))
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_copies_pass_the_generic_checks(tmp_path: Path) -> None:
    for part in ("meta", "scripts", "tests/python/op/samples", "docs/reference"):
        shutil.copytree(CHECKOUT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    out = run(tmp_path, "-c", WRITE, *COPIED)
    assert "new_tanh computes what tanh computes. Edit:" in out
    steps = [line.split()[0] for line in out.partition("new_softmax computes")[2].splitlines() if ":" in line][1:-1]
    assert len(steps) == 6
    for path, _, number in (step.rpartition(":") for step in steps[1:]):
        line = (tmp_path / path).read_text(encoding="utf-8").splitlines()[int(number) - 1]
        assert "new_softmax" in line, path
    run(tmp_path, "-m", "scripts.src_codegen")
    run(tmp_path, "-c", CHECK, *COPIED)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["relu", "--like", "tanh"], "[op new] meta.relu exists already; expected a new name"),
        (["my-op", "--like", "tanh"], "an operator cannot be called 'my-op'"),
        (["class", "--like", "tanh"], "an operator cannot be called 'class'"),
        (["mine", "--like", "tanhh"], "did you mean 'tanh'"),
        (["mine", "--like", "conv2d"], "meta/op/declare/conv.py are made in a loop or by a helper"),
        (["mine"], "got 1 names and no --like; expected python -m meta op new NAME --like OTHER"),
    ],
)
def test_refusals_write_nothing(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = [CHECKOUT / "meta/op/declare/unary.py", CHECKOUT / "meta/op/grad/derivatives.yaml"]
    before = [path.read_text(encoding="utf-8") for path in files]
    assert main(["op", "new", *arguments]) == 1
    assert text in capsys.readouterr().err
    assert [path.read_text(encoding="utf-8") for path in files] == before


def test_packages_pass_their_own_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [tmp_path / f"package-of-{other}" for other in ("tanh", "hypot", "layer_norm")]
    for folder in folders:
        other = folder.name.removeprefix("package-of-")
        assert main(["op", "new", f"my_{other}", "--like", other, "--package", str(folder)]) == 0
        out = capsys.readouterr().out
        module = folder.name.replace("-", "_")
        assert f"{folder}/src/{module}/compute.py:1" in out
        assert f"python -m pytest {folder}" in out
        project = (folder / "pyproject.toml").read_text(encoding="utf-8")
        assert f'[project.entry-points."meta.operators"]\n{module} = "{module}"\n' in project
    assert (folders[2] / "src/package_of_layer_norm/gradient.py").exists()
    assert main(["op", "new", "my_gelu", "--like", "gelu", "--package", str(folders[0])]) == 1
    assert f"{folders[0]} exists already; expected a new folder" in capsys.readouterr().err
    pytest_options = ["-q", "-W", "error", "-p", "no:cacheprovider", "--import-mode=importlib"]
    out = run(CHECKOUT, "-m", "pytest", *pytest_options, *map(str, folders), paths=[f / "src" for f in folders])
    assert "3 passed" in out


@pytest.mark.parametrize(
    ("name", "like", "folder", "text"),
    [
        ("mine", "conv2d", "new", "no package can be modelled on conv2d: it has generic"),
        ("mine", "sum", "new", "meta/op/dialect/tvm/reduce.py registers it in a loop or by a helper"),
        ("mine", "adam", "new", "it has inplace"),
        ("mine", "tanh", "json", "'json' is installed; expected the name of a new module"),
        ("mine", "tanh", "1st", "'1st' is no name for a module"),
        ("mine", "tanh", "softmax", "'softmax' is the name of an operator, which no namespace can have"),
    ],
)
def test_refused_packages_write_nothing(
    name: str, like: str, folder: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["op", "new", name, "--like", like, "--package", str(tmp_path / folder)]) == 1
    assert text in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('f("a")\nf("c")\n', 'f("a")\nf("b")\nf("c")\n'),
        ('f("c", operator="__c__", aliases=("d",))\n', 'f("b")\nf("c", operator="__c__", aliases=("d",))\n'),
        ('f("d")\nf("c")\n', 'f("d")\nf("c")\nf("b")\n'),
        ('t({\n    "a": 1,\n    "c": g(\n        2),\n})\n',
         't({\n    "a": 1,\n    "b": g(\n        2),\n    "c": g(\n        2),\n})\n'),
        ('t({"a": 1, "c": 2})\n', 't({"a": 1, "c": 2, "b": 2})\n'),
        ('L = [\n    S("c", 1),\n    *(S("c", i) for i in x),\n]\n',
         'L = [\n    S("c", 1),\n    S("b", 1),\n    *(S("c", i) for i in x),\n    *(S("b", i) for i in x),\n]\n'),
        ('@f("a")\n@f("c")\ndef run(c):\n    return c\n',
         '@f("a")\n@f("c")\ndef run(c):\n    return c\n\n\n@f("b")\ndef b(c):\n    return c\n'),
        ('for name in ("c",):\n    f(name)\n', 'for name in ("c",):\n    f(name)\n'),
    ],
)  # fmt: skip
def test_places_of_copies(source: str, expected: str) -> None:
    text, numbers = insert(source, copies(source, "c", "b"))
    assert text == expected
    assert all('"b"' in text.splitlines()[number - 1] for number in numbers)
