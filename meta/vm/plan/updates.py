"""Updates in place: the new value of a parameter is written to the memory of the parameter.

Such a kernel runs as soon as its operands exist and the old value has had its last reader, so that gradients are freed
early. A kernel that reads the old value itself writes over it where that is safe (`overlap`). Otherwise the new value
is computed in other memory and copied at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from meta.vm.plan.functions import KernelTable
from meta.vm.plan.graph import Aliases
from meta.vm.plan.kernels import (
    OBJECT,
    OWN,
    PLANNED,
    KernelCall,
    KernelList,
    Memory,
    ObjectCall,
    Operand,
    Step,
    Tensor,
    leaves,
    map_leaves,
    same_shape,
)


def update_in_place(function: KernelList, functions: KernelTable, constants: Collection[Memory]) -> None:
    """Give the new values of parameters the memory of the parameters.

    constants: the memory of parameters that hold constants of the program, which must not be returned to callers."""
    function.updates = [(v, p) for v, p in function.updates if v.tensor is not p]
    _save_old_values(function, functions, {p.memory for _, p in function.updates} | set(constants))
    _run_early(function)
    write_directly = _direct_writer(function, functions)
    uses = Counter(o.tensor for o in (*leaves(function.result), *(v for v, _ in function.updates)))
    for i, (value, param) in enumerate(function.updates):
        unshared = value.view is None and uses[value.tensor] == 1
        if not (unshared and write_directly(value.tensor, param)):
            target = Tensor(f"{param.name}_new", param.shape, param.dtype, param.memory, value.tensor)
            function.steps.append(functions.copy(value, target))
            function.updates[i] = (Operand(target), param)


def _save_old_values(function: KernelList, functions: KernelTable, guarded: Collection[Memory]) -> None:
    """Results, and new values, that are parameters about to be overwritten or constants, or may be, are copied."""
    aliases = Aliases(function.steps)
    copies: dict[tuple[Tensor, object], Tensor] = {}
    saved: list[tuple[Tensor, KernelCall]] = []

    def save(operand: Operand, allowed: Memory | None = None) -> Operand:
        tensor = operand.tensor
        if not (aliases.of(tensor) - {allowed}) & set(guarded):
            return operand
        key = tensor, operand.view
        if key not in copies:
            copies[key] = Tensor(f"{tensor.name}_copy", operand.shape, tensor.dtype, copies=tensor)
            saved.append((tensor, functions.copy(operand, copies[key])))
        return Operand(copies[key])

    function.result = map_leaves(function.result, save)
    # An object that may be the parameter which it replaces is copied there once everything else was read.
    allowed = [p.memory if v.tensor.memory.kind == OBJECT else None for v, p in function.updates]
    function.updates = [(save(v, memory), p) for (v, p), memory in zip(function.updates, allowed, strict=True)]
    for tensor, call in reversed(saved):
        made = [i for i, step in enumerate(function.steps) if tensor in step.results]
        function.steps.insert(made[0] + 1 if made else 0, call)
    kept = {o.tensor for o in leaves(function.result)}
    for tensor in copies.values():
        tensor.memory.kind = PLANNED if tensor.is_static and tensor not in kept else OWN


def _run_early(function: KernelList) -> None:
    """Move the calls that compute only new values of parameters to the first place where their operands exist and no
    later step reads those parameters. Calls whose values are read before that place stay where they are."""
    steps = function.steps
    targets = {v.tensor: p.memory for v, p in function.updates if v.view is None}
    position: dict[Step, tuple[int, int]] = {s: (i, 0) for i, s in enumerate(steps)}
    makers: dict[Tensor, Step] = {t: s for s in steps for t in s.results}
    aliases = Aliases(steps)
    readers: dict[Memory, list[Step]] = {m: [steps[i] for i in found] for m, found in aliases.readers(steps).items()}
    movable = [s for s in steps if isinstance(s, KernelCall) and all(t in targets for t in s.results)]
    moved = set[Step](movable)
    for order, call in enumerate(movable, 1):
        before: list[Step] = [makers[o.tensor] for o in call.reads if o.tensor in makers]
        before += [s for t in call.results for s in readers.get(targets[t], ()) if s not in moved]
        last = max((position[s][0] for s in before), default=-1)
        if not any(position[s][0] <= last for t in call.results for s in readers.get(t.memory, ())):
            position[call] = (last, order)
    function.steps = sorted(steps, key=position.__getitem__)


def _direct_writer(function: KernelList, functions: KernelTable) -> Callable[[Tensor, Tensor], bool]:
    """(value, parameter) -> whether the call that computes the value now writes it to the parameter; False, and no
    change, where that is unsafe. A list has one update of a parameter, so that the memory of the other parameters stays
    as it is."""
    steps, aliases = function.steps, Aliases(function.steps)
    made = {t: i for i, step in enumerate(steps) for t in step.results}
    last_read = {memory: readers[-1] for memory, readers in aliases.readers(steps).items()}
    in_objects = {o.tensor for step in steps if isinstance(step, ObjectCall) for o in step.reads}

    def write(value: Tensor, param: Tensor) -> bool:
        index = made.get(value, -1)
        call = steps[index] if index >= 0 else None
        if not isinstance(call, KernelCall) or not same_shape(value.shape, param.shape):
            return False
        # An object that is made of the value may be the parameter, and may be returned.
        if last_read.get(param.memory, -1) > index or value in in_objects:
            return False
        operands = [o for o in call.reads if param.memory in aliases.of(o.tensor)]
        if operands:
            changed = functions.write_over(call, value, operands[0]) if len(operands) == 1 else None
            if changed is None or operands[0].tensor is not param:
                return False
            steps[index] = changed
        value.memory = param.memory
        return True

    return write
