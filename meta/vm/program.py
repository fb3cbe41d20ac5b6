"""A compiled program with everything that its calls and reports need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meta import tracing
from meta.eager.ndarray import NDArray
from meta.ir.module import Module
from meta.vm.lower.source import Source
from meta.vm.relax.executables import Loaded
from meta.vm.runner import Machine, Runner

if TYPE_CHECKING:
    from meta.vm.cuda_graph.call import GraphCall


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One specialisation. record: what was traced.  optimized: after the passes.  source: what was lowered."""

    record: tracing.Record
    optimized: Module
    source: Source
    loaded: Loaded
    constants: tuple[NDArray, ...]
    machine: Machine | GraphCall
    run: Runner
