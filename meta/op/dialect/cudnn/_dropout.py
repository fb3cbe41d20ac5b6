"""Dropout by nvidia-cudnn-frontend: a choice between x / (1 - p) and 0 by the mask.

The mask is a function of key and position, `bernoulli`, and the same in every dialect. cuDNN's own generator has a
state, and another mask: what it leaves to cuDNN is the second half, and the gradient, which are one graph."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any, Final

from meta.backend.cudnn import frontend, plans
from meta.backend.cudnn.frontend import Graph
from meta.backend.cudnn.handle import Handle, handles
from meta.backend.cudnn.kernel import Run, product, unfit
from meta.backend.cudnn.plans import Solution
from meta.device import Device
from meta.ir.type import TensorType
from meta.modes import scoped
from meta.op.dialect.cudnn import BELOW_TVM, DIALECT
from meta.op.dispatch import CallInfo, Kernel, choose
from meta.op.registry import get

X: Final = 1
MASK: Final = 2
SCALE: Final = 3
ZERO: Final = 4
Y: Final = 5
_DTYPES: Final = ("float32", "float16", "bfloat16")
_WIDE: Final = 1024
_NARROW: Final = 64
"""Columns below which rows take longer to begin than to go through."""
_MOST: Final = 1 << 18
"""Columns; 2^19 end in an error of the driver."""


@dataclass(frozen=True, slots=True)
class Problem:
    """rows, columns: how the elements, which lie side by side, are described."""

    rows: int
    columns: int
    dtype: str
    device: Device


def problem(call: CallInfo) -> Problem:
    x = call.tensors()[0]
    size = product(x.shape)
    columns = math.gcd(size, _WIDE)
    if columns < _NARROW and x.ndim and x.shape[-1] <= _MOST:
        columns = int(x.shape[-1])
    return Problem(size // columns, columns, x.dtype, call.device)


def unsuited(call: CallInfo) -> str | None:
    """Why the arguments are not what cuDNN selects from."""
    dtype = call.tensors()[0].dtype
    if dtype not in _DTYPES:
        return f"dtype {dtype}, of {', '.join(_DTYPES)}"
    return unfit(call, (*_DTYPES, "bool", "int64"))


def without_plan(call: CallInfo) -> str | None:
    """Why cuDNN itself refuses a call."""
    return frontend.missing() or _solution(problem(call), handles(call.device)()).refusal


def _described(wanted: Problem, handle: Handle) -> Graph:
    shape = (1, wanted.rows, wanted.columns)
    graph = Graph(f"dropout of {wanted.dtype} {shape[1:]}", handle, wanted.dtype, "float32")
    x, mask = graph.input(X, shape), graph.input(MASK, shape, "bool")
    scaled = graph.graph.mul(a=x, b=graph.scalar(SCALE, rank=3))
    graph.output(graph.graph.binary_select(input0=scaled, input1=graph.scalar(ZERO, rank=3), mask=mask), Y, shape)
    return graph


def _solution(wanted: Problem, handle: Handle) -> Solution:
    return plans.solve(wanted, lambda: _described(wanted, handle))


def _masked(call: CallInfo) -> Run:
    """x / (1 - p) where the mask is true, else 0: the gradient as it is."""
    p: float = call.bind()["p"]
    current = handles(call.device)
    solution = _solution(problem(call), current())
    numbers = (ctypes.c_float * 2)(0.0 if p == 1 else 1 / (1 - p), 0.0)
    at = ctypes.addressof(numbers)
    fixed = {SCALE: at, ZERO: at + ctypes.sizeof(ctypes.c_float)}

    def run(x: Any, mask: Any, y: Any, _: Any = numbers) -> None:
        solution.run(current(), {X: x.data_ptr(), MASK: mask.data_ptr(), Y: y.data_ptr(), **fixed})

    return run


def _kept(call: CallInfo) -> Kernel:
    """The kernel (key, mask) that draws the mask, by whichever dialect is the first to take it."""
    x, key, p = call.args
    assert isinstance(x, TensorType)
    draw = CallInfo(get("bernoulli"), (key, x.shape, 1 - p, "bool"), x.with_dtype("bool"), call.device)
    with scoped("dialects", None):
        drawn = choose(draw)
    return drawn.dialect.kernel(drawn, draw)


def _forward(call: CallInfo) -> Run:
    draw, apply = _kept(call), _masked(call)

    def run(x: Any, key: Any, y: Any, mask: Any) -> None:
        draw(key, mask)
        apply(x, mask, y)

    return run


DIALECT.implement("dropout", _forward, plevel=BELOW_TVM, accepts=unsuited, confirm=without_plan)
DIALECT.implement("dropout_dx", _masked, plevel=BELOW_TVM, accepts=unsuited, confirm=without_plan)
