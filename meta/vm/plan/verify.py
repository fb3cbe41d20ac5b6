"""The verifier of plans: follows the bytes of a planned list, call by call, and compares with the calls as read.

A plan is right if every call gets the values that it got in the program:

- a tensor that is read lies in memory that nothing has written since (in branches and loops, for objects that may be
  operands, as well);
- the results of one call have disjoint bytes, and only a kernel that declares it writes over an operand;
- a call comes after the calls that make its operands, with the operands that the program gives it;
- the memory of a parameter is written once, with its new value, and not returned;
- between the start of a collective and the wait for it, nothing reads its result or writes its operands.

It takes less than a hundredth of a compilation, so every plan is verified.
"""

from __future__ import annotations

from typing import Any, NoReturn

from meta.errors import IRError
from meta.records import record
from meta.vm.lower.choose import WAIT
from meta.vm.plan.kernels import (
    PARAMETER,
    PLANNED,
    KernelCall,
    KernelList,
    Memory,
    ObjectCall,
    Step,
    Tensor,
    leaves,
    same_shape,
)


@record(eq=False)
class Expected:
    """What a list computes before it is planned. calls: by identity.  results, updates: the values."""

    calls: frozenset[Any]
    results: tuple[Tensor, ...]
    updates: tuple[tuple[Memory, Tensor], ...]


def expected_values(function: KernelList) -> Expected:
    """What a list as it was read computes."""
    results = tuple(o.tensor.value for o in leaves(function.result))
    updates = tuple((p.memory, v.tensor.value) for v, p in function.updates)
    return Expected(frozenset(function.steps), results, updates)


def verify(function: KernelList, expected: Expected) -> None:
    """Raise IRError, with the call and the tensor, for a plan that computes something else."""
    _Verifier(function, expected).run()


class _Verifier:
    """contents: what memory holds.  storages: the same for planned memory: (first byte, last byte, tensor)."""

    def __init__(self, function: KernelList, expected: Expected) -> None:
        self.function = function
        self.expected = expected
        self.contents: dict[Memory, Tensor] = {}
        self.storages: dict[int, list[tuple[int, int, Tensor]]] = {}
        self.sources: dict[Tensor, frozenset[Tensor]] = {}
        """Object -> the tensors that it may be."""
        self.started: dict[int, KernelCall] = {}
        self.written: set[Memory] = set()
        self.at = ""

    def run(self) -> None:
        for _, value in self.function.parameters:
            for operand in leaves(value):
                self.contents[operand.tensor.memory] = operand.tensor
        for number, step in enumerate(self.function.steps):
            self.at = f"step {number}" + (f" ({step.function})" if isinstance(step, KernelCall) else "")
            if isinstance(step, ObjectCall):
                self.object_call(step)
            else:
                self.kernel_call(step)
        self.at = "the end"
        self.finish()

    def fail(self, problem: str) -> NoReturn:
        raise IRError(
            "vm",
            f"the memory plan of '{self.function.name}' is wrong at {self.at}: {problem}",
            remedy="this is a bug of meta, please report it; fuse=False may avoid it",
        )

    def kernel_call(self, call: KernelCall) -> None:
        if call.function == WAIT and call.packed:
            started = self.started.pop(call.arguments[0], None)
            if started is None:
                self.fail("it waits for a collective that has not started")
            return
        for each in call.members or (call,):
            self.same_call(each)
        self.read_all(call)
        self.disjoint(call)
        for tensor in call.results:
            self.write(tensor)
        if call.starts:
            self.started[call.arguments[0]] = call

    def same_call(self, call: KernelCall) -> None:
        """A call reads and makes the values that it does in the program; or it is a copy."""
        source = call.source or call
        reads, results = call.reads, call.results
        if source not in self.expected.calls:
            if len(reads) != 1 or len(results) != 1 or results[0].value is not reads[0].tensor.value:
                self.fail("the program has no such call")
            return
        for operand, original in zip(reads, source.reads, strict=True):
            if operand.tensor.value is not original.tensor.value or not same_shape(operand.shape, original.shape):
                self.fail(f"it reads {operand.tensor.name} in place of {original.tensor.name}")
        for tensor, made in zip(results, source.results, strict=False):  # workspaces come last
            if tensor.value is not made.value:
                self.fail(f"it makes {tensor.name} in place of {made.name}")

    def disjoint(self, call: KernelCall) -> None:
        """Results lie apart from each other, and from operands that they are not written over."""
        results = call.results
        for i, tensor in enumerate(results):
            if any(_overlap(tensor, other) for other in results[:i]):
                self.fail(f"{tensor.name} lies in the memory of another result")
        for position, tensor in call.writes.items():
            target = call.arguments[position].tensor
            if _place(target) != _place(tensor):
                self.fail(f"{tensor.name} is written over {target.name}, and lies elsewhere")
            for i, argument in enumerate(call.arguments):
                other = getattr(argument, "tensor", tensor)
                if i != position and other not in results and _overlap(tensor, other):
                    self.fail(f"{tensor.name} lies in the memory of {other.name}, which the call reads")
        for member in call.members:
            for other in call.members:
                if other is not member:
                    used = {o.tensor.memory for o in other.operands}
                    if any(t.memory in used for t in member.results):
                        self.fail("a member of the bundle writes what another one uses")

    def object_call(self, call: ObjectCall) -> None:
        tensors = self.read_all(call)
        for result in call.results:
            self.contents[result.memory] = result
            self.sources[result] = tensors

    def read_all(self, step: Step) -> frozenset[Tensor]:
        """Read the operands of a step, and what they may be if they are objects; returns all of these."""
        tensors = frozenset(o.tensor for o in step.reads)
        tensors = tensors.union(*(self.sources[t] for t in tensors if t in self.sources))
        for tensor in tensors:
            self.read(tensor)
        return tensors

    def read(self, tensor: Tensor) -> None:
        """Memory has the value of the tensor."""
        if any(_overlap(tensor, result) for call in self.started.values() for result in call.results):
            self.fail(f"{tensor.name} is read while a collective writes it")
        found = self.content(tensor)
        if found is None or found.value is not tensor.value:
            has = "nothing yet" if found is None else f"{found.name}"
            self.fail(f"{tensor.name} is read where its memory has {has}")

    def content(self, tensor: Tensor) -> Tensor | None:
        memory = tensor.memory
        if memory.kind != PLANNED:
            return self.contents.get(memory)
        first, last = _bytes_of(tensor)
        for start, end, other in self.storages.get(memory.storage, ()):
            if start == first and end >= last:
                return other
        return None

    def write(self, tensor: Tensor) -> None:
        memory = tensor.memory
        if any(_overlap(tensor, o.tensor) for call in self.started.values() for o in call.operands):
            self.fail(f"{tensor.name} is written while a collective uses its memory")
        if memory.kind == PARAMETER:
            if memory in self.written:
                self.fail(f"the parameter of {tensor.name} is written twice")
            self.written.add(memory)
        if memory.kind != PLANNED:
            self.contents[memory] = tensor
            return
        if memory.storage < 0:
            self.fail(f"{tensor.name} has no memory")
        first, last = _bytes_of(tensor)
        kept = [e for e in self.storages.get(memory.storage, ()) if e[1] <= first or e[0] >= last]
        self.storages[memory.storage] = [*kept, (first, last, tensor)]

    def finish(self) -> None:
        results = [operand.tensor for operand in leaves(self.function.result)]
        for tensor, expected in zip(results, self.expected.results, strict=True):
            for each in (tensor, *self.sources.get(tensor, ())):
                self.read(each)
            if tensor.value is not expected:
                self.fail(f"{tensor.name} is returned in place of {expected.name}")
            if tensor.memory.kind == PLANNED or (tensor.memory.kind == PARAMETER and tensor.memory in self.written):
                self.fail(f"{tensor.name} is returned in memory that is written later")
        for memory, value in self.expected.updates:
            if self.contents[memory].value is not value:
                self.fail(f"a parameter does not become {value.name}")
        if self.started:
            self.fail("a collective is not waited for")


def _place(tensor: Tensor) -> tuple[Any, int]:
    """What tells the memory of tensors apart."""
    memory = tensor.memory
    return (memory.storage, memory.offset) if memory.kind == PLANNED else (memory, 0)


def _bytes_of(tensor: Tensor) -> tuple[int, int]:
    return tensor.memory.offset, tensor.memory.offset + max(tensor.bytes, 1)


def _overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have bytes in common."""
    if a.memory is b.memory:
        return True
    if a.memory.kind != PLANNED or b.memory.kind != PLANNED or a.memory.storage != b.memory.storage:
        return False
    first, second = _bytes_of(a), _bytes_of(b)
    return first[0] < second[1] and second[0] < first[1]
