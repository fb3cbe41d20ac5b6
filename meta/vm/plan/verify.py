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
    """contents: what memory holds, by place: (first byte, byte after the last, tensor)."""

    def __init__(self, function: KernelList, expected: Expected) -> None:
        self.function = function
        self.expected = expected
        self.contents: dict[Any, list[tuple[int, int, Tensor]]] = {}
        self.sources: dict[Tensor, frozenset[Tensor]] = {}
        """Object -> the tensors that it may be."""
        self.started: dict[int, KernelCall] = {}
        self.written: set[Memory] = set()
        self.at = ""

    def run(self) -> None:
        for _, value in self.function.parameters:
            for operand in leaves(value):
                self.put(operand.tensor)
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
            if _place(target)[:2] != _place(tensor)[:2]:
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
            self.put(result)
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
        place, first, last = _place(tensor)
        found = (other for start, end, other in self.contents.get(place, ()) if start == first and end >= last)
        return next(found, None)

    def write(self, tensor: Tensor) -> None:
        memory = tensor.memory
        if any(_overlap(tensor, o.tensor) for call in self.started.values() for o in call.operands):
            self.fail(f"{tensor.name} is written while a collective uses its memory")
        if memory.kind == PARAMETER:
            if memory in self.written:
                self.fail(f"the parameter of {tensor.name} is written twice")
            self.written.add(memory)
        if memory.kind == PLANNED and memory.storage < 0:
            self.fail(f"{tensor.name} has no memory")
        self.put(tensor)

    def put(self, tensor: Tensor) -> None:
        """Memory has the value of the tensor from now on."""
        place, first, last = _place(tensor)
        kept = [e for e in self.contents.get(place, ()) if e[1] <= first or e[0] >= last]
        self.contents[place] = [*kept, (first, last, tensor)]

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
            if any(tensor.value is not value for *_, tensor in self.contents[memory]):
                self.fail(f"a parameter does not become {value.name}")
        if self.started:
            self.fail("a collective is not waited for")


def _place(tensor: Tensor) -> tuple[Any, int, int]:
    """Where a tensor lies: in a storage or in memory of its own, from the first byte to the one after the last."""
    memory = tensor.memory
    if memory.kind != PLANNED:
        return memory, 0, 1
    return memory.storage, memory.offset, memory.offset + max(tensor.bytes, 1)


def _overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have bytes in common."""
    (place, first, last), (other, start, end) = _place(a), _place(b)
    return place == other and first < end and start < last
