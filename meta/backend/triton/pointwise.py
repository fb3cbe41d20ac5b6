"""Elementwise Triton kernels from functions of numbers."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from meta import dtype as dtypes
from meta.backend.functions import Specialised
from meta.backend.triton.kernel_text import Operands, layout, source
from meta.errors import ArgumentError, KernelError
from meta.ir.type import TensorType

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo

PLANS = 256
"""Maximum number of combinations of shapes whose strides a kernel keeps."""

_numbers = count()


def pointwise(expression: Any, *, block: int, num_warps: int) -> Specialised:
    """The payload of an implementation, see meta.op.dialect.triton.pointwise."""
    function = getattr(expression, "fn", None)
    if not inspect.isfunction(function) or not type(expression).__module__.startswith("triton."):
        raise ArgumentError(
            "pointwise",
            f"the expression is {type(expression).__name__}",
            "a function compiled by triton.jit",
            "decorate it with @triton.jit",
        )
    if not isinstance(block, int) or block < 1 or block & (block - 1):
        raise ArgumentError("pointwise", f"block is {block!r}", "a power of two, such as 1024")
    sources = _Kernels(expression, block, num_warps)
    return Specialised(lambda call: _build(sources, call))


class _Kernels:
    """The kernels of one expression, by what their text depends on."""

    def __init__(self, expression: Any, block: int, num_warps: int) -> None:
        self.expression = expression
        self.block = block
        self.options = {"BLOCK": block, "num_warps": num_warps}
        self._compiled: dict[str, Any] = {}
        parameters = list(inspect.signature(expression.fn).parameters.values())
        self.constant = [p.annotation is tl.constexpr or "constexpr" in str(p.annotation) for p in parameters]

    def is_constant(self, position: int) -> bool:
        """Whether the expression takes an argument as a compile-time constant."""
        return position < len(self.constant) and self.constant[position]

    def kernel(self, text: str) -> Any:
        """The compiled function of a source text, which Triton reads back by its file name."""
        kernel = self._compiled.get(text)
        if kernel is None:
            path = f"<meta pointwise {self.expression.fn.__name__} {next(_numbers)}>"
            linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
            namespace: dict[str, Any] = {"tl": tl, "expression": self.expression, "__name__": __name__}
            exec(compile(text, path, "exec"), namespace)
            kernel = self._compiled[text] = triton.jit(namespace["pointwise_kernel"])
        return kernel


def _build(kernels: _Kernels, call: CallInfo) -> Callable[..., None]:
    """`function(*inputs, *outputs)` on compact torch tensors."""
    operands = _operands(kernels, call)
    inputs = len(operands.casts)
    plans: dict[Any, Any] = {}

    def run(*tensors: Any) -> None:
        shapes = tuple([x.shape for x in tensors])
        plan = plans.get(shapes)
        if plan is None:
            if len(plans) >= PLANS:
                plans.clear()
            plan = plans[shapes] = _plan(kernels, operands, call, shapes[:inputs], shapes[inputs:])
        if plan:
            kernel, grid, arguments = plan
            kernel[grid](*tensors, *arguments, **kernels.options)

    return run


def _plan(kernels: _Kernels, operands: Operands, call: CallInfo, inputs: Any, outputs: Any) -> Any:
    """The kernel, its grid and its arguments behind the tensors, for tensors of these shapes; () without elements."""
    # Elements up to which 32-bit integers count them, including the rest of the last block.
    max_narrow = 2**31 - 2**20
    if len(set(outputs)) > 1:
        raise KernelError(call.op.name, f"its results have the shapes {outputs}", "results of one shape for pointwise")
    axes = layout(outputs[0], inputs)
    if axes.count == 0:
        return ()
    kernel = kernels.kernel(source(operands, len(axes.sizes), wide=axes.count > max_narrow))
    strides = [stride for each in axes.strides for stride in each]
    return kernel, (triton.cdiv(axes.count, kernels.block),), (*operands.numbers, axes.count, *axes.sizes, *strides)


def _operands(kernels: _Kernels, call: CallInfo) -> Operands:
    outputs = call.outputs()
    result = outputs[0].dtype
    tensors = [arg.dtype for arg in call.args if isinstance(arg, TensorType)]
    arguments: list[str] = []
    numbers: list[float] = []
    double = "float64" in (result, *tensors)
    for i, arg in enumerate(call.args):
        if isinstance(arg, TensorType):
            arguments.append(f"v{sum(a.startswith('v') for a in arguments)}")
        elif _is_list(arg):
            name = call.op.schema.names[i]
            raise KernelError(call.op.name, f"argument '{name}' is a list of tensors", "single tensors for pointwise")
        elif isinstance(arg, (int, float)) and not isinstance(arg, bool) and not kernels.is_constant(i):
            value = float(arg) if dtypes.is_float(result) else arg
            if double and isinstance(value, float):
                arguments.append(f"tl.full([BLOCK], {_text(value)}, tl.float64)")
            else:
                arguments.append(f"number{len(numbers)}")
                numbers.append(value)
        else:
            arguments.append(_text(arg))
    return Operands(tuple(arguments), tuple(_cast(t, result, tensors) for t in tensors), tuple(numbers), len(outputs))


def _is_list(arg: Any) -> bool:
    return isinstance(arg, tuple) and any(isinstance(item, TensorType) for item in arg)


def _text(value: Any) -> str:
    """A constant as source text."""
    text = repr(value)
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else text


def _cast(dtype: str, result: str, tensors: Sequence[str]) -> str:
    """The conversion of an operand of `dtype` behind its load."""
    if dtype in dtypes.HALVES:
        return ".to(tl.float32)"
    mixed = dtype == "bool" and any(map(dtypes.is_float, tensors))
    if dtypes.is_float(result) and not dtypes.is_float(dtype) and not mixed:
        return f".to(tl.{dtypes.accumulation_dtype(result)})"
    return ""
