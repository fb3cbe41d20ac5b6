"""Indices in CUDA source, evaluated for every thread: TVM's flattening of buffers loses no offset."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library
from meta.backend.tvm.schedule import patterns
from tests.python.backend.tvm.test_cuda_code import _gpu_target as _gpu_target

Index = Callable[..., tuple[Any, ...]]
MOVES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Index]] = {
    "two axes rolled": ((4, 6), (4, 6), lambda i, j: ((i + 1) % 4, (j + 4) % 6)),
    "rolled the other way": ((4, 6), (4, 6), lambda i, j: ((i - 1) % 4, (j - 4) % 6)),
    "three axes rolled": ((2, 3, 4), (2, 3, 4), lambda i, j, k: ((i + 1) % 2, (j + 2) % 3, (k + 3) % 4)),
    "rolled and reshaped": ((24,), (4, 6), lambda i: ((i // 6 + 3) % 4, (i % 6 + 5) % 6)),
    "rolled as one axis": ((24,), (4, 6), lambda i: ((i + 5) // 6 % 4, (i + 5) % 6)),
    "sliced and reshaped": ((5, 4), (4, 6), lambda i, j: ((i * 4 + j + 3) // 6, (i * 4 + j + 3) % 6)),
    "every other element": ((3, 4), (4, 6), lambda i, j: ((i * 8 + j * 2 + 1) // 6, (i * 8 + j * 2 + 1) % 6)),
    "repeated": ((24,), (3,), lambda i: ((i + 2) % 3,)),
}
COPY = re.compile(r"^\s*\w+\[(.*?)\] = \w+\[(.*)\];$", re.MULTILINE)


def positions_read(code: str, count: int) -> list[int]:
    """The source position of each element of the result, from a kernel of one block that copies elements."""
    ((target, source),) = COPY.findall(code)
    positions = [-1] * count
    for thread in range(count):
        stores, loads = (
            eval(re.sub(r"\(\(int\)(\w+)Idx\.x\)", r"\1", each).replace("/", "//"), {"thread": thread, "block": 0})
            for each in (target, source)
        )
        positions[stores] = loads
    return positions


@pytest.mark.parametrize(("shape", "source", "index"), MOVES.values(), ids=MOVES)
def test_elements_are_read_from_their_place(
    shape: tuple[int, ...], source: tuple[int, ...], index: Index, target: Any
) -> None:
    x = tvm.te.placeholder(source, "float32", "x")
    y = tvm.te.compute(shape, lambda *i: x(*index(*i)), "y")
    function = patterns.schedule(tvm.create_prim_func([x, y]), "injective", target)
    code = "".join(m.inspect_source() for m in library.compile_functions({"kernel": function}, target).imports)
    expected = np.arange(np.prod(source)).reshape(source)[index(*np.indices(shape))]
    assert positions_read(code[code.rindex('extern "C"') :], expected.size) == expected.ravel().tolist()
