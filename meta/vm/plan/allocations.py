"""How many bytes a planned program allocates, known before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from meta.backend.tvm.schedule.workspace import allocated_bytes
from meta.records import record

if TYPE_CHECKING:
    from meta.vm.plan.functions import KernelTable
    from meta.vm.plan.kernels import KernelList


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

    def with_other(self, other: PlannedBytes) -> PlannedBytes:
        """The allocations of two functions of a program."""
        return PlannedBytes(
            self.intermediates + other.intermediates,
            self.outputs + other.outputs,
            max(self.workspace, other.workspace),
            self.dynamic + other.dynamic,
        )

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def planned_bytes(function: KernelList, storages: Sequence[int], functions: KernelTable) -> PlannedBytes:
    """The allocations of a planned list. storages: the bytes of its storages."""
    owned = {t.memory: t for step in function.calls for t in step.results if t.memory.kind == "own"}.values()
    called = dict.fromkeys(call.function for call in function.calls if not call.packed)
    return PlannedBytes(
        sum(storages),
        sum(t.bytes for t in owned),
        max((allocated_bytes(functions.functions[name]) for name in called), default=0),
        sum(not t.is_static for t in owned),
    )
