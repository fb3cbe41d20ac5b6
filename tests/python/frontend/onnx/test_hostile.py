"""Models that are broken or hostile end in an error of meta that names the node or the value."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from meta.errors import NotSupportedError
from meta.frontend.onnx import OnnxError, UnsupportedError, from_onnx
from tests.python.frontend.onnx.models import parsed


def built(nodes: list[Any], initializers: list[Any] | None = None, inputs: int = 1, opset: int = 21) -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph(nodes, "g", [x] * inputs, [y], initializers or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def refused(model: Any, text: str, kind: type[Exception] = OnnxError) -> None:
    with pytest.raises(kind, match=text):
        from_onnx(model)


NEG = helper.make_node("Neg", ["x"], ["y"], "last")


def test_a_cycle() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], "first"), helper.make_node("Neg", ["a"], ["b"]), NEG]
    refused(
        built(nodes), r"\[onnx\] input 'b' of node 'first' \(Add\) is not computed before it is read; expected nodes"
    )


def test_a_value_that_nothing_computes() -> None:
    refused(
        built([helper.make_node("Neg", ["z"], ["y"], "n")]), r"input 'z' of node 'n' \(Neg\) is not computed before"
    )
    refused(built([]), "output 'y' of graph 'g' is not computed before it is read")


def test_names_that_are_taken() -> None:
    refused(built([NEG, NEG]), "<onnx> is not a valid model: Output 'y' is redeclared")
    refused(built([NEG], inputs=2), "two inputs of the graph are called 'x'; expected a distinct name for each")


def test_attributes_that_the_operator_does_not_have() -> None:
    refused(built([helper.make_node("Neg", ["x"], ["y"], "n", axis=1)]), r"node 'n' \(Neg\): the attribute axis")
    refused(
        built([helper.make_node("Softmax", ["x"], ["y"], "n", axis=1.5)]),
        "attribute axis is of type FLOAT; expected INT",
    )
    refused(built([helper.make_node("Concat", ["x"], ["y"], "n")]), r"node 'n' \(Concat\) lacks the attribute axis")
    refused(built([helper.make_node("Add", ["x"], ["y"], "n")]), r"node 'n' \(Add\) has 1 inputs; expected 2 to 2")


def test_types_that_contradict_each_other() -> None:
    cast = helper.make_node("Cast", ["x"], ["y"], "n", to=TensorProto.INT64)
    refused(built([cast]), "output 'y' is declared as float32 and is int64; expected one dtype")
    flat = helper.make_node("Unsqueeze", ["x", "axes"], ["y"])
    axes = numpy_helper.from_array(np.array([0]), "axes")
    refused(built([flat], [axes]), "output 'y' is declared with 1 dimensions and has 2")
    mixed = parsed("g (float[2] x, int64[2] i) => (float[2] y) { y = Add(x, i) }")
    refused(mixed, r"the Add that computes 'y': ")
    with pytest.raises(OnnxError, match="input 'x' is declared as float32 and is float64"):
        from_onnx(built([NEG])).interpret(np.zeros(2))


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (TensorProto(name="w", dims=[2], data_type=1, raw_data=b"1234"), "the data of initializer 'w', of shape .2,."),
        (
            TensorProto(name="w", dims=[2**40, 2**40], data_type=1),
            "initializer 'w' has shape .*; expected non-negative",
        ),
        (TensorProto(name="w", dims=[1 << 30], data_type=1), "initializer 'w' has shape .1073741824,. and no data"),
        (TensorProto(name="w", dims=[-1], data_type=1), "initializer 'w' has shape .-1,.; expected non-negative sizes"),
        (
            TensorProto(name="w", dims=[2], data_type=99),
            "<onnx> is not a valid model: 99 is not a valid DataType",
        ),
        (TensorProto(name="w", dims=[2], data_type=17), "initializer 'w' has dtype float8e4m3fn"),
    ],
)
def test_tensors_that_contradict_themselves(tensor: Any, text: str) -> None:
    refused(built([helper.make_node("Add", ["x", "w"], ["y"])], [tensor]), text)


def test_absurd_sizes_are_not_computed() -> None:
    shape = numpy_helper.from_array(np.array([1 << 40]), "shape")
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["c"], "big"),
        helper.make_node("ReduceSum", ["c"], ["s"], keepdims=0), helper.make_node("Add", ["x", "s"], ["y"]),
    ]  # fmt: skip
    program = from_onnx(built(nodes, [shape]))
    assert "1099511627776" in str(program.module)  # in the program, where it costs nothing until it is run


def test_an_input_without_end() -> None:
    model = parsed(f"g (float[{2**63 - 1}, 3] x) => (float[n, 3] y) {{ y = Neg(x) }}")
    refused(model, r"\[onnx\] input 'x': shape \(9223372036854775807, 3\) of float32 is too large; expected less than")


def test_functions_that_call_themselves() -> None:
    function = '<domain: "mine", opset_import: ["" : 21, "mine" : 1]> f(x) => (y) { y = mine.f(x) }'
    model = parsed("g (float[2] x) => (float[2] y) { y = mine.f(x) }", functions=function, imports=', "mine" : 1')
    refused(model, r"functions and subgraphs nest 65 deep; expected at most 64")


def test_opsets() -> None:
    newest = onnx.defs.onnx_opset_version()
    refused(built([NEG], opset=newest + 1), f"imports opset {newest + 1}; the installed onnx knows", UnsupportedError)
    refused(built([NEG], opset=0), "the model imports opset 0 of ''; expected a version from 1")
    model = parsed("g (float[2] x) => (float[2] y) { y = other.f(x) }", imports=', "other" : 1')
    refused(model, "1 operator is not supported: other::f", UnsupportedError)


OUTSIDE = "expected a file inside of the model's folder"


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("../secret.bin", OUTSIDE), ("/etc/passwd", OUTSIDE), ("link.bin", OUTSIDE), ("a\0b", OUTSIDE),
        ("missing.bin", "which does not exist"), ("short.bin", "which has 4"),
    ],
)  # fmt: skip
def test_external_data_stays_in_the_folder(tmp_path: Path, location: str, text: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"12345678")
    (folder / "short.bin").write_bytes(b"1234")
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    tensor = TensorProto(name="w", dims=[2], data_type=1, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    path = folder / "model.onnx"
    path.write_bytes(built([helper.make_node("Add", ["x", "w"], ["y"])], [tensor]).SerializeToString())
    with pytest.raises(OnnxError, match=f"the data of initializer 'w' .*{text}"):
        from_onnx(path)


def test_external_data(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 4 + np.array([1.0, 2.0], np.float32).tobytes())
    tensor = TensorProto(name="w", dims=[2], data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", "offset": "4", "length": "8"}.items():
        tensor.external_data.add(key=key, value=value)
    model = built([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert from_onnx(path).interpret(np.zeros(2, np.float32)).tolist() == [1.0, 2.0]
    refused(model, "lies in the file 'w.bin', and the model does not come from a file; expected a path to the model")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("offset", "-4", "External data offset must be non-negative, got -4"), ("offset", "one", "invalid literal"),
        ("offset", "8", "is 8 bytes from byte 8 of 'w.bin', which has 12; expected data inside of the file"),
        ("length", str(2**62), f"in 'w.bin' has {2**62} bytes by its own account; expected 8, as its shape and dtype"),
    ],
)  # fmt: skip
def test_places_of_external_data_that_are_wrong(tmp_path: Path, key: str, value: str, text: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(12))
    tensor = TensorProto(name="w", dims=[2], data_type=1, data_location=TensorProto.EXTERNAL)
    for each in (("location", "w.bin"), (key, value)):
        tensor.external_data.add(key=each[0], value=each[1])
    path = tmp_path / "model.onnx"
    path.write_bytes(built([helper.make_node("Add", ["x", "w"], ["y"])], [tensor]).SerializeToString())
    with pytest.raises(OnnxError, match=text):
        from_onnx(path)


@pytest.mark.parametrize("dtype", ["float32", "bool", "bfloat16"])
def test_external_data_is_read_once(tmp_path: Path, dtype: str) -> None:
    """Programs and models keep the values that they were read with, and live on when the file is cut off."""
    values = np.array([0, 1], dtype if dtype != "bfloat16" else ml_dtypes.bfloat16)
    tensor = numpy_helper.from_array(values, "w")
    (tmp_path / "w.bin").write_bytes(tensor.raw_data)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    tensor.ClearField("raw_data")
    path = tmp_path / "model.onnx"
    model = built([helper.make_node("Cast", ["w"], ["c"], to=1), helper.make_node("Add", ["x", "c"], ["y"])], [tensor])
    path.write_bytes(model.SerializeToString())
    program = from_onnx(path)
    with open(tmp_path / "w.bin", "r+b") as file:
        file.write(b"\0" * values.nbytes)
        file.flush()
        assert program.interpret(np.zeros(2, np.float32)).tolist() == [0.0, 1.0]
        file.truncate(0)
    assert program(np.zeros(2, np.float32)).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("location", "answers", "text"),
    [
        (
            "folder",
            {"isfile": True, "getsize": 8},
            r"the data of initializer 'w' in 'folder' cannot be read: Is a directory; expected a file",
        ),
        (
            "w.bin",
            {"getsize": 8},
            r"the data of initializer 'w' in 'w.bin' ends after 4 of 8 bytes; expected data inside",
        ),
    ],
)
def test_external_data_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, answers: dict[str, int], text: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "w.bin").write_bytes(b"1234")
    tensor = TensorProto(name="w", dims=[2], data_type=1, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    path = tmp_path / "model.onnx"
    path.write_bytes(built([helper.make_node("Add", ["x", "w"], ["y"])], [tensor]).SerializeToString())
    for name, answer in answers.items():
        monkeypatch.setattr(os.path, name, Mock(return_value=answer))
    with pytest.raises(OnnxError, match=text):
        from_onnx(path)


@pytest.mark.parametrize("split", ["", ", one"])
def test_sequences_of_a_dimension_are_bounded(split: str) -> None:
    """A size in the file took memory and time in proportion."""
    size = 10**12
    constant = " <int64 one = {1}>" if split else ""
    nodes = f"s = SplitToSequence(x{split}) n = SequenceLength(s)"
    model = parsed(f"g (float[{size}] x) => (int64 n){constant} {{ {nodes} }}")
    refused(model, rf"axis 0 with {size} elements has {size} parts; expected at most 1024", NotSupportedError)
