"""Sizes given as attributes: negative and absurd ones are refused; memory that runs out is a DeviceError."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import meta
from meta.backend.windows import adaptive_windows
from meta.dim import SymDim
from meta.errors import ArgumentError, DeviceError, MetaError, TypeInferenceError
from meta.ir.type import Value, tensor_type
from meta.op.registry import get

INDICES = meta.array([0, 1])
ROW, IMAGE = meta.ones((2,)), meta.ones((1, 1, 4, 4))
SIZED: dict[str, Callable[[int], Any]] = {
    "reshape": lambda n: meta.reshape(meta.ones((6,)), (n, n - 1)),
    "broadcast_to": lambda n: meta.broadcast_to(meta.ones((1,)), (n,)),
    "take_dx": lambda n: meta.take_dx(ROW, INDICES, (n,), 0),
    "gather_dx": lambda n: meta.gather_dx(ROW, 0, INDICES, (n,)),
    "gather_nd_dx": lambda n: meta.gather_nd_dx(ROW, meta.array([[0, 1]]), (n,), 0),
    "embedding_dx": lambda n: meta.embedding_dx(meta.ones((2, 3)), INDICES, n),
    "nll_loss_dx": lambda n: meta.nll_loss_dx(meta.array(1.0), INDICES, None, (2, n)),
    "adaptive_avg_pool2d_dx": lambda n: meta.adaptive_avg_pool2d_dx(IMAGE, (1, 1, n, 4)),
    "adaptive_max_pool2d": lambda n: meta.adaptive_max_pool2d(IMAGE, (n, 3)),
    "adaptive_avg_pool2d": lambda n: meta.adaptive_avg_pool2d(IMAGE, (n, 3)),
    "resize2d": lambda n: meta.resize2d(IMAGE, (n, 4)),
    "resize2d_dx": lambda n: meta.resize2d_dx(IMAGE, (1, 1, n, 4)),
    "strided_slice_dx": lambda n: meta.strided_slice_dx(ROW, (n,), (0,), (2,), (1,)),
    "full": lambda n: meta.full((n,), 1.0),
    "linspace": lambda n: meta.linspace(0.0, 1.0, n),
    "eye": lambda n: meta.eye(n, 2),
    "one_hot": lambda n: meta.one_hot(INDICES, n),
    "repeat": lambda n: meta.repeat(ROW, n, 0),
    "tile": lambda n: meta.tile(ROW, (n,)),
    "pad": lambda n: meta.pad(ROW, ((n - 1 if n < 0 else n, 0),)),  # -2 takes both elements away
    "argwhere": lambda n: meta.argwhere(ROW, n),
    "uniform": lambda n: meta.uniform(INDICES, (n,)),
    "arange": lambda n: meta.arange(0, n if n > 0 else 2**62),
}


@pytest.mark.parametrize(
    "size", [-2, 2**40, 2**62, 2**63, 2**64, 10**60_000], ids=["-2", "2**40", "2**62", "2**63", "2**64", "digits"]
)
@pytest.mark.parametrize("name", SIZED)
def test_negative_and_absurd_sizes(name: str, size: int):
    with pytest.raises(MetaError) as info:
        SIZED[name](size)
    assert info.value.subject in (name, "memory"), info.value
    assert isinstance(info.value, (TypeInferenceError, ArgumentError, DeviceError))
    assert len(str(info.value)) < 600


def test_types_have_sizes_that_machines_count():
    with pytest.raises(TypeInferenceError, match=r"shape \(2, -1\) has a negative size; expected sizes of 0 and up"):
        tensor_type((2, -1))
    with pytest.raises(TypeInferenceError, match=r"shape \(0, 4611686018427387904, 4\) of float32 is too large"):
        tensor_type((0, 2**62, 4))
    assert tensor_type((0, 2**40)).size == 0


@pytest.mark.parametrize(("size", "count"), [(7, 3), (3, 7), (12, 9), (9, 12), (5, 4), (16, 6)])
def test_windows_of_adaptive_pooling(size: int, count: int):
    windows = adaptive_windows(size, count)
    starts, ends = zip(*((i * size // count, -(-(i + 1) * size // count)) for i in range(count)), strict=True)
    assert windows.kernel == max(end - start for start, end in zip(starts, ends, strict=True))
    assert windows.candidates == max(sum(s <= h < e for s, e in zip(starts, ends, strict=True)) for h in range(size))
    assert adaptive_windows(7, 2**61).kernel == 2


_OUT_OF_MEMORY = """
import resource
import meta
from meta.errors import DeviceError

def refused(function, *args):
    try:
        function(*args)
    except DeviceError as error:
        assert any(text in str(error) for text in ("bytes", "executor.memory", "Unable to allocate")), error
    else:
        raise AssertionError("not refused")

x, shape = meta.ones((1000, 1000)), (150, 1000, 1000)
wide = lambda x: meta.broadcast_to(x, shape)
small = lambda x: meta.broadcast_to(x, (2, 1000, 1000))
small(x), meta.add(x, x), meta.vm.compile(meta.trace(small))(x)
with meta.with_dialect("reference"):
    meta.cumsum(x, 0)
y = meta.ones((50, 1000, 1000))
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (250 << 20)
compiled = meta.vm.compile(meta.trace(lambda x: wide(x) + 1.0))
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for _ in "cold", "warm":
    refused(wide, x)
refused(compiled, x)
with meta.with_dialect("reference"):
    refused(wide, x)
    refused(meta.cumsum, y, 0)
kept = y.copy()
refused(lambda: y.numpy(copy=True))
refused(lambda: meta.array(y.numpy()))
assert (x + x).numpy()[0, 0] == 2.0  # the process goes on
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of the address space is one of Linux")
def test_memory_that_runs_out():
    completed = subprocess.run([sys.executable, "-c", _OUT_OF_MEMORY], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr[-2000:]


_PADDED_OPERANDS = """
import resource
import meta
from meta.errors import DeviceError

x, w = meta.ones((1, 1, 4, 4), "int64"), meta.ones((1, 1, 1, 1), "int64")
far = lambda padding: lambda x, w: meta.conv2d(x, w, padding=padding, stride=1000)
small, large = meta.vm.compile(meta.trace(far(500))), meta.vm.compile(meta.trace(far(4000)))
eager = far(4000)

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20

far(500)(x, w), small(x, w)
before = resident()
assert eager(x, w).shape == (1, 1, 9, 9)
assert resident() < before + 100, "an operand of 488 MiB stays in memory"
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (250 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for run in eager, large, eager:
    try:
        run(x, w)
    except DeviceError as error:
        assert "memory ran out" in str(error), error
    else:
        raise AssertionError("not refused")
    assert far(500)(x, w).shape == small(x, w).shape == (1, 1, 2, 2)  # the process goes on
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of the address space is one of Linux")
@pytest.mark.parametrize("threads", [1, 3])
def test_memory_of_padded_operands_that_runs_out(threads: int):
    environment = os.environ | {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    completed = subprocess.run(
        [sys.executable, "-c", _PADDED_OPERANDS], env=environment, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr[-2000:]


@pytest.mark.parametrize("name", ["left_shift", "bitwise_and", "atan2"])
def test_operators_that_sizes_do_not_have(name: str) -> None:
    with pytest.raises(
        MetaError, match=r"size n is symbolic|of the sizes n and 2\.5; expected|digits of the symbolic size"
    ):
        get(name).infer([SymDim("n"), 2.5])


@pytest.mark.parametrize(("name", "mark"), [("power", "**"), ("floor_divide", "//"), ("divide", "/")])
def test_numbers_of_sizes(name: str, mark: str) -> None:
    result = get(name).infer([SymDim("n"), 2.5])
    assert isinstance(result, Value)
    assert repr(result.value) == f"(n {mark} 2.5)"
    assert get("power").infer([SymDim("n"), 2]) == Value(SymDim("n") * SymDim("n"))


def test_error_text_of_an_operator_that_sizes_do_not_have() -> None:
    with pytest.raises(TypeInferenceError) as error:
        get("left_shift").infer([SymDim("n"), 2.5])
    assert str(error.value).startswith(
        "[left_shift] left_shift of the sizes n and 2.5; expected sums, differences and products of symbolic sizes; "
        "trace with static sizes here"
    )
