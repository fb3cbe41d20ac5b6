"""Runners: what an eager call of known types and attributes does, which is to allocate, run the kernel and wrap.

A runner takes the tensor arguments of a call in schema order and returns its result. It has nothing left to decide:
the allocators, the kernel and the types of the results are bound when it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, cast

from meta.backend.memory import allocation
from meta.backend.tvm import devices
from meta.eager.gradient_graph import record_write
from meta.eager.ndarray import NDArray
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType, TupleType
from meta.op.dispatch import Kernel, choose
from meta.op.registry import Op

Runner = Callable[..., Any]


def build_runner(call: CallInfo) -> Runner:
    """`run(*tensor arguments) -> result` for calls of exactly these types and attributes."""
    if call.op.view:
        return _view_runner(call)
    devices.require(call.device)
    kernel = (None if call.layouts else _on_joined_axes(call)) or choose(call).checked_kernel(call)
    if call.op.inplace:
        return _inplace_runner(call, kernel)
    if isinstance(call.out, TupleType):
        return _tuple(kernel, call)
    return runner_of(kernel, call)


def _on_joined_axes(call: CallInfo) -> Kernel | None:
    """A kernel for fewer axes, on views of the operands and results: loops over many short axes are slow. None for up
    to four axes, which cost less than views do."""
    tensors = call.tensors()
    if not isinstance(call.op, Op) or not tensors or tensors[0].ndim <= 4 or call.op.inplace:
        return None
    from meta.op.axes import TypedCall, joined  # not for the first call of a process

    args = joined(TypedCall(call.op, call.args, tuple(tensors), tuple(call.outputs())))
    if args is None:
        return None
    fewer = CallInfo(call.op, args, call.op.infer(args), call.device)
    kernel = choose(fewer).checked_kernel(fewer)
    views = [allocation.bind_view(kind) for kind in (*fewer.tensors(), *fewer.outputs())]
    return lambda *tensors: kernel(*[view(x) for view, x in zip(views, tensors, strict=True)])


def runner_of(kernel: Kernel, call: CallInfo) -> Runner:
    """`run(*tensor arguments) -> result` by a kernel of one result."""
    roles = [a.type.role for a in call.op.schema.args if a.is_tensor]
    plain = "tensors" not in roles and len(call.tensors()) == len(roles)
    if plain and len(roles) <= 3:
        return _SIMPLE[len(roles)](kernel, allocation.allocator(call.outputs()[0]), call.outputs()[0])
    build = _list if roles == ["tensors"] else _general
    return build(kernel, allocation.allocator(call.outputs()[0]), call.outputs()[0])


def _nullary(kernel: Kernel, new: Callable[[], Any], out_type: TensorType) -> Runner:
    def run() -> NDArray:
        out = new()
        kernel(out)
        return NDArray(out, out_type)

    return run


def _unary(kernel: Kernel, new: Callable[[], Any], out_type: TensorType) -> Runner:
    def run(x: NDArray) -> NDArray:
        out = new()
        kernel(x._data, out)
        return NDArray(out, out_type)

    return run


def _binary(kernel: Kernel, new: Callable[[], Any], out_type: TensorType) -> Runner:
    def run(x1: NDArray, x2: NDArray) -> NDArray:
        out = new()
        kernel(x1._data, x2._data, out)
        return NDArray(out, out_type)

    return run


def _ternary(kernel: Kernel, new: Callable[[], Any], out_type: TensorType) -> Runner:
    def run(x1: NDArray, x2: NDArray, x3: NDArray) -> NDArray:
        out = new()
        kernel(x1._data, x2._data, x3._data, out)
        return NDArray(out, out_type)

    return run


_SIMPLE = (_nullary, _unary, _binary, _ternary)


def _list(kernel: Kernel, new: Callable[[], Any], out_type: TensorType) -> Runner:
    """A result of one list of tensors."""

    def run(xs: Sequence[NDArray]) -> NDArray:
        out = new()
        kernel(*[x._data for x in xs], out)
        return NDArray(out, out_type)

    return run


def _general(kernel: Kernel, new: Callable[[], Any], out_type: TensorType) -> Runner:
    def run(*args: object) -> NDArray:
        out = new()
        kernel(*_flat_data(args), out)
        return NDArray(out, out_type)

    return run


def _tuple(kernel: Kernel, call: CallInfo) -> Runner:
    allocators = [(allocation.allocator(t), t) for t in call.outputs()]
    if len(allocators) == 2 and [a.type.role for a in call.op.schema.args if a.is_tensor] == ["tensor"]:
        return _pair(kernel, *allocators)

    def run(*args: object) -> tuple[NDArray, ...]:
        outs = [new() for new, _ in allocators]
        kernel(*_flat_data(args), *outs)
        return tuple(NDArray(out, t) for out, (_, t) in zip(outs, allocators, strict=True))

    return run


def _pair(
    kernel: Kernel, first: tuple[Callable[[], Any], TensorType], second: tuple[Callable[[], Any], TensorType]
) -> Runner:
    """Two results of one tensor."""
    (new_a, type_a), (new_b, type_b) = first, second

    def run(x: NDArray) -> tuple[NDArray, ...]:
        a, b = new_a(), new_b()
        kernel(x._data, a, b)
        return NDArray(a, type_a), NDArray(b, type_b)

    return run


def _view_runner(call: CallInfo) -> Runner:
    """The same memory under another shape."""
    out_type = call.outputs()[0]
    view = allocation.bind_view(out_type)

    def run(x: NDArray, *_: object) -> NDArray:
        out = x._alias()
        out._data = view(x._data)
        out._type = out_type
        return out

    return run


def _inplace_runner(call: CallInfo, kernel: Kernel) -> Runner:
    """Results named in `op.inplace` are written into (and returned as) the argument that they replace.

    Operands may share memory in other ways too, as in `adagrad(w, g, g)`. Then the kernel, which may write before it
    has read, writes to other memory: all operands are read before any is replaced, as in a program."""
    op = call.op
    names = [op.schema.names[i] for i in op.schema.tensor_positions]
    targets = [names.index(op.inplace[i]) if i in op.inplace else None for i in range(len(call.outputs()))]
    types = call.outputs()
    overlap = _overlap_test(call.tensors())
    single = not isinstance(call.out, TupleType)

    def run(*args: Any) -> Any:
        outs = [
            record_write(op.name, args[target])
            if target is not None
            else NDArray(allocation.empty(t.shape, t.dtype, t.device), t)
            for target, t in zip(targets, types, strict=True)
        ]
        operands = _flat_data(args)
        if overlap(operands):
            results = [allocation.empty(t.shape, t.dtype, t.device) for t in types]
            kernel(*operands, *results)
            for result, out in zip(results, outs, strict=True):
                allocation.copy_into(result, out._data)
        else:
            kernel(*operands, *[out._data for out in outs])
        return outs[0] if single else tuple(outs)

    return run


def _overlap_test(types: Sequence[TensorType]) -> Callable[[Sequence[Any]], bool]:
    """Whether two of the tensors of these types share memory."""
    byte_counts: list[Any] = [t.nbytes for t in types]
    largest = max(byte_counts)

    def overlap(tensors: Sequence[Any]) -> bool:
        last = -largest
        for address in sorted([x.data_ptr() for x in tensors]):  # every call does this: 0.6 us for four tensors
            if address - last < largest:
                break
            last = address
        else:
            return False
        spans = sorted(zip([x.data_ptr() for x in tensors], byte_counts, strict=True))
        return any(start + size > following for (start, size), (following, _) in pairwise(spans))

    return overlap


def _flat_data(args: Any) -> list[Any]:
    """The raw tensors of a runner's arguments: lists flattened, absent ones and scalars left out.

    Not meta.tree: it runs in every call of an operator with many or optional arguments, and lists hold arrays only."""
    out: list[Any] = []
    for arg in args:
        if isinstance(arg, NDArray):
            out.append(arg._data)
        elif isinstance(arg, (tuple, list)):
            out.extend(item._data for item in cast("Sequence[NDArray]", arg))
    return out
