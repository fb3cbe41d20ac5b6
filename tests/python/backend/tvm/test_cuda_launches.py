"""Which threads kernels of programs for CUDA have, and what they read, without a GPU."""

from __future__ import annotations

import re
from typing import Any

import pytest

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.ir.type import tensor_type
from tests.python.backend.tvm.test_cuda_programs import kernel_calls, plan
from tests.python.vm.programs import program


@pytest.mark.parametrize(
    ("rows", "length", "threads"),
    [(8192, 100, {"x": 32, "y": 8}), (4096, 1024, {"x": 128, "y": 2}), (4097, 1024, {"x": 32, "y": 8}), (64, 100, {})],
)
def test_rows_that_share_a_block(
    rows: int, length: int, threads: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many short rows: dlight has a block of 1024 threads for each."""

    def body(ops: Any, x: Any) -> list[Any]:
        return [ops.mean(ops.square(x), (1,), True)]

    planned = plan(program({"x": (rows, length)}, body), monkeypatch)
    (kernel,) = [f for f in planned.module.functions.values() if isinstance(f, tvm.PrimFunc)]
    bound = re.findall(r'thread_binding\((?:T.int64\()?(\d+)\)?, thread="threadIdx.(.)"', str(kernel))
    extents = {axis: int(extent) for extent, axis in bound if extent != "1"}
    assert extents == threads or (not threads and "y" not in extents)


@pytest.mark.parametrize("kept", [False, True])
def test_slices_are_read_where_they_are(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels read a slice of a large tensor in it, unless the slice is needed anyway."""
    monkeypatch.setattr(limits, "UNWRITTEN_BYTES", 1 << 10)

    def body(ops: Any, x: Any) -> list[Any]:
        y = ops.strided_slice(x, (0, 0), (640, 300))
        return [ops.exp(ops.subtract(y, ops.max(y, (1,), True))), *([y] if kept else [])]

    planned = plan(program({"x": (640, 304)}, body), monkeypatch)
    calls = [call.replace("1", "") for call in kernel_calls(planned)]
    assert calls[0] == ("strided_slice" if kept else "fused_strided_slice_max"), calls


def test_a_thread_fills_several_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """The zeros of a large table's gradient; additions to it have a thread each."""

    def body(ops: Any, dy: Any, indices: Any) -> list[Any]:
        return [ops.embedding_dx(dy, indices, 5000)]

    planned = plan(program({"dy": (64, 32), "indices": tensor_type((64,), "int64")}, body), monkeypatch)
    (kernel,) = [f for f in planned.module.functions.values() if isinstance(f, tvm.PrimFunc)]
    grids = [int(n) for n in re.findall(r'thread_binding\(T.int64\((\d+)\), thread="blockIdx.x"', str(kernel))]
    assert sorted(grids) == [64 * 32 // 128, -(-5000 * 32 // (128 * limits.ROW_STEPS))]
