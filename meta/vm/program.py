"""A compiled program with everything that its calls and reports need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meta import tracing
from meta.eager.ndarray import NDArray, copy_of
from meta.eager.seeds import zeros_of
from meta.ir.builder import Module
from meta.ir.type import TensorType
from meta.records import record
from meta.tracing.open_sizes import SizeChecks
from meta.vm.build.executables import Loaded
from meta.vm.lower.choose import Source
from meta.vm.runner import Machine, Runner

if TYPE_CHECKING:
    from meta.vm.cuda_graph import GraphCall


@record(eq=False)
class Program:
    """One specialisation. record: what was traced.  optimized: after the passes.  source: what was lowered.
    run: a call.  tracked: for a program with `backward` inside, which inputs and arrays of the state required gradients
    while it was traced.  traced: what was traced, without results for the gradients that it leaves.  left: the indices
    of these among the results.  digest: the text that ranks compare for a program that communicates, "" for others.
    checks: of the sizes that it leaves open, None for none."""

    record: tracing.Record
    optimized: Module
    source: Source
    loaded: Loaded
    constants: tuple[NDArray, ...]
    machine: Machine | GraphCall
    run: Runner
    tracked: list[bool] | None = None
    traced: tracing.Record | None = None
    left: tuple[int | None, ...] = ()
    digest: str = ""
    checks: SizeChecks | None = None

    def is_current(self, inputs: Sequence[NDArray]) -> bool:
        """Whether a call with these inputs has gradients for the same arrays as the trace."""
        if self.tracked is None:
            return True
        arrays = [*inputs, *[x for _, x in self.record.state]]
        return [x._node is not None for x in arrays] == self.tracked

    def arguments(self, inputs: Sequence[NDArray]) -> list[Any]:
        """The raw arguments of the machine for runs that change nothing: copies of what a call overwrites."""
        arrays = [*inputs, *(x for _, x in self.record.state)]
        arrays += [zeros_of(p.type) for p in self.record.main.params[len(arrays) :] if isinstance(p.type, TensorType)]
        written = set(self.source.mutates.values())
        return [x._data for x in (*(copy_of(x) if i in written else x for i, x in enumerate(arrays)), *self.constants)]
