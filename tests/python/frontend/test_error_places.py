"""Errors of types that a reader meets are errors of that reader, with their place in the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import meta
from meta.backend.tvm import adapter as tvm
from meta.errors import ArgumentError, IRError, MetaError
from meta.frontend.onnx import OnnxError, from_onnx
from meta.frontend.relax import RelaxError, from_relax
from meta.frontend.relay import from_relay
from meta.frontend.relay.errors import RelayError
from meta.frontend.torch import TorchProgramError, from_exported
from meta.ir.parser import parse
from scripts import fuzz_pt2
from tests.python.frontend.relay.programs import DATA

LARGE = 2**62
MANY = 2**31
"""MANY x MANY elements are more than a type may have."""


def _text(text: str) -> Callable[[Path], Any]:
    return lambda _: from_relay(text)


def _json(_: Path) -> Any:
    """A program in JSON whose declared sizes are too large."""
    data = json.loads((DATA / "strided_set.json").read_text())
    for node in data["nodes"]:
        if node["type_key"] == "IntImm":
            node["attrs"]["value"] = str(2**31 - 1)
    return from_relay(json.dumps(data))


def _onnx(text: str) -> Callable[[Path], Any]:
    def read(_: Path) -> Any:
        onnx = pytest.importorskip("onnx")
        head = '<ir_version: 9, opset_import: ["" : 21]>'
        return from_onnx(onnx.parser.parse_model(head + text).SerializeToString())

    return read


def _pt2(change: Callable[[Any], None]) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        members = fuzz_pt2.contents(fuzz_pt2.examples()[0])
        name = next(name for name in members if name.endswith("models/model.json"))
        value = json.loads(members[name])
        change(value["graph_module"]["graph"])
        members[name] = json.dumps(value).encode()
        path = folder / "model.pt2"
        path.write_bytes(fuzz_pt2.packed(members))
        return from_exported(path)

    return read


def _large_input(graph: Any) -> None:
    graph["tensor_values"]["x"]["sizes"] = [{"as_int": LARGE}, {"as_int": 4}]


def _unfit_input(graph: Any) -> None:
    graph["tensor_values"]["more_a"]["sizes"][-1] = {"as_int": 9}


def _relax(params: str, value: str) -> Callable[[Path], Any]:
    def read(_: Path) -> Any:
        tvm.load()
        import tvm as package

        body = f"    @R.function\n    def main({params}):\n        y = {value}\n        return y\n"
        head = "# from tvm.script import ir as I\n# from tvm.script import relax as R\n@I.ir_module\nclass Module:\n"
        return from_relax(package.script.from_source(head + body, check_well_formed=False))

    return read


CASES: list[tuple[str, Callable[[Path], Any], type[MetaError], str]] = [
    ("relay-parameter", _text(f"def @main(%x: int8,\n %y: Tensor[({LARGE}), float32]) {{ %x }}"),
     RelayError, r"line 2, column \d+: 'y': shape \(4611686018427387904,\) of float32 is too large"),
    ("relay-function", _text(f"def @f(%x: int8) -> Tensor[({LARGE}), float32] {{\n @f(%x) }}\n"
                             "def @main(%x: int8) {\n @f(%x) }"),
     RelayError, r"line \d, column \d+: 'result of the function @f': shape \(4611686018427387904,\)"),
    ("relay-call", _text(f"def @main(%x: Tensor[({MANY}, 1), float32], %y: Tensor[(1, {MANY}), float32]) "
                         "{\n add(%x, %y) }"),
     RelayError, r"line 2, column \d+: add: .* is too large"),
    ("relay-json", _json, RelayError, r"node \d+: .* is too large"),
    ("onnx-input", _onnx(f"g (float[{LARGE}] x) => (float[n] y) {{ y = Relu(x) }}"),
     OnnxError, r"input 'x': shape \(4611686018427387904,\) of float32 is too large"),
    ("onnx-node", _onnx(f"g (float[{MANY}, 1] x, float[1, {MANY}] z) => (float[n, m] y) {{ y = Add(x, z) }}"),
     OnnxError, r"the Add that computes 'y': .* is too large"),
    ("pt2-input", _pt2(_large_input), TorchProgramError, r"tensor 'x': shape .* is too large"),
    ("pt2-node", _pt2(_unfit_input), TorchProgramError, r"node 'linear': aten.linear"),
    ("relax-parameter", _relax(f"x: R.Tensor(({LARGE},), 'float32')", "R.nn.relu(x)"),
     RelaxError, r"the parameter 'x' of @main: shape \(4611686018427387904,\)"),
    ("relax-binding", _relax(f"x: R.Tensor(({MANY}, 1), 'float32'), z: R.Tensor((1, {MANY}), 'float32')",
                             "R.add(x, z)"),
     RelaxError, r"@main, binding 'y': add: .* is too large"),
    ("ir-parameter", lambda _: parse(f'def main(%x: Tensor[({LARGE},), "int32"]) -> Tensor[(), "int32"] {{\n  %x\n}}'),
     IRError, r"text:1:14: shape .* is too large"),
    ("ir-binding", lambda _: parse("def main(%x: Tensor[(2, 3), \"float32\"]) -> Tensor[(2, 3), \"float32\"] {\n"
                                   "  %y = matmul(%x, %x)\n  %y\n}"),
     IRError, r"text:2:8: \[matmul\] shapes"),
]  # fmt: skip


@pytest.mark.parametrize(("read", "kind", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_errors_of_types_have_a_place(
    read: Callable[[Path], Any], kind: type[MetaError], words: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=words):
        read(tmp_path)


def test_a_shape_that_is_given_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"shapes\['x'\]: shape .* is too large; expected less than 2\*\*63 bytes"):
        from_relay("def @main(%x: Tensor[(2), float32]) { %x }", shapes={"x": (LARGE,)})
    assert meta.frontend.relay.from_relay("def @main(%x: Tensor[(2), float32]) { %x }", shapes={"x": (3,)})
