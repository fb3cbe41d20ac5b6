"""Layer norm by nvidia-cudnn-frontend, over rows.

cuDNN's backward kernel computes all three gradients from the statistics of the forward one, as layer_norm_train and
its gradient do. Operators without statistics compute them again; those that return one or two of the gradients discard
the others. Programs have one call for all three, see `meta.passes.join_gradients`."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from meta.backend.cudnn import frontend, plans
from meta.backend.cudnn.frontend import OperationGraph
from meta.backend.cudnn.handle import Handle, handle_getter
from meta.backend.cudnn.kernel import Run, constant_vector, product, unsupported_tensors
from meta.backend.memory import allocation
from meta.device import Device
from meta.ir.type import TensorType, tensor_type

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo

X, SCALE, BIAS, Y, MEAN, INVSTD, DY, DX, DSCALE, DBIAS, EPS = range(1, 12)
"""Numbers of the tensors in a graph."""
_DTYPES: Final = ("float32", "float16", "bfloat16")
_PHASES: Final = {"layer_norm": ("infer",), "layer_norm_train": ("train",), "layer_norm_train_dxwb": ("backward",)}
"""The graphs that an operator runs, where these are not "train" and "backward"."""


@dataclass(frozen=True, slots=True)
class LayerNormProblem:
    """Rows of `columns` elements each. parameter: dtype of scale and bias.  phase: "infer", "train" or "backward"."""

    phase: str
    rows: int
    columns: int
    dtype: str
    parameter: str
    device: Device


def problem(call: CallInfo, phase: str) -> LayerNormProblem:
    """The problem of a call that normalises the last axes."""
    args = call.bind()
    x: TensorType = args["x"]
    columns = product([x.shape[a] for a in args["axis"]])
    parameters = [args[name].dtype for name in ("scale", "bias") if isinstance(args.get(name), TensorType)]
    return LayerNormProblem(
        phase, product(x.shape) // columns, columns, x.dtype, (*parameters, "float32")[0], call.device
    )


def unsuited(call: CallInfo) -> str | None:
    """Why cuDNN's layer norm does not support the arguments, or None."""
    reason = unsupported_tensors(call, _DTYPES)
    if reason:
        return reason
    args = call.bind()
    x, axis = args["x"], args["axis"]
    last = set(range(x.ndim - len(axis), x.ndim))
    if {a % x.ndim for a in axis} != last:
        return f"axes {axis} of rank {x.ndim}: cuDNN normalises the last axes"
    dtypes = {args[name].dtype for name in ("scale", "bias") if isinstance(args.get(name), TensorType)}
    return f"scale and bias are {' and '.join(sorted(dtypes))}: cuDNN needs one dtype" if len(dtypes) > 1 else None


def unsuited_gradients(call: CallInfo) -> str | None:
    """Why cuDNN does not support the arguments of an operator whose parameter gradients are float32, or None."""
    scale = call.bind()["scale"]
    if isinstance(scale, TensorType) and scale.dtype != "float32":
        return f"scale is {scale.dtype}: cuDNN has its gradient in that dtype, not in float32"
    return unsuited(call)


def without_plan(call: CallInfo) -> str | None:
    """Why cuDNN has no plan for a layer norm, or None."""
    reason = frontend.missing()
    if reason:
        return reason
    handle = handle_getter(call.device)()
    phases = _PHASES.get(call.op.name, ("train", "backward"))
    return next((s.refusal for p in phases if (s := plans.solve(problem(call, p), handle, _build_graph)).refusal), None)


def _build_graph(target: LayerNormProblem, handle: Handle) -> OperationGraph:
    graph = OperationGraph(
        f"layer norm of {target.dtype} ({target.rows}, {target.columns})", handle, target.dtype, "float32"
    )
    data, row, column = (target.rows, target.columns, 1, 1), (1, target.columns, 1, 1), (target.rows, 1, 1, 1)
    cudnn = frontend.module()
    x, scale = graph.input(X, data), graph.input(SCALE, row, target.parameter)
    if target.phase == "backward":
        dx, dscale, dbias = graph.graph.layernorm_backward(
            grad=graph.input(DY, data), input=x, scale=scale, mean=graph.input(MEAN, column, "float32"),
            inv_variance=graph.input(INVSTD, column, "float32"),
        )  # fmt: skip
        graph.output(dx, DX, data)
        graph.output(dscale, DSCALE, row, target.parameter)
        graph.output(dbias, DBIAS, row, target.parameter)
        return graph
    phases = cudnn.norm_forward_phase
    y, mean, invstd = graph.graph.layernorm(
        norm_forward_phase=phases.TRAINING if target.phase == "train" else phases.INFERENCE,
        input=x, scale=scale, bias=graph.input(BIAS, row, target.parameter), epsilon=graph.scalar(EPS),
    )  # fmt: skip
    graph.output(y, Y, data)
    if target.phase == "train":
        graph.output(mean, MEAN, column, "float32")
        graph.output(invstd, INVSTD, column, "float32")
    return graph


def forward(call: CallInfo) -> Run:
    """`run(x, *parameters, y)`."""
    return _forward(call, "infer", (Y,))


def train(call: CallInfo) -> Run:
    """`run(x, *parameters, y, mean, invstd)`."""
    return _forward(call, "train", (Y, MEAN, INVSTD))


def _forward(call: CallInfo, phase: str, results: tuple[int, ...]) -> Run:
    target, args, current = problem(call, phase), call.bind(), handle_getter(call.device)
    solution, eps = plans.solve(target, current(), _build_graph), ctypes.c_float(args["eps"])
    fixed = {EPS: ctypes.addressof(eps)}
    names: list[int] = []
    for name, number, value in (("scale", SCALE, 1.0), ("bias", BIAS, 0.0)):
        if args[name] is None:
            fixed[number] = constant_vector(value, target.columns, target.parameter, target.device).data_ptr()
        else:
            names.append(number)

    def run(x: Any, *rest: Any, _: Any = eps) -> None:
        addresses = {number: t.data_ptr() for number, t in zip((*names, *results), rest, strict=True)}
        solution.run(current(), {X: x.data_ptr(), **addresses, **fixed})

    return run


class _LayerNormGradient:
    """All three gradients; unused ones are written to scratch memory."""

    def __init__(self, call: CallInfo) -> None:
        target, device = problem(call, "train"), call.device
        self.current = handle_getter(device)
        handle = self.current()
        self.forward = plans.solve(target, handle, _build_graph)
        self.backward = plans.solve(problem(call, "backward"), handle, _build_graph)
        self.eps = ctypes.c_float(call.bind()["eps"])
        self.one = constant_vector(1.0, target.columns, target.parameter, device).data_ptr()
        self.zero = constant_vector(0.0, target.columns, target.parameter, device).data_ptr()
        data, statistics = (target.rows, target.columns), (target.rows,)
        self.new = {
            Y: allocation.allocator(tensor_type(data, target.dtype, device)),
            DX: allocation.allocator(tensor_type(data, target.dtype, device)),
            MEAN: allocation.allocator(tensor_type(statistics, "float32", device)),
            INVSTD: allocation.allocator(tensor_type(statistics, "float32", device)),
            DSCALE: allocation.allocator(tensor_type((target.columns,), target.parameter, device)),
            DBIAS: allocation.allocator(tensor_type((target.columns,), target.parameter, device)),
        }

    def __call__(self, x: Any, scale: Any, dy: Any, results: dict[int, Any]) -> None:
        handle, x_address = self.current(), x.data_ptr()
        weights = self.one if scale is None else scale.data_ptr()
        scratch = {number: new() for number, new in self.new.items() if number not in results}
        addresses = {number: t.data_ptr() for number, t in {**scratch, **results}.items()}
        statistics = {MEAN: addresses[MEAN], INVSTD: addresses[INVSTD]}
        eps = ctypes.addressof(self.eps)
        self.forward.run(
            handle, {X: x_address, SCALE: weights, BIAS: self.zero, EPS: eps, Y: addresses[Y], **statistics}
        )
        gradients = {number: addresses[number] for number in (DX, DSCALE, DBIAS)}
        self.backward.run(handle, {X: x_address, SCALE: weights, DY: dy.data_ptr(), **statistics, **gradients})


def train_dxwb(call: CallInfo) -> Run:
    """`run(dy, x, scale if there is one, mean, invstd, dx, dscale, dbias)`."""
    target, current = problem(call, "backward"), handle_getter(call.device)
    solution = plans.solve(target, current(), _build_graph)
    names, fixed = (DY, X, SCALE, MEAN, INVSTD, DX, DSCALE, DBIAS), dict[int, int]()
    if call.bind()["scale"] is None:
        fixed[SCALE] = constant_vector(1.0, target.columns, target.parameter, target.device).data_ptr()
        names = tuple(n for n in names if n != SCALE)

    def run(*tensors: Any) -> None:
        addresses = {number: t.data_ptr() for number, t in zip(names, tensors, strict=True)}
        solution.run(current(), {**addresses, **fixed})

    return run


def dx(call: CallInfo) -> Run:
    """`run(x, scale if there is one, dy, dx)`."""
    gradient = _LayerNormGradient(call)

    def run(x: Any, *rest: Any) -> None:
        *scale, dy, dx = rest
        gradient(x, scale[0] if scale else None, dy, {DX: dx})

    return run


def dwb(call: CallInfo) -> Run:
    """`run(x, dy, dscale, dbias)`."""
    gradient = _LayerNormGradient(call)

    def run(x: Any, dy: Any, dscale: Any, dbias: Any) -> None:
        gradient(x, None, dy, {DSCALE: dscale, DBIAS: dbias})

    return run


def dxwb(call: CallInfo) -> Run:
    """`run(x, scale if there is one, dy, dx, dscale, dbias)`."""
    gradient = _LayerNormGradient(call)

    def run(x: Any, *rest: Any) -> None:
        *scale, dy, dx, dscale, dbias = rest
        gradient(x, scale[0] if scale else None, dy, {DX: dx, DSCALE: dscale, DBIAS: dbias})

    return run
