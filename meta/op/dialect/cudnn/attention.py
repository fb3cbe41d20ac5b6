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
Q, K, V, Y, LSE, DY, BIAS, DQ, DK, DV = range(1, 11)
"""Numbers of the tensors in a graph."""
_DTYPES: Final = ("float16", "bfloat16")
_MULTIPLE: Final = 8
"""cuDNN reads features in groups of this many elements."""


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """q, v: shapes of rank 4 (batch, heads, length, features); keys have the features of q and the length of v.
    strides: of operands and results by number, other than row-major ones.  bias: its shape; None without one."""

    backward: bool
    q: _Ints
    v: _Ints
    dtype: str
    causal: bool
    scale: float
    device: Device
    strides: tuple[tuple[int, _Ints], ...] = ()
    bias: _Ints | None = None

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
        (*((n, each.strides) for n, each in _rank_4_layouts(call).items()), *_result_strides(call)),
        None if args["bias"] is None else _rank_4_bias(args["bias"].shape, shape),
    )


def _rank_4_bias(bias: Any, q: _Ints) -> _Ints:
    """The shape of a bias with axes of size 1 in front."""
    return (*(1,) * (4 - len(bias)), *map(int, bias))


def _numbers(call: CallInfo) -> _Ints:
    """The numbers of the operands, in the order in which a kernel gets them."""
    numbers = (Q, K, V, Y, LSE, DY) if "dy" in call.op.schema.index else (Q, K, V)
    return (*numbers, BIAS)[: len(call.tensors())]


def _rank_4_layouts(call: CallInfo) -> dict[int, StridedLayout]:
    """The layouts of the operands, as tensors of rank 4, that are not row-major."""
    pairs = zip(_numbers(call), call.layouts, strict=False)
    layouts = {n: each.reshaped(_reshape_to_rank_4(each.shape)) for n, each in pairs if each is not None}
    return {n: each for n, each in layouts.items() if each is not None}


def _results(call: CallInfo) -> _Ints:
    """The numbers of the results."""
    return (DQ, DK, DV) if "dy" in call.op.schema.index else (Y, LSE)


def _result_strides(call: CallInfo) -> list[tuple[int, _Ints]]:
    """The strides of the results whose axes are in another order."""
    found: list[tuple[int, _Ints]] = []
    for number, kind, order in zip(_results(call), call.outputs(), call.orders, strict=False):
        if order is not None:
            layout = StridedLayout.row_major(tuple(int(kind.shape[axis]) for axis in order))
            found.append((number, layout.transposed(tuple(map(order.index, range(len(order))))).strides))
    return found


def writes_orders(call: CallInfo) -> bool:
    """Whether cuDNN writes the results with their axes in other orders: features last, of tensors of rank 4."""
    orders = dict(zip(_results(call), call.orders, strict=True))
    ordered = [order for order in orders.values() if order is not None]
    is_kept = orders.get(LSE) is None and all(len(order) == 4 and order[-1] == 3 for order in ordered)
    return is_kept and without_plan(call) is None


def reads_strides(call: CallInfo) -> bool:
    """Whether cuDNN takes the operands where they are: contiguous features in groups of 16 bytes."""
    layouts = _rank_4_layouts(call)
    if len(layouts) < sum(each is not None for each in call.layouts) or LSE in layouts or BIAS in layouts:
        return False
    starts = [n for each in layouts.values() for n in (*each.strides[:-1], each.offset)]
    aligned = all(n % _MULTIPLE == 0 for n in starts) and all(each.strides[-1] == 1 for each in layouts.values())
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
    strides = dict(target.strides)

    def operand(number: int, shape: _Ints) -> Any:
        return graph.input(number, shape, strides=strides.get(number))

    q, k, v = operand(Q, target.q), operand(K, target.k), operand(V, target.v)
    options: dict[str, Any] = {"attn_scale": target.scale, "use_causal_mask": target.causal}
    if target.bias is not None:
        options["bias"] = operand(BIAS, target.bias)
    if not target.backward:
        y, lse = graph.graph.sdpa(q=q, k=k, v=v, generate_stats=True, **options)
        graph.output(y, Y, target.y, strides=strides.get(Y))
        graph.output(lse, LSE, target.lse, "float32")
        return graph
    y, dy = operand(Y, target.y), operand(DY, target.y)
    lse = graph.input(LSE, target.lse, "float32")
    dq, dk, dv = graph.graph.sdpa_backward(q=q, k=k, v=v, o=y, dO=dy, stats=lse, **options)
    for gradient, number, shape in ((dq, DQ, target.q), (dk, DK, target.k), (dv, DV, target.v)):
        graph.output(gradient, number, shape, strides=strides.get(number))
    return graph


def _kernel(call: CallInfo) -> Run:
    current = handle_getter(call.device)
    solution = plans.solve(problem(call), current(), _build_graph)
    size = itemsize(call.tensors()[0].dtype)
    operands = _numbers(call)
    numbers = (*operands, *_results(call))
    starts = {n: each.offset * size for n, each in zip(operands, call.layouts, strict=False) if each is not None}

    def run(*raw: Any) -> None:
        addresses = {n: t.data_ptr() + starts.get(n, 0) for n, t in zip(numbers, raw, strict=True)}
        solution.run(current(), addresses)

    return run


for _name in ("attention_with_lse", "attention_with_lse_dx"):
    DIALECT.implement(_name, _kernel, accepts=unsuited, confirm=without_plan, strided=reads_strides,
                      ordered=writes_orders)  # fmt: skip
