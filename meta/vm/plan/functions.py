"""The kernels of a program: its PrimFuncs, and those that planning makes of them.

A kernel may write a result over an operand, and gets its large buffers as arguments: further results that nothing
reads, whose memory the plan lets other tensors share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule.buffers import allocated_bytes, lasting_buffers, may_share, merged, with_parameters
from meta.backend.tvm.schedule.gpu.bundle import Launch
from meta.backend.tvm.schedule.patterns import schedule
from meta.vm.plan.kernels import KernelCall, KernelList, Operand, Tensor, same_shape

Kernels = dict[str, tuple[str, ...]]
"""The operators in each kernel."""


class KernelTable:
    """PrimFuncs by name. kernels: the operators in each, and in packed functions.  target: what they are compiled for.

    Copies share what they have found out about kernels."""

    def __init__(self, functions: dict[str, Any], kernels: Mapping[str, tuple[str, ...]], target: Any) -> None:
        self.functions = functions
        self.kernels = dict(kernels)
        self.target = target
        self._over: dict[tuple[str, int, int], str] = {}
        self._workspaces: dict[str, int] = {}
        self.launches: dict[str, Launch | None] = {}
        """How kernels of small operators start, see `bundle_kernels`."""
        self.bundles: dict[Any, str] = {}
        """The kernels of bundles, by the members and the positions of their arguments."""

    def add(self, name: str, function: Any, operators: tuple[str, ...]) -> str:
        """Add a PrimFunc; returns its name, which no other has."""
        unique, count = name, 0
        while unique in self.functions:
            count += 1
            unique = f"{name}_{count}"
        self.functions[unique] = function
        self.kernels[unique] = operators
        return unique

    def workspace(self, name: str) -> int:
        """The bytes that a kernel allocates itself."""
        if name not in self._workspaces:
            self._workspaces[name] = allocated_bytes(self.functions[name])
        return self._workspaces[name]

    def write_over(self, call: KernelCall, result: Tensor, operand: Operand) -> KernelCall | None:
        """The call with `result` written over `operand`, its argument; None where the kernel may not do that.

        It may not if the operand is another argument as well, or if another result is written over it."""
        position = next(i for i, t in call.writes.items() if t is result)
        places = [i for i, a in enumerate(call.arguments) if isinstance(a, Operand) and a.tensor is operand.tensor]
        if call.packed or len(places) != 1 or places[0] in call.writes or not same_shape(operand.shape, result.shape):
            return None
        name = self._writing_over(call.function, position, places[0])
        if not name:
            return None
        kept = [i for i in range(len(call.arguments)) if i != position]
        writes = {places[0] if t is result else i: t for i, t in call.writes.items()}
        writes = {kept.index(i): t for i, t in writes.items()}
        arguments = tuple(call.arguments[i] for i in kept)
        return KernelCall(name, False, arguments, writes, call.members, call.source or call)

    def _writing_over(self, name: str, result: int, operand: int) -> str:
        """The kernel whose parameter `operand` is its result too, "" if there is none."""
        key = name, result, operand
        if key not in self._over:
            func = self.functions[name]
            target, source = func.params[result], func.params[operand]
            self._over[key] = ""
            if str(target.ty.dtype) == str(source.ty.dtype) and may_share(func, source, target):
                function = merged(func, source, target)
                self._over[key] = self.add(f"{name}_{result}_over_{operand}", function, self.kernels.get(name, ()))
        return self._over[key]

    def copy(self, source: Operand, target: Tensor) -> KernelCall:
        """A call that copies a tensor into another one of its shape."""
        shape = source.shape
        assert shape is not None
        dims = [d if isinstance(d, int) else None for d in shape]
        name = "_".join(["copy", target.dtype, *("n" if d is None else str(d) for d in dims)])
        if name not in self.functions:
            axes = [tvm.te.var(f"n{i}", "int64") if d is None else tvm.IntImm("int64", d) for i, d in enumerate(dims)]
            x = tvm.te.placeholder(axes, target.dtype, "x")

            def copied(*index: Any) -> Any:
                return x(*index)

            func = tvm.create_prim_func([x, tvm.te.compute(axes, copied, "copy")])
            self.add(name, schedule(func.without_attr("global_symbol"), "elemwise", self.target), ("copy",))
        return KernelCall(name, False, (source, Operand(target)), {1: target})


def lift_workspaces(function: KernelList, functions: KernelTable) -> None:
    """Make the large buffers of kernels tensors of the list."""
    lifted: dict[str, tuple[str, list[Any]]] = {}
    for i, call in enumerate(function.steps):
        if not isinstance(call, KernelCall) or call.packed:
            continue
        if call.function not in lifted:
            lifted[call.function] = _lifted(call.function, functions)
        name, buffers = lifted[call.function]
        if buffers:
            tensors = [Tensor("workspace", tuple(int(d) for d in b.shape), str(b.dtype)) for b in buffers]
            writes = call.writes | {len(call.arguments) + i: t for i, t in enumerate(tensors)}
            arguments = (*call.arguments, *map(Operand, tensors))
            function.steps[i] = KernelCall(name, False, arguments, writes, source=call.source or call)


def _lifted(name: str, functions: KernelTable) -> tuple[str, list[Any]]:
    """The kernel that takes its large buffers as further parameters, and those buffers."""
    func = functions.functions[name]
    buffers = lasting_buffers(func, limits.ALLOCATED_BYTES)
    if not buffers:
        return name, []
    return functions.add(f"{name}_in", with_parameters(func, buffers), functions.kernels.get(name, ())), buffers
