"""Reading ONNX models: sources, operators without a row, and files that are no models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from meta.errors import ArgumentError
from meta.frontend.onnx import OnnxError, UnsupportedError, examine, from_onnx
from tests.python.frontend.onnx.models import parsed

CONSTANTS = "g () => (float[2] y, int64 n) { y = Constant<value_floats=[1.0, 2.0]>()  n = Constant<value_int=3>() }"


def test_a_model_comes_as_a_path_bytes_and_a_proto(tmp_path: Path) -> None:
    proto = parsed(CONSTANTS)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    for source in (path, str(path), proto.SerializeToString(), proto):
        y, n = from_onnx(source).interpret()
        assert y.tolist() == [1.0, 2.0]
        assert n.item() == 3


def test_operators_without_a_row_are_listed_at_once() -> None:
    body = "g (float[2] x) => (float[2] y) { [first] a = Odd(x)  b = Odd(a)  [last] y = Strange(b) }"
    model = parsed(body)
    uses = [(use.name, use.supported, use.count) for use in examine(model)]
    assert uses == [("Odd", False, 2), ("Strange", False, 1)]
    expected = r"2 operators are not supported: Odd \(2 times: nodes first, <b>\), Strange \(once: node last\)"
    with pytest.raises(UnsupportedError, match=expected):
        from_onnx(model)


@pytest.mark.parametrize("data", [b"", b"\x00\x01", b"no model", b"\x08\x09"])
def test_bytes_that_are_no_model(data: bytes) -> None:
    with pytest.raises(OnnxError, match=r"\[onnx\] <onnx> (cannot be parsed|has no graph|imports no opset)"):
        from_onnx(data)


def test_other_objects_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"source is ndarray; expected a path, bytes, a ModelProto or an ir.Model"):
        from_onnx(np.zeros(3))
    with pytest.raises(OnnxError, match=r"cannot read .*missing.onnx: No such file"):
        from_onnx("missing.onnx")


def test_names_of_sizes_that_are_expressions_of_one_size() -> None:
    """As exporters of symbolic sizes write them; signs in other names are not arithmetic."""
    names = ["n", "2*n", "2*n + 1", "1 + n", "batch-size", "n + m", "n+1", "2*n + 1 + 1", "n*m", "2", "3*True"]
    expected = ["n", "2*n", "1 + 2*n", "1 + n"]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Identity", ["x0"], ["y"])], "g",
            [onnx.helper.make_tensor_value_info(f"x{i}", 1, [name]) for i, name in enumerate(names)],
            [onnx.helper.make_tensor_value_info("y", 1, ["n"])],
        )
    )  # fmt: skip
    sizes = [p.type.shape[0] for p in from_onnx(model).module.main.params]  # type: ignore[union-attr]
    assert list(map(str, sizes[:4])) == expected
    others = [size.name for size in sizes[4:]]  # type: ignore[union-attr]
    assert all(others)
    assert len(set(others)) == len(others)
