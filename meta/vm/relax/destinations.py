"""Programs that allocate nothing: "main" takes the memory of all tensors that it computes as further parameters.

A CUDA graph records addresses, so the owner of the graph provides the memory of the program. Only straight-line
programs of static sizes have this form.
"""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.dtype import itemsize
from meta.records import record
from meta.vm.relax.steps import is_kernel, op_name


@record
class Destination:
    """A parameter that the program writes: a tensor in a storage, at an offset in bytes."""

    storage: int
    offset: int
    shape: tuple[int, ...]
    dtype: str


@record
class Destinations:
    """The further parameters of "main". storages: bytes of each storage that they share.
    kernels: the number of kernel calls in the program."""

    storages: tuple[int, ...]
    tensors: tuple[Destination, ...]
    kernels: int

    def as_dict(self) -> dict[str, Any]:
        return {"storages": self.storages, "tensors": [asdict(t) for t in self.tensors], "kernels": self.kernels}

    @staticmethod
    def from_dict(facts: dict[str, Any]) -> Destinations:
        tensors = (Destination(t["storage"], t["offset"], tuple(t["shape"]), t["dtype"]) for t in facts["tensors"])
        return Destinations(tuple(facts["storages"]), tuple(tensors), facts["kernels"])


def with_destinations(module: Any) -> tuple[Any, Destinations] | None:
    """A planned module (before `finish`) whose "main" takes its memory, with the description of that memory; None where
    "main" branches, calls other functions, or has symbolic sizes."""
    name = next(v for v in module.get_global_vars() if v.name_hint == "main")
    main = module[name]
    storages: list[int] = []
    places: dict[Any, int] = {}
    tensors: list[Destination] = []
    params: list[Any] = []
    blocks: list[Any] = []
    kernels = 0
    for block in main.body.blocks:
        bindings: list[Any] = []
        for binding in block.bindings:
            if not isinstance(binding, tvm.VarBinding) or _leaves_the_line(module, binding.value):
                return None
            value, kind = binding.value, op_name(binding.value)
            if kind == "relax.memory.alloc_storage":
                size = _static(value.args[0])
                if size is None:
                    return None
                places[binding.var] = len(storages)
                storages.append(prod(size))
            elif kind in ("relax.memory.alloc_tensor", "relax.builtin.alloc_tensor"):
                inside = kind == "relax.memory.alloc_tensor"
                shape, dtype = _static(value.args[2 if inside else 0]), str(value.args[3 if inside else 1].value)
                if shape is None:
                    return None
                if not inside:
                    storages.append(prod(shape) * itemsize(dtype))
                place = places[value.args[0]] if inside else len(storages) - 1
                offset = int(value.args[1].value) if inside else 0
                tensors.append(Destination(place, offset, shape, dtype))
                params.append(binding.var)
            else:
                kernels += is_kernel(binding.value)
                bindings.append(binding)
        blocks.append(tvm.BindingBlock(bindings))
    body = tvm.SeqExpr(blocks, main.body.body)
    functions = dict(module.functions.items())
    functions[name] = tvm.RelaxFunction([*main.params, *params], body, main.ret_ty, main.is_pure, main.attrs)
    return tvm.IRModule(functions, attrs=module.attrs), Destinations(tuple(storages), tuple(tensors), kernels)


def _leaves_the_line(module: Any, value: Any) -> bool:
    """Whether a value branches or calls a function of the program."""
    if isinstance(value, tvm.RelaxIf):
        return True
    called = isinstance(value, tvm.RelaxCall) and isinstance(value.op, tvm.GlobalVar)
    return called and not isinstance(module[value.op], tvm.PrimFunc)


def _static(shape: Any) -> tuple[int, ...] | None:
    if not all(isinstance(d, (int, tvm.IntImm)) for d in shape.values):
        return None
    return tuple(int(d) for d in shape.values)
