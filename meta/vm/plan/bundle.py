"""Small independent kernels as one: the updates of many parameters, or the casts of many weights.

A training step has a few such kernels for each parameter. Each is too small to fill a GPU, and starting it takes longer
than its work. A bundle is one kernel whose blocks of threads are divided among its members:

    if block < 40: update x1        (by blocks 0 to 39)
    else:          update x2        (by blocks 40 to 55, as blocks 0 to 15)

Kernels that write only parameters are put off until the last of them, and kernels that read only parameters run with
the first of them; a step that needs their results, or changes their operands, ends a bundle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from meta._generated import limits
from meta.backend.tvm.schedule.gpu.bundle import Launch, bundled, launch_of
from meta.vm.plan.functions import KernelTable
from meta.vm.plan.graph import Aliases
from meta.vm.plan.kernels import PARAMETER, KernelCall, KernelList, Memory, ObjectCall, Operand, Step, Tensor

_BUNDLE_PARAMS: Final = 240
"""Parameters of a bundle, at most: CUDA passes 4 KiB of them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """A call that may be bundled. args: the memory of its arguments."""

    call: KernelCall
    launch: Launch
    args: tuple[Memory, ...]
    reads: frozenset[Memory]
    writes: frozenset[Memory]


@dataclass(slots=True)
class _Bundle:
    """members: in order.  bytes: of all their arguments.  params, reads, writes: of all members.
    threads: of a block."""

    members: list[_Member] = field(default_factory=list[_Member])
    bytes: int = 0
    params: set[Memory] = field(default_factory=set[Memory])
    reads: set[Memory] = field(default_factory=set[Memory])
    writes: set[Memory] = field(default_factory=set[Memory])
    threads: int = 0

    def has_room(self, member: _Member) -> bool:
        return (
            self.bytes + member.launch.bytes <= limits.BUNDLE_BYTES
            and len(self.params.union(member.args)) <= _BUNDLE_PARAMS
            and (not self.members or member.launch.block_size == self.threads)
        )

    def add(self, member: _Member) -> None:
        self.members.append(member)
        self.bytes += member.launch.bytes
        self.params.update(member.args)
        self.reads |= member.reads
        self.writes |= member.writes
        self.threads = member.launch.block_size

    def conflicts(self, reads: Iterable[Memory], writes: Iterable[Memory]) -> bool:
        """Whether a call with these operands and results must run after the members."""
        return not (self.writes.isdisjoint(reads) and self.writes.isdisjoint(writes) and self.reads.isdisjoint(writes))


def bundle_kernels(function: KernelList, functions: KernelTable) -> None:
    """Bundle small kernels of a list."""
    _Bundler(function, functions).run()


class _Bundler:
    def __init__(self, function: KernelList, functions: KernelTable) -> None:
        self.function = function
        self.functions = functions
        self.aliases = Aliases(function.steps)
        self.members = {call: self.member(call) for call in function.calls}

    def run(self) -> None:
        for find, late in ((self.updates, True), (self.preparations, False)):
            for bundle in find():  # preparations are found among the moved updates, whose results they may read
                if len(bundle.members) > 1:
                    self.replace(bundle, late)

    # --- grouping ----------------------------------------------------------------------------------------------------

    def updates(self) -> list[_Bundle]:
        """Kernels that write only parameters. They are put off until the last of them, or until a call needs one."""
        bundles: list[_Bundle] = []
        current: _Bundle | None = None
        for step in self.function.steps:
            member = self.members.get(step)  # type: ignore[arg-type]
            if member is not None and all(m.kind == PARAMETER for m in member.writes):
                if current is None or not current.has_room(member) or current.conflicts(member.reads, member.writes):
                    current = _Bundle()
                    bundles.append(current)
                current.add(member)
            elif current is not None and current.conflicts(*self.touched(step)):
                current = None
        return bundles

    def preparations(self) -> list[_Bundle]:
        """Kernels that read only parameters and write new tensors. They run with the first of them."""
        bundles: list[_Bundle] = []
        current = _Bundle()
        changed: set[Memory] = set()  # what other calls wrote since the bundle's first member
        for step in self.function.steps:
            member = self.members.get(step)  # type: ignore[arg-type]
            if member is None or not (
                all(m.kind == PARAMETER for m in member.reads) and all(m.kind != PARAMETER for m in member.writes)
            ):
                changed |= self.touched(step)[1]
                continue
            if not bundles or not current.has_room(member) or member.reads & changed:
                current = _Bundle()
                bundles.append(current)
                changed = set()
            current.add(member)
        return bundles

    def member(self, call: KernelCall) -> _Member | None:
        """The call as a member of a bundle; None if it is another kind of call, or too large."""
        launch = None if call.packed else self.launch(call.function)
        if launch is None or launch.bytes > limits.BUNDLE_MEMBER_BYTES:
            return None
        operands = call.operands
        if len(operands) != len(call.arguments) or any(o.view is not None for o in operands):
            return None
        reads = frozenset(o.tensor.memory for o in call.reads)
        writes = frozenset(t.memory for t in call.results)
        return _Member(call, launch, tuple(o.tensor.memory for o in operands), reads, writes)

    def touched(self, step: Step) -> tuple[set[Memory], set[Memory]]:
        """The memory that a step may read, and what it may write."""
        reads = {m for o in step.reads for m in self.aliases.of(o.tensor)}
        return reads, reads if isinstance(step, ObjectCall) else {t.memory for t in step.results}

    def launch(self, name: str) -> Launch | None:
        if name not in self.functions.launches:
            self.functions.launches[name] = launch_of(self.functions.functions[name])
        return self.functions.launches[name]

    # --- rewriting ---------------------------------------------------------------------------------------------------

    def replace(self, bundle: _Bundle, late: bool) -> None:
        """Put one call in the place of the members' calls: at the last of them, or at the first."""
        operands: dict[Memory, Operand] = {}
        written: dict[Memory, Tensor] = {}
        for member in bundle.members:
            written |= {t.memory: t for t in member.call.results}
            for operand in member.call.operands:
                operands.setdefault(operand.tensor.memory, operand)
        memory = list(operands)
        writes = {memory.index(m): t for m, t in written.items()}
        calls = tuple(m.call for m in bundle.members)
        new = KernelCall(self.add(bundle, memory), False, tuple(operands.values()), writes, calls)
        place = calls[-1 if late else 0]
        dropped = set(calls) - {place}
        steps: list[Step] = [new if s is place else s for s in self.function.steps if s not in dropped]
        self.function.steps = steps

    def add(self, bundle: _Bundle, memory: Sequence[Memory]) -> str:
        """The name of the kernel of a bundle."""
        numbers = {m: i for i, m in enumerate(memory)}
        key = tuple((m.call.function, *(numbers[a] for a in m.args)) for m in bundle.members)
        if key not in self.functions.bundles:
            ops = tuple(op for m in bundle.members for op in self.functions.kernels.get(m.call.function, ()))
            name = "bundle_" + "_".join(dict.fromkeys(ops)).replace(".", "_").replace(":", "_")[:60]
            parts = [(m.launch, tuple(numbers[a] for a in m.args)) for m in bundle.members]
            self.functions.bundles[key] = self.functions.add(name, bundled(parts, len(memory)), ops)
        return self.functions.bundles[key]
