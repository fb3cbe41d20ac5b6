"""Convolutions by nvidia-cudnn-frontend, on tensors as they are: row-major, with channels second or last.

To cuDNN every tensor is (batch, channels, *spatial); channels that are last have stride 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from meta._generated import limits
from meta.backend.cudnn import frontend, plans, settings
from meta.backend.cudnn.frontend import OperationGraph
from meta.backend.cudnn.handle import Handle, handle_getter
from meta.backend.cudnn.kernel import Run, unsupported_tensors
from meta.backend.cudnn.plans import Solution
from meta.device import Device
from meta.dtype import HALVES
from meta.ir.expr import CallInfo
from meta.op import windows
from meta.op.dialect.cudnn import DIALECT

_Ints = tuple[int, ...]
X, W, Y = range(1, 4)
"""Numbers of the tensors in a graph."""
_KINDS: Final = {
    "": ("fprop", (X, W, Y)),
    "dx": ("dgrad", (W, Y, X)),
    "dw": ("wgrad", (X, Y, W)),
    "transpose": ("dgrad", (Y, W, X)),
}
"""By the suffix of an operator's name: cuDNN's names for the operation and its tensors."""


@dataclass(frozen=True, slots=True)
class ConvProblem:
    """A convolution (kind "fprop"), or its gradient by the input ("dgrad") or the kernel ("wgrad").

    x, w, y: shapes of input, kernel and result.  before, after: padding of each axis.  tf32: whether float32 may
    multiply in TF32.  channels_last: whether channels have stride 1 in memory."""

    kind: str
    dtype: str
    x: _Ints
    w: _Ints
    y: _Ints
    before: _Ints
    after: _Ints
    stride: _Ints
    dilation: _Ints
    tf32: bool
    channels_last: bool
    device: Device

    def __str__(self) -> str:
        return f"conv_{self.kind} of {self.dtype} {self.x} with {self.w}" + " channels last" * self.channels_last


def problem(call: CallInfo, tf32: bool) -> ConvProblem:
    """The convolution of a call; one spatial axis becomes two."""
    _base, _, suffix = call.op.name.partition("_")
    kind, numbers = _KINDS[suffix]
    args = call.bind()
    channels_last: bool = args.get("channels_last", False)
    shapes: dict[int, Any] = {
        n: windows.channels_first(t.shape, channels_last)
        for n, t in zip(numbers, (*call.tensors(), *call.outputs()), strict=True)
    }  # fmt: skip
    rank = len(shapes[X]) - 2
    stride, pads, dilation = windows.attributes(rank, args["stride"], args["padding"], args["dilation"])
    before, after = tuple(b for b, _ in pads), tuple(a for _, a in pads)
    x, w, y = (shapes[n] for n in (X, W, Y))
    if rank == 1:
        x, w, y = ((*shape[:2], 1, *shape[2:]) for shape in (x, w, y))
        before, after, stride, dilation = (0, *before), (0, *after), (1, *stride), (1, *dilation)
    dtype = call.outputs()[0].dtype
    single = tf32 and dtype == "float32"
    return ConvProblem(kind, dtype, x, w, y, before, after, stride, dilation, single, channels_last, call.device)


def _described(conv_problem: ConvProblem, handle: Handle) -> OperationGraph:
    graph = OperationGraph(
        str(conv_problem), handle, conv_problem.dtype, "float64" if conv_problem.dtype == "float64" else "float32"
    )
    shapes = {X: conv_problem.x, W: conv_problem.w, Y: conv_problem.y}
    output = {"fprop": Y, "dgrad": X, "wgrad": W}[conv_problem.kind]
    tensors = {
        number: graph.input(number, shape, channels_last=conv_problem.channels_last)
        for number, shape in shapes.items()
        if number != output
    }
    attributes = {
        "pre_padding": list(conv_problem.before),
        "post_padding": list(conv_problem.after),
        "stride": list(conv_problem.stride),
        "dilation": list(conv_problem.dilation),
    }
    if conv_problem.kind == "fprop":
        out = graph.graph.conv_fprop(image=tensors[X], weight=tensors[W], **attributes)
    elif conv_problem.kind == "dgrad":
        out = graph.graph.conv_dgrad(loss=tensors[Y], filter=tensors[W], **attributes)
    else:
        out = graph.graph.conv_wgrad(image=tensors[X], loss=tensors[Y], **attributes)
    graph.output(out, output, shapes[output], channels_last=conv_problem.channels_last)
    return graph


def _solution(conv_problem: ConvProblem, handle: Handle) -> Solution:
    exact = conv_problem.dtype == "float32" and not conv_problem.tf32
    avoid = ("DOWN_CONVERT_INPUTS", "TENSOR_CORE") if exact else ("DOWN_CONVERT_INPUTS",)
    return plans.solve(conv_problem, handle, _described, limits.MEASURED_PLANS, avoid)


def unsuited(call: CallInfo) -> str | None:
    """Why cuDNN does not support the arguments, or None."""
    reason = unsupported_tensors(call)
    if reason:
        return reason
    conv_problem = problem(call, settings.tf32_allowed())
    if conv_problem.before != conv_problem.after:
        # Some engines of 9.19 take it and give wrong gradients of grouped kernels (float64 and float16).
        return f"padding of {conv_problem.before} before and {conv_problem.after} after: cuDNN pads both sides alike"
    return None


def without_plan(call: CallInfo) -> str | None:
    """Why cuDNN refuses the convolution, or None."""
    missing = frontend.missing()
    return missing or _solution(problem(call, settings.tf32_allowed()), handle_getter(call.device)()).refusal


def _prefers_channels_last(call: CallInfo) -> bool:
    """Whether cuDNN multiplies by tensor cores, whose kernels take channels last and convert other tensors. Kernels for
    one channel a group (depthwise) take both."""
    x, args = call.tensors()[0], call.bind()
    shape = args["w"].shape if "w" in args else args["shape"]
    by_tensor_cores = x.dtype in HALVES or (x.dtype == "float32" and settings.tf32_allowed())
    return by_tensor_cores and (args["groups"] == 1 or shape[-1] > 1)


def _convolution(call: CallInfo) -> Run:
    first, second, third = _KINDS[call.op.name.partition("_")[2]][1]
    current = handle_getter(call.device)
    solutions: dict[bool, Solution] = {}
    single = call.outputs()[0].dtype == "float32"

    def run(a: Any, b: Any, out: Any) -> None:
        handle, tf32 = current(), single and settings.tf32_allowed()
        solution = solutions.get(tf32)
        if solution is None:
            solution = solutions[tf32] = _solution(problem(call, tf32), handle)
        solution.run(handle, {first: a.data_ptr(), second: b.data_ptr(), third: out.data_ptr()})

    return run


for _rank in (1, 2, 3):
    for _suffix in ("", "_dx", "_dw", "_transpose"):
        DIALECT.implement(
            f"conv{_rank}d{_suffix}",
            _convolution,
            accepts=unsuited,
            confirm=without_plan,
            slow_start=True,
            prefers_channels_last=None if _suffix == "_transpose" else _prefers_channels_last,
        )
