"""Whether a program runs as a CUDA graph, and the call that does so."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from meta import tracing
from meta.ir.type import TensorType
from meta.vm.lower.choose import Source, output_types, private_memory
from meta.vm.plan.allocations import Destinations
from meta.vm.runner import Machine

if TYPE_CHECKING:
    from meta.vm.cuda_graph.call import GraphCall

_BYTES_PER_KERNEL = 4_000_000
"""The bytes that are copied at 2 TB/s in the 2 us that the start of a kernel takes."""


def repays(source: Source, destinations: Destinations, stable: Collection[int] = ()) -> bool:
    """Whether starting all kernels at once saves more than copying arguments and results costs.

    stable: the inputs that are read where they are."""
    in_place = {*source.mutates.values(), *stable}
    first = len(source.main.params) - len(source.constants)
    inputs = [p.type for i, p in enumerate(source.main.params[:first]) if i not in in_place]
    copied = sum(int(t.nbytes) for t in (*inputs, *output_types(source)) if isinstance(t, TensorType) and t.is_static)
    return copied < destinations.kernels * _BYTES_PER_KERNEL


def graph_call(
    machine: Machine, record: tracing.Record, source: Source, destinations: Destinations, stable: Collection[int] = ()
) -> GraphCall:
    """The machine behind a CUDA graph, which inputs that stay unchanged and the random keys are copied into.

    stable: the inputs that mostly have the same memory, which the graph reads there."""
    from meta.vm.cuda_graph.call import GraphCall

    types = [p.type for p in source.main.params if isinstance(p.type, TensorType)]
    overwritten = set(source.mutates.values())
    first = len(record.inputs)
    keys = first + len(record.state)
    moving = [i for i in range(first) if i not in overwritten and i not in stable]
    moving += range(keys, keys + len(record.random))
    scopes = private_memory(source.choices)
    return GraphCall(
        machine.main, types, moving, destinations, source.device, scopes, sorted(stable), overwritten & {*stable}
    )
