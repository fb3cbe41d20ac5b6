"""`python -m meta ops`: the list, the parts of each operator, and the exit status for missing ones."""

import json

import numpy as np
import pytest

import meta
from meta.cli import main
from meta.op import registry
from meta.schema import Arg, Schema, Tensor

Capture = pytest.CaptureFixture[str]


def test_lists_operators_by_family(capsys: Capture) -> None:
    assert main(["ops", "--only", "nn", "--only", "conv2d*"]) == 0
    conv, nn = capsys.readouterr().out.strip().split("\nnn: ")
    names = ["conv2d", "conv2d_dw", "conv2d_dx", "conv2d_epilogue", "conv2d_int8", "conv2d_packed", "conv2d_transpose"]
    assert " ".join(conv.split()) == f"conv: {', '.join(names)}"
    assert nn.startswith("bias_add, dropout")


def test_filters_by_pattern(capsys: Capture) -> None:
    assert main(["ops", "--pattern", "softmax", "--only", "nn"]) == 0
    assert capsys.readouterr().out == "nn: log_softmax, log_softmax_dx, softmax, softmax_dx\n"


def test_prints_the_parts_as_a_table(capsys: Capture) -> None:
    assert main(["ops", "--parts", "--only", "argmax", "--only", "softmax", "--only", "reshape"]) == 0
    head, *rows = (line.split() for line in capsys.readouterr().out.splitlines() if line)
    cells = {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows[:3]}
    assert cells["argmax"]["grad"] == cells["argmax"]["second"] == "-"
    assert cells["softmax"]["tvm"] == cells["softmax"]["grad"] == "yes"
    assert cells["softmax"]["amp"] == "never"
    assert int(cells["softmax"]["samples"]) > 1
    assert cells["reshape"]["tvm"] == cells["reshape"]["cuda"] == "-"


def test_prints_the_parts_as_json(capsys: Capture) -> None:
    assert main(["ops", "--json", "--only", "softmax"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data) == {"softmax"}
    assert data["softmax"]["grad"] == {"state": "present", "note": "formula", "remedy": ""}


def test_the_exit_status_of_missing_parts(capsys: Capture) -> None:
    assert main(["ops", "--only", "meta", "--missing", "grad,second,tvm,cuda,amp,reference,docs"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "operators lack grad 0, second 0, tvm 0" in out
    assert "no grad (non-differentiable): bitwise_and, " in out
    assert "no tvm (factorizations are LAPACK's and cuSOLVER's): eig, " in out
    assert main(["ops", "--only", "softmax", "--only", "matmul", "--missing", "torch"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "softmax: torch: no implementation. To add it: " in out
    assert "matmul" not in out


def test_missing_parts_of_a_package(capsys: Capture) -> None:
    name = "operator_without_gradient_of_a_test"
    declared = meta.define(name, Schema("x", Arg("x", Tensor)), reference=np.negative)
    try:
        declared(lambda x: x)
        assert main(["ops", "--only", __name__, "--missing", "grad,reference", "--json"]) == 1
        ((listed, parts),) = json.loads(capsys.readouterr().out).items()
        assert listed == name
        assert parts["grad"]["state"] == "missing"
        assert parts["reference"]["state"] == "present"
    finally:
        registry.remove(name)
        meta.__dict__.pop(name, None)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--missing", "grd"], "no part is called 'grd'; expected grad, second, "),
        (["--only", "sofmax"], "no operator matches 'sofmax'"),
    ],
)
def test_unknown_names(capsys: Capture, arguments: list[str], text: str) -> None:
    assert main(["ops", *arguments]) == 1
    err = capsys.readouterr().err
    assert text in err
    assert "did you mean" in err
