"""Library kernels run for large problems, and for small ones only inside `with_dialect`."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
import meta.op.dialect.torch as torch_dialect
from meta.device import device
from meta.ir.expr import CallInfo
from meta.ir.layout import StridedLayout
from meta.ir.type import tensor_type
from meta.op.dispatch import Dialect, implementations
from meta.op.registry import get

pytest.importorskip("torch")


def zeros(*shape: int) -> Any:
    return meta.array(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("op", "small", "large"),
    [
        ("matmul", (zeros(8, 8), zeros(8, 8)), (zeros(64, 64), zeros(64, 64))),
        ("attention_with_lse", (zeros(2, 5, 8),) * 3, (zeros(8, 63, 63),) * 3),
        ("sort", (zeros(3, 5),), (zeros(64, 128),)),
        ("tan", (zeros(3, 5),), (zeros(64, 128),)),
        ("atan2", (zeros(3, 5),) * 2, (zeros(64, 128),) * 2),
        ("concatenate", ([zeros(3, 5), zeros(3, 5)],), ([zeros(64, 128), zeros(64, 128)],)),
    ],
)
def test_torch_is_called_for_large_problems(op: str, small: tuple[Any, ...], large: tuple[Any, ...]) -> None:
    assert str(meta.explain(op, *large)).startswith(f"{op}: torch")
    explained = str(meta.explain(op, *small))
    assert explained.startswith(f"{op}: tvm")
    assert "too few: below" in explained
    with meta.with_dialect(["torch", "tvm"]):
        assert str(meta.explain(op, *small)).startswith(f"{op}: torch")


_EDGES = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-38, 3.4e38, -3.4e38, 0.5, 1e8, 2.0]
_EDGES += [88.8, -89.2, 709.9, -710.2]  # near the overflow of hyperbolic functions
_SPREAD = np.random.default_rng(0).uniform(-100, 100, 4096)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "op",
    ["acos", "asin", "atan", "atan2", "atanh", "cos", "cosh", "erfc", "erfinv", "exp2", "floor_divide", "hypot",
     "lgamma", "log10", "log2", "mod", "power", "sin", "sinh", "tan", "trunc_mod"],
)  # fmt: skip
def test_vectorised_functions_agree_with_tvm(op: str, dtype: str) -> None:
    first, second = np.meshgrid(_EDGES, _EDGES)
    pairs = [
        np.concatenate([e.reshape(-1), _SPREAD, s]).astype(dtype) for e, s in ((first, _SPREAD), (second, -_SPREAD))
    ]
    count = len([a for a in get(op).schema.args if a.is_tensor])
    arrays = [
        meta.array(v)
        for v in (pairs[0] / 100 if op in ("acos", "asin", "atanh", "erfinv") else pairs[0], pairs[1])[:count]
    ]
    assert str(meta.explain(op, *arrays)).startswith(f"{op}: torch")
    ours = getattr(meta.ops, op)(*arrays).numpy()
    with meta.with_dialect(["tvm"]):
        expected = getattr(meta.ops, op)(*arrays).numpy()
    np.testing.assert_allclose(ours, expected, rtol=8 * np.finfo(dtype).eps, atol=np.finfo(dtype).tiny)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(ours)[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("zeros", [[], [0.0, -0.0, 0.0, -0.0]])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8"])
def test_sorted_values_have_the_bits_of_tvms(dtype: str, zeros: list[float], descending: bool) -> None:
    rows = np.random.default_rng(0).uniform(0, 100, (96, 64))
    rows[0, :3] = [math.nan, math.inf, -math.inf] if dtype.startswith("float") else [3, 1, 2]
    rows[1, : len(zeros)] = zeros
    for axis in (0, 1):
        x = meta.array(rows.astype(dtype))
        assert str(meta.explain("sort", x)).startswith("sort: torch")
        ours = meta.ops.sort(x, axis, descending).numpy()
        with meta.with_dialect(["tvm"]):
            expected = meta.ops.sort(x, axis, descending).numpy()
        np.testing.assert_array_equal(ours, expected)
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(expected))


def test_each_file_implements_operators_of_its_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dispatch imports the file of the family of an operator, and no others."""
    families: dict[str, str] = {}
    for path in sorted(Path(torch_dialect.__file__).parent.glob("[a-z]*.py")):
        names: list[str] = []

        def record(_: Dialect, name: str, payload: Any = None, **__: Any) -> Any:
            names.append(name)  # noqa: B023
            return payload or (lambda function: function)

        monkeypatch.setattr(Dialect, "implement", record)
        runpy.run_path(str(path))
        families |= {name: path.stem for name in names if get(name).family != path.stem}
    assert families == {}


def test_vectorised_functions_are_for_static_sizes_on_the_cpu_in_one_dtype() -> None:
    x, half = zeros(64, 128), zeros(64, 128).cast("float16")
    assert "for tensors of known sizes of float32 and float64" in str(meta.explain("sin", half))
    assert "for tensors of known sizes" in str(meta.explain("atan2", x, 2.0))
    assert "for operands of one dtype" in str(meta.explain("atan2", x, x.cast("float64")))


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128", "int32"])
def test_products_on_cuda_are_of_floats_and_complex_numbers(dtype: str) -> None:
    kind, op = tensor_type((3, 3), dtype, device("cuda")), get("matmul")
    args = (kind, kind, False, True)
    call = CallInfo(op, args, op.declare(*args), device("cuda"))
    (product,) = (i for i in implementations(op) if i.dialect.name == "torch")
    refusal = product.options["accepts"](call)
    assert refusal == ("cuBLAS has no int32" if dtype == "int32" else None)


HEADS = StridedLayout((2, 8, 4, 8), (2, 4, 8, 8), (256, 8, 32, 1))
"""Four heads of two batches, whose axes have no common stride."""


@pytest.mark.parametrize(
    ("name", "args", "layouts", "strided"),
    [
        ("matmul", ((16, 32), (32, 8)), (StridedLayout((16, 96), (16, 32), (96, 1), 32), None), ("cuda",)),
        ("matmul", ((16, 32), (32, 8)), (StridedLayout((32, 16), (16, 32), (1, 16)), None), ("cuda", "cpu")),
        ("matmul", ((16, 32), (32, 8)), (StridedLayout((16, 96), (16, 32), (96, 1), 33), None), ()),  # not 16 bytes
        ("matmul", ((16, 32), (32, 8)), (StridedLayout((16, 96), (16, 32), (96, 3)), None), ()),
        ("matmul", ((16, 32), (32, 8)), (StridedLayout((1, 32), (16, 32), (0, 1)), None), ()),  # rows are not apart
        ("matmul", ((2, 4, 8, 8), (2, 4, 8, 8)), (HEADS, None), ()),
        ("matmul", ((8, 16, 8), (8, 8, 16)), (StridedLayout((16, 8, 8), (8, 16, 8), (8, 64, 1)), None), ("cuda",)),
        ("matmul", ((8, 16, 8), (8, 16)), (StridedLayout((16, 8, 8), (8, 16, 8), (8, 64, 1)), None), ()),
        ("dense", ((4, 16, 32), (8, 32)), (StridedLayout((4, 16, 64), (4, 16, 32), (1024, 64, 1)), None), ("cuda",)),
        ("dense", ((4, 16, 32), (8, 32)), (StridedLayout((16, 4, 32), (4, 16, 32), (32, 128, 1)), None), ()),
        ("dense", ((16, 32), (8, 32)), (None, StridedLayout((32, 8), (8, 32), (1, 8))), ("cuda", "cpu")),
    ],
)  # fmt: skip
def test_products_read_rows_of_whole_16_bytes_where_they_are(
    name: str, args: Any, layouts: tuple[StridedLayout | None, ...], strided: tuple[str, ...]
) -> None:
    """One stride for all batch axes, and rows of a matrix or of a transposed one; on the CPU BLAS is called without
    Python, for row-major matrices and transposed ones. strided: the devices."""
    for kind in ("cuda", "cpu"):
        on, op = device(kind), get(name)
        rest = (False, False) if name == "matmul" else (None,)
        types = (*(tensor_type(shape, "bfloat16", on) for shape in args), *rest)
        info = CallInfo(op, types, op.declare(*types), on, layouts)
        (product,) = (i for i in implementations(op) if i.dialect.name == "torch")
        assert product.options["strided"](info) is (kind in strided)
