"""The memory of programs in C: one block, the arena, in which every function has a part, its frame; and slots.

The frame of a function lies behind the frames of the functions that call it. It has what machines allocate when loops
and conditionals run: a second copy of each value that a loop carries, which steps write to in turn; rows that start
between aligned addresses, which steps read and write elsewhere; and results of conditionals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.deploy.sizes import CSizes
from meta.deploy.tables import SlotPlace, TensorTables, tensor_bytes, unsupported
from meta.dtype import itemsize
from meta.vm.lower.calls import LOOP_FUNCTION, LoopCall
from meta.vm.plan.kernels import (
    OBJECT,
    OWN,
    PARAMETER,
    PLANNED,
    KernelCall,
    KernelList,
    Memory,
    Operand,
    Shape,
    Tensor,
    leaves,
)  # fmt: skip
from meta.vm.plan.pipeline import Planned
from meta.vm.plan.relax import elements, sizes


def known_shape(tensor: Tensor) -> Shape:
    if tensor.shape is None:
        raise unsupported(f"only running the program shows the sizes of {tensor.name}", "sizes that follow from inputs")
    return tensor.shape


class ArenaFrame:
    """The memory of a function.

    bytes: of the arena.  storages: where the storages of the plan start.  places: of other memory.
    lines: statements in C."""

    def __init__(self, tables: TensorTables, name: str, sizes: CSizes) -> None:
        self.tables = tables
        self.name = name
        self.sizes = sizes
        self.bytes = 0
        self.storages: list[int] = []
        self.places: dict[Memory, SlotPlace] = {}
        self.lines: list[str] = []

    def place(self, tensor: Tensor) -> SlotPlace:
        memory = tensor.memory
        if memory.kind == PLANNED:
            return SlotPlace(0, self.storages[memory.storage] + memory.offset, self.name)
        if memory not in self.places:
            assert memory.kind != PARAMETER
            self.places[memory] = self.reserve(known_shape(tensor), tensor.dtype)
        return self.places[memory]

    def reserve(self, shape: Shape, dtype: str) -> SlotPlace:
        """Memory in the frame beside the plan's; a slot for a tensor of symbolic size."""
        size = tensor_bytes(shape, dtype)
        if size is None:
            return SlotPlace(self.tables.slot())
        start = aligned(self.bytes)
        self.bytes = start + size
        return SlotPlace(0, start, self.name)

    def view(self, operand: Operand, place: SlotPlace | None = None) -> int:
        """The number of a view. place: by default the operand's."""
        shape = operand.shape if operand.view is not None else known_shape(operand.tensor)
        assert shape is not None
        place = place or self.place(operand.tensor)
        return self.tables.view(place, self.sizes.shape(shape), len(shape), operand.tensor.dtype)

    def shape(self, operand: Operand) -> Shape:
        return operand.view if operand.view is not None else known_shape(operand.tensor)


# --- the plan --------------------------------------------------------------------------------------------------------

ALIGNMENT: Final = 64
"""Bytes that addresses of tensors are multiples of, in kernels of TVM and in META_ALIGNMENT."""


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def lift_loops(function: KernelList, loops: Mapping[str, LoopCall]) -> None:
    """Make the memory that loops and conditionals need tensors of the list. A loop takes its own as further arguments,
    in the order of `loop_workspaces`."""
    kept = {o.tensor for o in leaves(function.result)}
    for i, step in enumerate(function.steps):
        if not isinstance(step, KernelCall):
            for tensor in step.results:
                if tensor.memory.kind == OBJECT and tensor.is_static and tensor not in kept:
                    tensor.memory.kind = PLANNED
            step.workspaces = tuple(_workspace(*each) for each in _repeated_values(step.expression))
        elif step.function in loops:
            tensors = [_workspace(*each) for each in loop_workspaces(step, loops[step.function]) if each is not None]
            writes = step.writes | {len(step.arguments) + j: t for j, t in enumerate(tensors)}
            arguments = (*step.arguments, *map(Operand, tensors))
            function.steps[i] = replace(step, arguments=arguments, writes=writes, source=step.source or step)


def _workspace(shape: Shape, dtype: str) -> Tensor:
    tensor = Tensor("workspace", shape, dtype)
    return tensor if tensor.is_static else replace(tensor, memory=Memory(OWN))


def _repeated_values(expression: Any) -> list[tuple[Shape, str]]:
    """Shape and dtype of the values that the loops of an expression carry. A loop returns them after a flag."""
    calls: list[Any] = []
    tvm.structural_walk(expression, (tvm.RelaxCall, calls.append))
    loops = [call for call in calls if str(getattr(call.op, "global_symbol", "")) == LOOP_FUNCTION]
    return [
        (sizes(kind.shape.values), str(kind.dtype)) for call in loops for kind in elements(call.ty_args[0].fields)[1:]
    ]


def loop_workspaces(call: KernelCall, loop: LoopCall) -> list[tuple[Shape, str] | None]:
    """Shape and dtype of the memory of a loop: for each value that it carries, and for a row of each tensor that it
    takes apart or fills, None where all rows are aligned."""
    first, last = loop.carried, loop.carried + len(loop.elements)
    operands = [a for a in call.arguments if isinstance(a, Operand)]
    outs = operands[last + loop.captured :][: first + len(loop.stacks)]
    kinds = [(o.shape or (), o.tensor.dtype) for o in (*outs[:first], *operands[first:last], *outs[first:])]
    rows = ((shape[1:], dtype) for shape, dtype in kinds[first:])
    return [*kinds[:first], *(None if _is_aligned(*row) else row for row in rows)]


def _is_aligned(shape: Shape, dtype: str) -> bool:
    return all(isinstance(d, int) for d in shape) and aligned(size := prod(shape) * itemsize(dtype)) == size


def called_functions(function: KernelList, loops: Mapping[str, LoopCall]) -> list[str]:
    """The names of the functions that a list calls or repeats."""
    names: list[str] = []
    for step in function.steps:
        if isinstance(step, KernelCall):
            names += [loops[step.function].step] if step.function in loops else []
        else:
            found: list[Any] = []
            tvm.structural_walk(step.expression, [(kind, found.append) for kind in (tvm.GlobalVar, tvm.StringImm)])
            names += [str(getattr(each, "name_hint", getattr(each, "value", ""))) for each in found]
    return names


def frame_bases(frames: Mapping[str, int], calls: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Where the frame of each function starts. frames: their bytes.  calls: the functions that each calls."""
    bases: dict[str, int] = {}

    def visit(name: str, base: int, within: tuple[str, ...]) -> None:
        if bases.get(name, -1) >= base or name in within:
            return
        bases[name] = base
        for callee in calls[name]:
            visit(callee, base + aligned(frames[name]), (*within, name))

    visit("main", 0, ())
    return bases


def with_frames(planned: Planned, calls: Mapping[str, Sequence[str]]) -> Planned:
    """The plan of a program in C, in which functions that are not called at the same time share memory."""
    frames = {each.name: sum(each.storages) for each in (planned.main, *planned.others)}
    total = max(base + frames[name] for name, base in frame_bases(frames, calls).items())
    return replace(planned, memory=replace(planned.memory, intermediates=total))
