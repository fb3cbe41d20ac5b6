"""`python -m meta op new NAME --like OTHER`: rows, or a package, that compute what the other operator computes."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import meta
from meta import errors
from meta.cli import main
from meta.inspect.sources import CHECKOUT
from meta.op import registry
from meta.template.statements import copies, insert

COPIED = ["tanh", "max", "abs", "softmax"]
"""An entry of a table; a statement with an alias; one with a Python operator; decorated functions."""

SCRIPT = """
import sys
from dataclasses import fields

def forget():
    # What was generated and declared before does not stay in the process.
    assert "tvm" not in sys.modules
    for name in [name for name in sys.modules if name.partition(".")[0] in ("meta", "scripts")]:
        del sys.modules[name]

from meta.cli import main
for other in sys.argv[1:]:
    assert main(["op", "new", f"new_{other}", "--like", other]) == 0
forget()
from scripts.src_codegen.__main__ import main
assert main([]) == 0
forget()

import numpy as np
import meta
from meta.inspect import checklist
from meta.op.dispatch import implementations
from meta.op.registry import get

x = meta.array(np.random.default_rng(0).uniform(0.1, 0.9, (3, 4)).astype("float32"), requires_grad=True)

def differentiated(op):
    # The gradient, and the gradients of its squares.
    y = op(x)
    dy = meta.array(np.arange(1.0, 1.0 + y.size, dtype="float32").reshape(y.shape), requires_grad=True)
    (dx,) = meta.autograd.grad(y, [x], [dy], create_graph=True)
    second = meta.autograd.grad((dx * dx).sum(), [x, dy], allow_unused=True)
    return [dx.detach(), *(each for each in second if each is not None)]

for other in sys.argv[1:]:
    new, old = get(f"new_{other}"), get(other)
    for fact in fields(old):
        if fact.name not in ("name", "aliases", "operator", "declare"):
            assert getattr(new, fact.name) == getattr(old, fact.name), fact.name
    assert [i.dialect.name for i in implementations(new)] == ["tvm", "reference"]
    functions = getattr(meta, new.name), getattr(meta, other)
    with meta.with_dialect("tvm"):
        results = [function(x.detach()) for function in functions]
    with meta.with_dialect("reference"):  # formulas are those of every dialect, and NumPy needs no compilation
        gradients = [differentiated(function) for function in functions]
        assert len(gradients[0]) > 1
    for result, expected in zip([results[0], *gradients[0]], [results[1], *gradients[1]], strict=True):
        np.testing.assert_array_equal(result.numpy(), expected.numpy())
    parts = checklist(new)
    assert {name for name, part in parts.items() if part.state == "missing"} == {"torch"}, parts
program = meta.vm.compile(meta.trace(functions[0]))
np.testing.assert_array_equal(program(x.detach()).numpy(), results[1].numpy())
"""


def run(folder: Path, *arguments: str) -> str:
    """The output of Python in a copy of the repository."""
    command = [sys.executable, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    completed = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_the_copies_compute_the_same(tmp_path: Path) -> None:
    """They have the facts and, bit for bit, the results and gradients of the operators that they copy, which the
    generic tests check."""
    for part in ("meta", "scripts", "tests/python/op/samples", "docs/reference"):
        shutil.copytree(CHECKOUT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    out = run(tmp_path, "-c", SCRIPT, *COPIED)
    assert "new_tanh computes what tanh computes. Edit:" in out
    edits = out.partition("new_softmax computes")[2].partition("Then:")[0].splitlines()
    steps = [line.split()[0] for line in edits[1:] if ":" in line]
    assert len(steps) == 6
    for path, _, number in (step.rpartition(":") for step in steps[1:]):
        line = (tmp_path / path).read_text(encoding="utf-8").splitlines()[int(number) - 1]
        assert "new_softmax" in line, path


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


def computed(name: str, dialect: str) -> list[np.ndarray]:
    """The result of an operator and, in the reference dialect, its gradients."""
    shapes = [(3, 4), (4,)] if name.endswith("bias_add") else [(3, 4)] * len(registry.get(name).schema.args)
    inputs = [meta.array(np.random.default_rng(0).random(shape, "float32"), requires_grad=True) for shape in shapes]
    namespace, _, basename = name.rpartition("::")
    y = getattr(getattr(meta.ops, namespace) if namespace else meta, basename)(*inputs)
    gradients = meta.autograd.grad(y, inputs, [meta.ones(y.shape)]) if dialect == "reference" else []
    return [y.detach().numpy(), *(gradient.numpy() for gradient in gradients)]


@pytest.mark.usefixtures("remove_operators")
def test_packages_pass_their_own_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_operator_modules", ())
    folders = [tmp_path / f"package-of-{other}" for other in ("tanh", "hypot", "bias_add")]
    for folder in folders:
        other = folder.name.removeprefix("package-of-")
        assert main(["op", "new", f"my_{other}", "--like", other, "--package", str(folder)]) == 0
        out = capsys.readouterr().out
        module = folder.name.replace("-", "_")
        assert f"{folder}/src/{module}/compute.py:1" in out
        assert f"python -m pytest {folder}" in out
        project = (folder / "pyproject.toml").read_text(encoding="utf-8")
        assert f'[project.entry-points."meta.operators"]\n{module} = "{module}"\n' in project
        monkeypatch.syspath_prepend(folder / "src")
        tests = runpy.run_path(str(folder / f"tests/test_my_{other}.py"))  # it imports the package
        assert Path(str(sys.modules[module].__file__)).is_relative_to(folder)
        for dialect in ("tvm", "reference"):
            with meta.with_dialect(dialect):
                pairs = zip(computed(f"{module}::my_{other}", dialect), computed(other, dialect), strict=True)
                for result, expected in pairs:
                    np.testing.assert_array_equal(result, expected)
    tests["test_my_bias_add"]()
    assert (folders[2] / "src/package_of_bias_add/gradient.py").exists()
    assert main(["op", "new", "my_gelu", "--like", "gelu", "--package", str(folders[0])]) == 1
    assert f"{folders[0]} exists already; expected a new folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "like", "folder", "text"),
    [
        ("mine", "conv2d", "new", "no package can be modelled on conv2d: it has generic"),
        ("mine", "sum", "new", "meta/op/dialect/tvm/reduce.py registers it in a loop or by a helper"),
        ("mine", "adam", "new", "it has inplace"),
        ("mine", "tanh", "json", "'json' is installed; expected the name of a new module"),
        ("mine", "tanh", "1st", "'1st' is not a name that a module can have"),
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
