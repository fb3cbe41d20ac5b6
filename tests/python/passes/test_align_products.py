"""align_products: which products are padded, and that results stay."""

from __future__ import annotations

import sys

import pytest

import meta
from meta import passes
from meta._generated import limits
from meta.ir.type import TensorType, tensor_type
from meta.passes import align_products
from tests.python.passes.programs import check_same_results, lines, program

implementation = sys.modules["meta.passes.align_products"]  # the package exports the pass of the same name


@pytest.fixture(autouse=True)
def _small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ALIGNED_PRODUCTS", 1000)


def half(*shape: int) -> TensorType:
    return tensor_type(shape, "bfloat16")


def aligned(function, *types) -> list[str]:
    """The operators of a program for a GPU after the pass; its results on the CPU are checked."""
    before = program(function, *types)
    after = passes.dce(align_products(passes.place("cuda")(before)))
    check_same_results(before, passes.place("cpu")(after))
    return [line.split(" = ")[1].split("(")[0] for line in lines(after) if " = " in line]


PRODUCTS = {
    "dense, columns": (meta.dense, (half(16, 256), half(30, 256)), ["pad", "dense", "strided_slice", "reshape"]),
    "dense with bias": (
        meta.dense, (half(16, 256), half(30, 256), half(30)), ["pad", "pad", "dense", "strided_slice", "reshape"],
    ),
    "dense of float32": (
        meta.dense, (tensor_type((16, 256)), tensor_type((30, 256))), ["pad", "dense", "strided_slice", "reshape"],
    ),
    "dense of rank 3": (
        meta.dense, (half(2, 8, 256), half(30, 256)), ["reshape", "pad", "dense", "strided_slice", "reshape"],
    ),
    "dense, terms": (meta.dense, (half(16, 257), half(32, 257)), ["pad", "pad", "dense", "reshape"]),
    "matmul, terms": (meta.matmul, (half(16, 257), half(257, 32)), ["pad", "pad", "matmul", "reshape"]),
    "transposed x1, rows": (
        lambda a, b: meta.matmul(a, b, transpose_a=True), (half(256, 30), half(256, 32)),
        ["pad", "matmul", "strided_slice", "reshape"],
    ),
    "both transposed": (
        lambda a, b: meta.matmul(a, b, transpose_a=True, transpose_b=True), (half(257, 31), half(33, 257)),
        ["pad", "pad", "matmul", "strided_slice", "reshape"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_pads_products(name: str) -> None:
    function, types, ops = PRODUCTS[name]
    assert aligned(function, *types) == ops


def test_a_matrix_is_padded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a linear layer takes its operand in rank 3 and as a matrix."""
    monkeypatch.setattr(limits, "ALIGNED_TERMS", 16)

    def products(dy, w, x):
        matrix = dy.reshape((16, 31))
        return meta.matmul(matrix.reshape((2, 8, 31)), w), meta.matmul(matrix, x, transpose_a=True)

    module = program(products, half(2, 8, 31), half(31, 256), half(16, 256))
    after = passes.standard()(passes.place("cuda")(module))
    assert sum("pad(" in line for line in lines(after)) == 2  # dy and w


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (meta.dense, (half(16, 256), half(32, 256))),  # aligned as it is
        (meta.dense, (half(16, 255), half(30, 255))),  # sums too short
        (meta.dense, (tensor_type((16, 256), "float64"), tensor_type((30, 256), "float64"))),
        (meta.dense, (tensor_type((16, 256)), tensor_type((28, 256)))),  # float32 is aligned at four elements
        (meta.matmul, (half(2, 16, 257), half(2, 257, 32))),  # a batch of matrices
        (meta.matmul, (half(16, 257), half(257))),
        (
            lambda a, b: meta.matmul(a, b, transpose_a=True),
            (half(257, 16), half(257, 32)),
        ),  # the terms are not along the last axis
    ],
)
def test_leaves_other_products(function, types) -> None:
    assert [op for op in aligned(function, *types) if op not in ("dense", "matmul")] == []


def test_leaves_products_on_the_cpu() -> None:
    module = program(meta.dense, half(16, 256), half(30, 256))
    assert align_products(module) is module
