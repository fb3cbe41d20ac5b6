"""Scaled dot-product attention by nvidia-cudnn-frontend: halves only, without scores in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from meta.backend.cudnn import frontend, plans
from meta.backend.cudnn.frontend import OperationGraph
from meta.backend.cudnn.handle import Handle, handle_getter
from meta.backend.cudnn.kernel import Run, product, unsupported_tensors
from meta.device import Device
from meta.dtype import itemsize
from meta.ir.expr import CallInfo
from meta.ir.layout import StridedLayout
from meta.op.dialect.cudnn import DIALECT

_Ints = tuple[int, ...]
Q, K, V, Y, LSE, DY, DQ, DK, DV = range(1, 10)
"""Numbers of the tensors in a graph."""
_DTYPES: Final = ("float16", "bfloat16")
_MULTIPLE: Final = 8
"""cuDNN reads features in groups of this many elements."""


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """q, v: shapes of rank 4 (batch, heads, length, features); keys have the features of q and the length of v.
    strides: of q, k, v, y, lse and dy, None where they are row-major."""

    backward: bool
    q: _Ints
    v: _Ints
    dtype: str
    causal: bool
    scale: float
    device: Device
    strides: tuple[_Ints | None, ...] = (None,) * 6

    @property
    def k(self) -> _Ints:
        return (*self.v[:3], self.q[3])

    @property
    def y(self) -> _Ints:
        return (*self.q[:3], self.v[3])

    @property
    def lse(self) -> _Ints:
        return (*self.q[:3], 1)

    def __str__(self) -> str:
        name = "sdpa_backward" if self.backward else "sdpa"
        return f"{name} of {self.dtype} {self.q} with {self.v}"


def _reshape_to_rank_4(shape: Any) -> _Ints:
    """The shape with its leading axes joined, or with axes of size 1 added."""
    if len(shape) == 4:
        return tuple(map(int, shape))
    return (product(shape[:-2]), 1, int(shape[-2]), int(shape[-1]))


def problem(call: CallInfo) -> AttentionProblem:
    args = call.bind()
    q, v, scale = args["q"], args["v"], args["scale"]
    shape = _reshape_to_rank_4(q.shape)
    return AttentionProblem(
        "dy" in args,
        shape,
        _reshape_to_rank_4(v.shape),
        q.dtype,
        args["causal"],
        1 / math.sqrt(shape[-1]) if scale is None else float(scale),
        call.device,
        tuple([each and each.strides for each in _rank_4_layouts(call)]),
    )


def _rank_4_layouts(call: CallInfo) -> list[StridedLayout | None]:
    """The layouts of q, k, v, y, lse and dy as tensors of rank 4, None for row-major ones."""
    layouts = [each and each.reshaped(_reshape_to_rank_4(each.shape)) for each in call.layouts]
    return [*layouts, *(None,) * (6 - len(layouts))]


def reads_strides(call: CallInfo) -> bool:
    """Whether cuDNN takes the operands where they are: contiguous features in groups of 16 bytes."""
    layouts = [each for each in _rank_4_layouts(call) if each is not None]
    if len(layouts) < sum(each is not None for each in call.layouts) or any(call.layouts[LSE - Q : LSE]):
        return False
    starts = [n for each in layouts for n in (*each.strides[:-1], each.offset)]
    aligned = all(n % _MULTIPLE == 0 for n in starts) and all(each.strides[-1] == 1 for each in layouts)
    return aligned and without_plan(call) is None


def unsuited(call: CallInfo) -> str | None:
    """Why cuDNN's attention does not take the arguments, or None."""
    args = call.bind()
    q, v = args["q"], args["v"]
    if q.dtype not in _DTYPES:
        return f"dtype {q.dtype}, of {', '.join(_DTYPES)}"
    reason = unsupported_tensors(call, (*_DTYPES, "float32"))
    if reason:
        return reason
    for name, t in (("q", q), ("v", v)):
        if int(t.shape[-1]) % _MULTIPLE:
            return f"{t.shape[-1]} features of {name}, a multiple of {_MULTIPLE}"
    return None


def without_plan(call: CallInfo) -> str | None:
    """Why cuDNN itself refuses an attention."""
    return frontend.missing() or plans.solve(problem(call), handle_getter(call.device)(), _build_graph).refusal


def _build_graph(target: AttentionProblem, handle: Handle) -> OperationGraph:
    graph = OperationGraph(str(target), handle, target.dtype, "float32")
    strides = target.strides
    q, k, v = (
        graph.input(n, shape, strides=strides[n - Q]) for n, shape in ((Q, target.q), (K, target.k), (V, target.v))
    )
    if not target.backward:
        y, lse = graph.graph.sdpa(
            q=q, k=k, v=v, generate_stats=True, attn_scale=target.scale, use_causal_mask=target.causal
        )
        graph.output(y, Y, target.y)
        graph.output(lse, LSE, target.lse, "float32")
        return graph
    y, dy = (graph.input(n, target.y, strides=strides[n - Q]) for n in (Y, DY))
    lse = graph.input(LSE, target.lse, "float32")
    dq, dk, dv = graph.graph.sdpa_backward(
        q=q, k=k, v=v, o=y, dO=dy, stats=lse, attn_scale=target.scale, use_causal_mask=target.causal
    )
    for gradient, number, shape in ((dq, DQ, target.q), (dk, DK, target.k), (dv, DV, target.v)):
        graph.output(gradient, number, shape)
    return graph


def _kernel_maker(numbers: _Ints) -> Any:
    def make(call: CallInfo) -> Run:
        current = handle_getter(call.device)
        solution = plans.solve(problem(call), current(), _build_graph)
        size = itemsize(call.tensors()[0].dtype)
        starts = [0 if each is None else each.offset * size for each in call.layouts]
        starts += [0] * (len(numbers) - len(starts))

        def run(*raw: Any) -> None:
            addresses = {n: t.data_ptr() + start for n, t, start in zip(numbers, raw, starts, strict=True)}
            solution.run(current(), addresses)

        return run

    return make


_NAME: Final = "attention_with_lse"
DIALECT.implement(_NAME, _kernel_maker((Q, K, V, Y, LSE)), accepts=unsuited, confirm=without_plan,
                  strided=reads_strides)  # fmt: skip
DIALECT.implement(f"{_NAME}_dx", _kernel_maker((Q, K, V, Y, LSE, DY, DQ, DK, DV)), accepts=unsuited,
                  confirm=without_plan, strided=reads_strides)  # fmt: skip
