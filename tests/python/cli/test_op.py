"""`python -m meta op NAME`: it prints what the files of an operator and the registry contain."""

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import meta
from meta.cli import main
from meta.inspect import checklist, describe
from meta.inspect.called_operators import operators_called
from meta.inspect.description import declaration
from meta.inspect.gradient import key_for
from meta.inspect.sources import CHECKOUT
from meta.op import registry
from meta.op.grad.rule import gradient_rule
from meta.op.registry import all_ops

OPS = tuple(op for op in all_ops() if op.declare.__module__.startswith("meta."))

MODULE = '''
import numpy as np
from tvm import topi
import meta
from meta.schema import Arg, Float, Schema, Tensor
from meta.testing import Sample, T

def helper(dy):
    return meta.multiply(dy, 2.0)

def {0}_grad(x, dy):
    return helper(meta.square(dy)) * x.sum()

@meta.define("{0}", Schema("{0}", Arg("x", Tensor, doc="Input."), Arg("by", Float, 2.0)),
             gradient={{"x": {0}_grad}}, tvm=lambda x, by: topi.multiply(x, by))
def {0}(x, by):
    """x * by."""
    return x

@meta.define("{0}_plain", Schema("{0}", Arg("x", Tensor)), reference=np.negative)
def {0}_plain(x):
    return x

@meta.define("{0}_twice", Schema("{0}", Arg("x", Tensor, doc="Input.")), gradient={{"x": "{0}_plain(dy)"}})
def {0}_twice(x):
    """Twice."""
    return x

SAMPLES = [Sample("{0}", T(3), ref=lambda x, by: x * by)]
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a module in the working directory that defines operators called like it."""
    name = f"operators_of_{request.node.name.partition('[')[0]}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(name), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    yield name
    sys.modules.pop(name, None)
    for operator in (name, f"{name}_plain", f"{name}_twice"):
        registry.remove(operator)
        meta.__dict__.pop(operator, None)


def line_at(location: str | None) -> str:
    """The line of a file that a location names."""
    assert location is not None
    path, _, line = location.rpartition(":")
    return (Path.cwd() / path).read_text(encoding="utf-8").splitlines()[int(line) - 1]


@pytest.fixture(scope="module")
def descriptions() -> dict[str, meta.inspect.Description]:
    return {op.name: describe(op) for op in OPS}


def test_every_operator_has_every_part_but_torch(descriptions: dict[str, meta.inspect.Description]) -> None:
    for name, description in descriptions.items():
        parts = checklist(description)
        assert {n for n, part in parts.items() if part.state in ("missing", "unknown")} <= {"torch"}, name


def test_locations_are_the_lines_of_the_parts(descriptions: dict[str, meta.inspect.Description]) -> None:
    for name, d in descriptions.items():
        assert d.gradient.location is not None
        assert key_for(name, line_at(d.gradient.location)) is not None
        assert line_at(d.reference_page).removeprefix("#") in (f"# {name}", f"## {name}")
        assert d.schema is None or "Schema(" in line_at(d.schema)
        assert line_at(d.type_function)
        for kernel in d.kernels:
            assert kernel.location is not None
            assert kernel.location.startswith(str((CHECKOUT / "meta").relative_to(Path.cwd())))
            places = (f"/op/dialect/{kernel.dialect}/", "/backend/", "/op/decompose/")
            assert any(place in kernel.location for place in places)


@pytest.mark.parametrize("op", OPS, ids=str)
def test_the_declaration_is_the_row_of_the_operator(op: registry.Op) -> None:
    """The line has its name; that of an operator for each rank, and of a step of an optimizer, is in the decorator of
    the type function that they share, and gradients of a group of operators have one line."""
    where = declaration(op)
    assert where is not None
    if 'standard_gradient(f"{name}_dx"' in line_at(where):
        assert op.name.endswith("_dx")
    elif f'"{op.name}"' not in line_at(where):
        source, first = inspect.getsourcelines(op.declare)
        decorator = next(i for i, text in enumerate(source) if text.lstrip().startswith("def "))
        assert op.family == "optimizer" or re.search(r"[1-3]d", op.name)
        assert int(where.rpartition(":")[2]) in range(first, first + decorator)


def test_softmax() -> None:
    d = describe("softmax")
    assert line_at(d.declaration).startswith('@declare("softmax"')
    assert line_at(d.gradient.location) == 'softmax: {x: "softmax_dx(y, dy, axis)"}'
    assert [formula.text for formula in d.gradient.formulas] == ["softmax_dx(y, dy, axis)"]
    assert d.gradient.saved == ("y",)
    assert [(called.name, called.state) for called in d.gradient.calls] == [("softmax_dx", "differentiable")]
    assert '"softmax"' in line_at(d.samples.location)
    assert any(text.startswith("tvm (plevel 10): accepts") for text in d.samples.candidates)
    assert {converted.name for converted in d.relay} == {"nn.softmax", "nn.fast_softmax"}


def test_gradient_functions_are_followed() -> None:
    d = describe("layer_norm")
    assert {"layer_norm_dx", "layer_norm_dwb"} <= {called.name for called in d.gradient.calls}
    (both,) = (formula for formula in d.gradient.formulas if len(formula.arguments) == 2)
    assert both.text == "layer_norm_parameters"
    assert "def layer_norm_parameters" in line_at(both.location)


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [("argmax", "non_differentiable", ""), ("adam", "not_implemented", "it updates its arguments in place")],
)
def test_answers_without_a_formula(name: str, state: str, reason: str) -> None:
    d = describe(name)
    assert (d.gradient.state, d.gradient.reason) == (state, reason)
    assert checklist(d)["grad"].state == checklist(d)["second"].state == "not needed"


def test_refusals_say_what_a_checker_returns() -> None:
    (refusal,) = next(k for k in describe("conv2d").kernels if k.dialect == "torch").refusals
    assert refusal.texts == ("ATen convolves floats, not {dtype}",)
    assert "def _unsupported" in line_at(refusal.location)


def test_limits_are_the_limits_of_dispatch() -> None:
    limits = next(k for k in describe("matmul").kernels if k.dialect == "torch").limits
    assert any(text.startswith("cpu: from 1_000 multiplications (") for text in limits)


def test_dialects_that_are_off_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    from meta.inspect import implementation
    from meta.op.dispatch import implementations

    for op in {op.family: op for op in OPS}.values():
        implementations(op)  # a family that is loaded while all dialects are off stays without implementations
    monkeypatch.setattr(implementation, "implementations", lambda op: implementations(op)[-1:])
    monkeypatch.setattr("meta.op.dispatch.Dialect.unavailable", lambda self: "no library")
    names = {"conv2d": {"cudnn", "torch", "tvm", "reference"}, "relu": {"tvm", "reference"}}
    for name, dialects in names.items():
        kernels = describe(name).kernels
        assert {k.dialect for k in kernels} == dialects
        assert all(f'"{name[:4]}' in line_at(k.location) for k in kernels if k.dialect != "reference")
        assert all(k.off == "no library" for k in kernels)


def test_calls_are_read_from_nested_functions_and_tables() -> None:
    table = {1: meta.sin, 2: meta.cos}

    def function(x: Any) -> Any:
        return [meta.exp(item) for item in x] and table[len(x)](meta.no_such_operator(x))

    assert operators_called(function) == ("exp", "no_such_operator")
    rule = gradient_rule("softmax")
    assert rule is not None
    assert operators_called(rule.function) == ("softmax_dx",)
    assert operators_called(lambda x: x.sum() + meta.array(1), methods=True) == ("sum",)
    assert operators_called(meta.relu) == ("relu",)
    assert operators_called(len) == ()


def test_prints_text_within_the_width(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert main(["op", "batch_norm_train", "relu"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 72
    for heading in ("arguments", "gradient", "dialects", "facts", "samples", "reference page", "missing"):
        assert f"\n{heading}" in out
    assert "relu: reference" not in out
    assert "x: relu_dx(y, dy)" in out


def test_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["op", "softmax", "--json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)
    assert data["name"] == "softmax"
    assert data["gradient"]["saved"] == ["y"]
    assert data["parts"]["grad"]["state"] == "present"


def test_an_unknown_name_has_near_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["op", "sofmax"]) == 1
    assert "is called 'sofmax'; did you mean 'softmax'" in capsys.readouterr().err


def test_operators_of_a_module(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["op", module, "--import", module]) == 0
    out = capsys.readouterr().out
    d = describe(module, modules=(module,))
    assert line_at(d.declaration).startswith(f'@meta.define("{module}"')
    (formula,) = d.gradient.formulas
    assert line_at(formula.location) == f"def {module}_grad(x, dy):"
    assert d.gradient.saved == ("x",)
    assert [called.name for called in d.gradient.calls] == ["multiply", "square", "sum"]
    (kernel,) = d.kernels
    assert "tvm=lambda" in line_at(kernel.location)
    assert d.samples.count == 1
    assert f"{module}.py:14" in out
    assert "docs: no text for by" in out


def test_parts_of_operators_of_a_module(module: str) -> None:
    __import__(module)
    plain, twice = checklist(f"{module}_plain"), checklist(f"{module}_twice")
    assert plain["grad"].state == plain["second"].state == plain["tvm"].state == plain["cuda"].state == "missing"
    assert plain["docs"].note == "no description"
    assert plain["reference"].state == "present"
    assert plain["samples"].remedy.startswith("SAMPLES = [")
    assert twice["grad"].state == "present"
    assert twice["second"].note == f"no gradient of {module}_plain"


def test_import_of_a_missing_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["op", "relu", "--import", "no_such_module"]) == 1
    assert "module 'no_such_module' cannot be imported" in capsys.readouterr().err
