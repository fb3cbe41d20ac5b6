"""A compiled function as a flat list of kernel calls.

Every call says which tensors it reads and which it makes. A tensor is made once and never changes: a new value of a
parameter is another tensor, in the memory of the parameter. Passes over lists choose the order of the calls and the
memory of the tensors; `verify` then follows the bytes through a list and compares it with the calls as they were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from math import prod
from typing import Any, Final, TypeAlias, cast

from meta.backend.tvm import adapter as tvm
from meta.dtype import itemsize
from meta.records import mutable, record

Shape: TypeAlias = tuple[Any, ...]
"""Sizes of axes: integers, or integer expressions of TVM where they are symbolic."""

PLANNED: Final = "planned"
"""Memory that tensors share whose lives do not overlap."""
OWN: Final = "own"
"""Memory of one tensor, allocated by each call: a result of the function, or a tensor of symbolic size."""
PARAMETER: Final = "parameter"
"""The memory of an argument of the function."""
OBJECT: Final = "object"
"""Memory of a tensor that a function of the program or in Python returns, which may be the memory of its arguments."""


@mutable(eq=False)
class Memory:
    """Memory of one or more tensors. kind: PLANNED, OWN, PARAMETER or OBJECT. storage, offset: the place of planned
    memory, the offset in bytes; -1 as long as there is none."""

    kind: str = PLANNED
    storage: int = -1
    offset: int = 0


@mutable(eq=False)
class Tensor:
    """A value of a function. shape: None if only running it shows the sizes. copies: the tensor that this one has the
    value of, for a copy and for a second run of a kernel."""

    name: str
    shape: Shape | None
    dtype: str
    memory: Memory = field(default_factory=Memory)
    copies: Tensor | None = None

    @property
    def bytes(self) -> int:
        """Its bytes; 0 if its size is symbolic."""
        return prod(self.shape or ()) * itemsize(self.dtype) if self.is_static else 0

    @property
    def is_static(self) -> bool:
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def value(self) -> Tensor:
        """The first tensor with this value."""
        tensor = self
        while tensor.copies is not None:
            tensor = tensor.copies
        return tensor

    def again(self) -> Tensor:
        """Another tensor for the same value, with memory to be planned."""
        return Tensor(f"{self.name}_again", self.shape, self.dtype, Memory(), self)


def same_shape(a: Shape | None, b: Shape | None) -> bool:
    """Whether two shapes are known to be equal."""

    def equal(x: Any, y: Any) -> bool:
        return x is y or (x == y if isinstance(x, int) else bool(tvm.structural_equal(x, y)))

    return a is not None and b is not None and len(a) == len(b) and all(map(equal, a, b))


@record(eq=False)
class Operand:
    """A tensor as an argument. view: the shape it is passed in, None for its own."""

    tensor: Tensor
    view: Shape | None = None

    @property
    def shape(self) -> Shape | None:
        return self.tensor.shape if self.view is None else self.view

    @property
    def bytes(self) -> int:
        return self.tensor.bytes

    def of(self, tensor: Tensor) -> Operand:
        """The same view of another tensor."""
        return self if tensor is self.tensor else Operand(tensor, self.view)


Value: TypeAlias = "Operand | tuple[Any, ...] | Any"
"""An operand, a tuple of values, or a number or string in TVM's form."""


@mutable(eq=False)
class KernelCall:
    """A call of a kernel.

    function: the name of a PrimFunc of the program, or of a packed function.
    arguments: operands and numbers, in the order of the function's parameters.
    writes: position of an argument -> the tensor made there. If the argument is another tensor, the kernel writes over
        it: it reads each element before it writes that element.
    members: the calls that a bundle makes at the same time.
    source: the call as it was read, for copies of it.
    starts: the name of the collective that the call starts."""

    function: str
    packed: bool
    arguments: tuple[Any, ...]
    writes: dict[int, Tensor]
    members: tuple[KernelCall, ...] = ()
    source: KernelCall | None = None
    starts: str = ""

    @property
    def reads(self) -> list[Operand]:
        """The operands that the call reads."""
        return [
            a
            for i, a in enumerate(self.arguments)
            if isinstance(a, Operand) and (i not in self.writes or self.writes[i] is not a.tensor)
        ]

    @property
    def results(self) -> list[Tensor]:
        return list(self.writes.values())

    @property
    def operands(self) -> list[Operand]:
        """All tensors among the arguments."""
        return [a for a in self.arguments if isinstance(a, Operand)]

    @property
    def moved(self) -> int:
        """The bytes that the call reads and writes, if their number is known."""
        return sum(a.bytes for a in self.operands)

    def renamed(self, names: dict[Tensor, Tensor]) -> KernelCall:
        """The call with other tensors in place of some."""
        arguments = tuple(a.of(names.get(a.tensor, a.tensor)) if isinstance(a, Operand) else a for a in self.arguments)
        writes = {i: names.get(t, t) for i, t in self.writes.items()}
        return replace(self, arguments=arguments, writes=writes, source=self.source or self)


@mutable(eq=False)
class ObjectCall:
    """A conditional, a call of a function of the program or in Python, or a check of sizes. Its results are objects
    that the callee provides. They may be its operands.

    expression: the value in Relax.  operands: its free variables, and the values of those.
    result: the value that it returns.  kind: its type in Relax.  checks: whether it is a check of sizes.
    workspaces: memory that only the call uses, in C."""

    expression: Any
    operands: dict[Any, Value]
    result: Value
    kind: Any
    checks: bool = False
    workspaces: tuple[Tensor, ...] = ()

    @property
    def reads(self) -> list[Operand]:
        return list(leaves(tuple(self.operands.values())))

    @property
    def results(self) -> list[Tensor]:
        return [*(operand.tensor for operand in leaves(self.result)), *self.workspaces]


Step: TypeAlias = "KernelCall | ObjectCall"


@mutable(eq=False)
class KernelList:
    """A function. parameters: in Relax, and their values.  updates: new values, and the parameters that they replace.
    function: the function in Relax that the list was read from.
    storages: the bytes of the storages of planned memory."""

    name: str
    parameters: list[tuple[Any, Value]]
    steps: list[Step]
    result: Value
    function: Any
    updates: list[tuple[Operand, Tensor]] = field(default_factory=list[tuple[Operand, Tensor]])
    storages: list[int] = field(default_factory=list[int])

    @property
    def calls(self) -> list[KernelCall]:
        return [s for s in self.steps if isinstance(s, KernelCall)]

    @property
    def is_straight(self) -> bool:
        """Whether it only calls kernels, with static sizes."""
        return all(isinstance(s, KernelCall) for s in self.steps) and all(t.is_static for t in self.tensors())

    def tensors(self) -> Iterator[Tensor]:
        """The tensors that the list makes."""
        for step in self.steps:
            yield from step.results

    def copy(self) -> KernelList:
        """The list with new tensors, whose memory is still to be planned."""
        names: dict[Tensor, Tensor] = {}
        for t in self.tensors():
            memory = t.memory if t.memory.kind == PARAMETER else Memory(t.memory.kind)
            names[t] = Tensor(t.name, t.shape, t.dtype, memory, t)
        steps: list[Step] = [call.renamed(names) for call in self.calls]
        updates = [(v.of(names.get(v.tensor, v.tensor)), p) for v, p in self.updates]
        return KernelList(self.name, self.parameters, steps, rename(self.result, names), self.function, updates)

    def remove_dead_steps(self) -> None:
        """Drop the steps whose results nothing reads."""
        needed = {o.tensor for o in (*leaves(self.result), *(v for v, _ in self.updates))}
        live: list[Step] = []
        for step in reversed(self.steps):
            # A check of sizes defines the sizes of tensors after it.
            if (isinstance(step, ObjectCall) and step.checks) or any(t in needed for t in step.results):
                needed.update(o.tensor for o in step.reads)
                live.append(step)
        self.steps = live[::-1]


def leaves(value: Value) -> Iterator[Operand]:
    """The operands in a value."""
    if isinstance(value, Operand):
        yield value
    elif isinstance(value, tuple):
        for field in cast("tuple[Value, ...]", value):
            yield from leaves(field)


def map_leaves(value: Value, change: Callable[[Operand], Value]) -> Value:
    """The value with `change(operand)` in place of each operand."""
    if isinstance(value, Operand):
        return change(value)
    if isinstance(value, tuple):
        return tuple([map_leaves(field, change) for field in cast("tuple[Value, ...]", value)])
    return value


def rename(value: Value, names: dict[Tensor, Tensor]) -> Value:
    def renamed(operand: Operand) -> Operand:
        return operand.of(names.get(operand.tensor, operand.tensor))

    return map_leaves(value, renamed)


# --- what a plan allocates -------------------------------------------------------------------------------------------


@record
class PlannedBytes:
    """The allocations of a program's memory plan, in bytes.

    intermediates: storage shared by what is computed on the way, in called functions too.
    outputs: storage of the results.  workspace: the most that one kernel allocates while it runs.
    dynamic: tensors whose size is known only when running; they are not counted."""

    intermediates: int
    outputs: int
    workspace: int
    dynamic: int

    @property
    def total(self) -> int:
        return self.intermediates + self.outputs + self.workspace


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

    @staticmethod
    def from_dict(facts: dict[str, Any]) -> Destinations:
        tensors = (Destination(t["storage"], t["offset"], tuple(t["shape"]), t["dtype"]) for t in facts["tensors"])
        return Destinations(tuple(facts["storages"]), tuple(tensors), facts["kernels"])
