"""Fuses bias, sum and relu with the convolution or product before them, where one kernel computes all of them.

relu(bias_add(conv2d(x, w), b) + y)      =>      conv2d_epilogue(x, w, b, y, relu=True)
matmul(x, w, transpose_b=True) + b       =>      dense(x, w, b)      on GPUs

Constant kernels are packed for TVM's register tiles, which take less time than a library's kernels on CPUs:

conv2d_epilogue(x, w, b, y, relu=True)      =>      conv2d_packed(x, panels of w, channels, b, y, relu=True)

`separate_biases` does the opposite for products on CPUs that elementwise operators read:

y = dense(x, w, b)                     z = dense(x, w)
a = gelu(y); c = gelu_dx(y, d)    =>   a = gelu(z + b); c = gelu_dx(z + b, d)

A library writes the bias into the result before the product, which then reads the result and writes it once more. TVM
fuses a sum for each reader with it, so that the bias costs a vector that stays in the cache.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from meta._generated import limits
from meta.backend.tvm.compute import TEImplementation
from meta.backend.tvm.te.tiles import lanes
from meta.dtype import HALVES
from meta.ir.expr import Atom, Binding, Call, CallInfo, Constant, Expr, FunctionExpr, Var, arg_types
from meta.ir.printer import to_array
from meta.ir.type import TensorType
from meta.ir.visitor import reads, use_counts, walk, walk_blocks
from meta.op.dispatch import first_accepting
from meta.op.registry import Op, get
from meta.passes.manager import function_pass
from meta.passes.rewriting import Rule, Scope, by_op, counted, is_elementwise, plain_call, rewrite
from meta.passes.simplify import producer


@function_pass("fuse_epilogues", "conv2d", "conv2d_epilogue", "matmul")
def fuse_epilogues(function: FunctionExpr) -> FunctionExpr:
    """Put conv2d_epilogue in place of a conv2d and the bias, the sum and the relu that are its only readers, where
    the dialect that runs it is a library's, or TVM's in register tiles; likewise `dense` on GPUs. On CPUs, then put
    conv2d_packed in place of those with constant kernels and channels last. Results stay the same up to rounding."""
    fused = rewrite(function, counted("fuse_epilogues", by_op(_table(use_counts(function)))))
    return rewrite(fused, counted("fuse_epilogues", by_op({"conv2d": _packed, "conv2d_epilogue": _packed})))


def _table(counts: Counter[Var]) -> dict[str, Rule]:
    def convolution(scope: Scope, y: Any) -> dict[str, Any] | None:
        """The arguments of conv2d_epilogue for a convolution that one operator reads, without relu."""
        if not isinstance(y, Var) or counts[y] != 1:
            return None
        conv, fused = producer(scope, y, "conv2d"), producer(scope, y, "conv2d_epilogue")
        if fused is not None:
            arguments = _arguments(fused)
            return None if arguments["relu"] else arguments
        return None if conv is None else {"bias": None, "other": None, "relu": False} | _arguments(conv)

    def bias_add(binding: Binding, scope: Scope) -> Expr | None:
        call = plain_call(binding.value)
        arguments = convolution(scope, call.args[0]) if call is not None else None
        if call is None or arguments is None or arguments["bias"] is not None or arguments["other"] is not None:
            return None
        x, bias, axis = call.args
        channels = 3 if arguments["channels_last"] else 1
        return _fused(scope, call, arguments | {"bias": bias}) if axis % x.type.ndim == channels else None

    def product(scope: Scope, y: Any, bias: Any) -> Expr | None:
        """The product of matrices that one operator reads, with the bias that it adds."""
        call = producer(scope, y, "matmul") if isinstance(y, Var) and counts[y] == 1 else None
        if call is None or call.args[2:] != (False, True) or not _is_bias(bias, call):
            return None
        args: tuple[Any, ...] = (*call.args[:2], bias)
        return scope.call_expr(get("dense"), args) if _is_by_library(get("dense"), args, call.type) else None

    def add(binding: Binding, scope: Scope) -> Expr | None:
        call = plain_call(binding.value)
        for y, other in (call.args, call.args[::-1]) if call is not None else ():
            if (biased := product(scope, y, other)) is not None:
                return biased
            arguments = convolution(scope, y)
            if call is not None and arguments is not None and arguments["other"] is None and _is_like(other, call.type):
                return _fused(scope, call, arguments | {"other": other})
        return None

    def relu(binding: Binding, scope: Scope) -> Expr | None:
        call = plain_call(binding.value)
        arguments = convolution(scope, call.args[0]) if call is not None else None
        return None if call is None or arguments is None else _fused(scope, call, arguments | {"relu": True})

    return {"bias_add": bias_add, "add": add, "relu": relu}


def _arguments(call: Call) -> dict[str, Any]:
    return dict(zip(call.op.schema.names, call.args, strict=True))  # type: ignore[union-attr]


def _is_like(other: Any, kind: Any) -> bool:
    return isinstance(getattr(other, "type", None), TensorType) and other.type == kind


def _is_bias(bias: Any, product: Call) -> bool:
    """Whether a vector goes with the columns of a product of two matrices on a GPU."""
    kind, out = getattr(bias, "type", None), product.type
    if not isinstance(kind, TensorType) or not isinstance(out, TensorType) or out.device.kind != "cuda":
        return False
    return out.is_static and out.ndim == 2 and kind.shape == out.shape[1:] and kind.dtype == out.dtype


def _is_by_library(op: Op, args: tuple[Any, ...], kind: Any) -> bool:
    implementation = first_accepting(_call_info(op, args, kind), in_program=True)
    return implementation is not None and not isinstance(implementation.payload, TEImplementation)


def _fused(scope: Scope, old: Call, arguments: dict[str, Any]) -> Expr | None:
    """The call, if its type stays and one kernel runs it."""
    op = get("conv2d_epilogue")
    args = tuple(arguments[n] for n in op.schema.names)
    types = arg_types(args)
    tensors = [t for t in types if isinstance(t, TensorType)]
    if len({t.dtype for t in tensors}) != 1 or not all(t.is_static for t in tensors):
        return None
    info = _call_info(op, args, old.type)
    implementation = first_accepting(info, in_program=True)
    if implementation is None or (
        isinstance(implementation.payload, TEImplementation) and not implementation.prefers_channels_last(info)
    ):
        return None
    return scope.call_expr(op, args)


def _call_info(op: Op, args: tuple[Any, ...], kind: Any) -> CallInfo:
    return CallInfo(op, arg_types(args), kind, kind.device)


def _packed(binding: Binding, scope: Scope) -> Expr | None:
    """A convolution with a constant kernel on a CPU, packed; None for others."""
    call = plain_call(binding.value)
    if call is None or not isinstance(call.op, Op):
        return None
    arguments = {"bias": None, "other": None, "relu": False} | _arguments(call)
    w = arguments["w"]
    if (
        not isinstance(w, Constant)
        or not arguments["channels_last"]
        or arguments["groups"] != 1
        or w.type.shape[0] < limits.TILED_LANES
    ):
        return None
    op = get("conv2d_packed")
    arguments |= {"w": _panels(w), "channels": w.type.shape[0]}
    args = tuple(arguments[n] for n in op.schema.names)
    info = _call_info(op, args, call.type)
    if info.device.kind != "cpu" or not all(t.is_static for t in info.tensors()):
        return None
    implementation = first_accepting(info, in_program=True)
    is_compiled = implementation is not None and isinstance(implementation.payload, TEImplementation)
    return scope.call_expr(op, args) if is_compiled else None


def _panels(w: Constant) -> Constant:
    """A kernel (out channels, *window, channels) in panels of as many out channels as the lanes of a tile."""
    width = lanes(w.type.dtype)
    value: Any = to_array(w.value)
    wide: Any = np.pad(value, [(0, -len(value) % width), *[(0, 0)] * (value.ndim - 1)])
    panels = np.ascontiguousarray(np.moveaxis(wide.reshape(-1, width, *value.shape[1:]), 1, -1))
    return Constant(panels, w.type.with_shape(panels.shape), w.span)


@function_pass("separate_biases", "dense", device="cpu")
def separate_biases(function: FunctionExpr) -> FunctionExpr:
    """Add the bias of a `dense` on a CPU that a library computes in each of its one or two readers, if all of them are
    elementwise operators of its shape that TVM computes. Halves stay as they are. Results stay the same up to
    rounding."""
    biases = _separable(function)
    if not biases:
        return function

    def is_separated(arg: Any) -> bool:
        return isinstance(arg, Var) and arg in biases

    def rule(binding: Binding, scope: Scope) -> Expr | None:
        call = binding.value
        if not isinstance(call, Call):
            return None
        if is_separated(binding.var):
            return scope.call_expr(call.op, (*call.args[:2], None))
        if not any(map(is_separated, call.args)):
            return None
        add = get("add")
        args = [scope.call(add, (arg, biases[arg])) if is_separated(arg) else arg for arg in call.args]
        return scope.call_expr(call.op, tuple(args))

    return rewrite(function, counted("separate_biases", rule))


def _separable(function: FunctionExpr) -> dict[Var, Atom]:
    """The results of products whose biases are to be added by their readers -> the biases."""
    most_readers = 2
    biases: dict[Var, Atom] = {}
    for binding in walk(function):
        call: Any = binding.value
        bias: Any = call.args[2] if plain_call(call, "dense") else None
        # Other variables may not be known where the readers are, and halves would be rounded once more.
        is_known = isinstance(bias, Constant) or bias in function.params
        if bias is not None and is_known and bias.type.dtype not in HALVES and _runs_on_cpu(call, False):
            biases[binding.var] = bias
    counts: dict[Any, int] = dict.fromkeys(biases, 0)
    for binding in walk(function):
        for atom in set(reads(binding.value)) & biases.keys():
            is_taker = is_elementwise(binding.value, atom.type) and _runs_on_cpu(binding.value, True)
            counts[atom] += 1 if is_taker else most_readers + 1
    for block in walk_blocks(function):
        for atom in set(block.results) & biases.keys():
            counts[atom] += most_readers + 1
    return {var: bias for var, bias in biases.items() if 1 <= counts[var] <= most_readers}


def _runs_on_cpu(call: Any, compiled: bool) -> bool:
    """Whether a call of known sizes runs on a CPU, in a kernel of TVM (compiled) or of a library."""
    kind = call.type
    if kind.device.kind != "cpu" or not kind.is_static:
        return False
    implementation = first_accepting(CallInfo(call.op, arg_types(call.args), kind, kind.device), in_program=True)
    return implementation is not None and isinstance(implementation.payload, TEImplementation) == compiled
