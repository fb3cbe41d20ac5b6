"""Memory that kernels allocate themselves as tensors of the program, whose plan lets others share it.

A kernel with an intermediate matrix gets it as an argument, which the program allocates just before.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.dtype import itemsize

LEAST_BYTES: Final = 1 << 20
"""Bytes of a buffer, at least."""


Kernels = dict[str, tuple[str, ...]]
"""The operators in each kernel."""
Lifted = dict[Any, tuple[Any, list[Any]]]
"""Kernel -> the kernel that takes its buffers, and the buffers."""


def lift_workspaces(module: Any, kernels: Kernels) -> tuple[Any, Kernels]:
    """`module` with the large buffers of kernels as tensors of "main", and the operators in each kernel."""
    builder = tvm.BlockBuilder(module)
    lifted: Lifted = {}
    kernels = dict(kernels)
    for name, func in module.functions.items():
        buffers = _lasting(func) if isinstance(func, tvm.PrimFunc) else []
        if buffers:
            target = builder.add_func(_with_parameters(func, buffers), f"{name.name_hint}_in")
            kernels[target.name_hint] = kernels.get(name.name_hint, ())
            lifted[name] = target, buffers
    if not lifted:
        return module, kernels
    name = next(v for v in module.get_global_vars() if v.name_hint == "main")
    main = module[name]
    blocks = [tvm.BindingBlock([n for b in block.bindings for n in _bindings(b, lifted)]) for block in main.body.blocks]
    body = tvm.SeqExpr(blocks, main.body.body)
    builder.update_func(name, tvm.RelaxFunction(main.params, body, main.ret_ty, main.is_pure, main.attrs))
    return tvm.relax_transform.Normalize()(builder.get()), kernels


def _lasting(func: Any) -> list[Any]:
    """The large buffers of a kernel that several of its loop nests use, which are allocated as a whole."""
    if not any(map(_is_large, _root_buffers(func))):
        return []
    located = tvm.block_transform.PlanAndUpdateBufferAllocationLocation()
    module = located(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}))
    remaining = _root_buffers(module["main"])
    return [b for b in _root_buffers(func) if _is_large(b) and any(b.same_as(r) for r in remaining)]


def _root_buffers(func: Any) -> list[Any]:
    return list(func.body.block.alloc_buffers) if isinstance(func.body, tvm.SBlockRealize) else []


def _is_large(buffer: Any) -> bool:
    if buffer.scope() not in ("", "global") or not all(isinstance(d, tvm.IntImm) for d in buffer.shape):
        return False
    return prod(map(int, buffer.shape)) * itemsize(str(buffer.dtype)) >= LEAST_BYTES


def _with_parameters(func: Any, buffers: list[Any]) -> Any:
    """A kernel that takes some of its buffers as further parameters."""
    root = func.body.block
    own_buffers = [b for b in root.alloc_buffers if not any(b.same_as(x) for x in buffers)]
    block = tvm.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, root.body, root.init, own_buffers, root.match_buffers,
        root.annotations,
    )  # fmt: skip
    body = tvm.SBlockRealize(func.body.iter_values, func.body.predicate, block)
    return tvm.PrimFunc([*func.params, *buffers], body, func.ret_type, func.attrs)


def _bindings(binding: Any, lifted: Lifted) -> list[Any]:
    """A binding, with the tensors that its kernel takes before it."""
    value = binding.value
    called = value.op if isinstance(value, tvm.RelaxCall) and isinstance(value.op, tvm.GlobalVar) else None
    if called not in lifted:
        return [binding]
    out: list[Any] = []
    tensors: list[Any] = []
    target, buffers = lifted[called]
    for buffer in buffers:
        shape = tvm.ShapeExpr([int(d) for d in buffer.shape])
        call = tvm.relax.op.builtin.alloc_tensor(shape, str(buffer.dtype), 0)
        tensors.append(tvm.RelaxVar("workspace", tvm.TensorType(shape, str(buffer.dtype))))
        out.append(tvm.VarBinding(tensors[-1], call))
    call = tvm.RelaxCall(target, [*value.args, *tensors], value.attrs, value.ty_args)
    return [*out, tvm.VarBinding(binding.var, call)]
