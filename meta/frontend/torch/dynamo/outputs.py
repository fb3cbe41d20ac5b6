"""What calls of compiled graphs return, as torch lays it out in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from meta.frontend.torch.dynamo.convert import Converted
from meta.frontend.torch.dynamo.memory import Args, allocator, fill, formula, viewer
from meta.frontend.torch.dynamo.results import Output
from meta.frontend.torch.dynamo.shapes import inverse
from meta.ir.analysis import result_sources
from meta.ir.builder import Module
from meta.ir.expr import MUTATES
from meta.vm.runner import unpacker

_as_torch: Callable[[Any], torch.Tensor] = getattr(torch._C, "_from_dlpack", torch.from_dlpack)


def as_torch(x: Any) -> torch.Tensor:
    """A raw tensor as one of torch, which shares its memory."""
    return x if isinstance(x, torch.Tensor) else _as_torch(x.__dlpack__())


def returned(getters: Sequence[Callable[[Args], Any]], values: Args) -> list[Any]:
    return [get(values) for get in getters]


def getter(output: Output, sources: Mapping[str, str]) -> Callable[[Args], Any]:
    """(arguments, then the results of the program) -> what the graph returns at one place."""
    position = output.position
    if position is None:
        return formula(output.number, sources)
    if output.view is not None:
        return viewer(position, *output.view, sources)
    return lambda values: values[position]


def receiver(
    converted: Converted, module: Module, device: str, sources: Mapping[str, str]
) -> Callable[[Args, Any], list[tuple[int, torch.Tensor]]]:
    """(arguments, what the machine returned) -> the results that the program allocates, as torch lays them out."""
    if not converted.returned:
        return lambda values, raw: []
    results = [converted.results[i] for i in converted.returned]
    unpack = unpacker(len(results) + converted.random)
    copied = shared_results(module, len(results))
    new = [
        allocator(r.layout, r.elements, device, sources) if i in copied or r.elements is not None else None
        for i, r in enumerate(results)
    ]
    plan = list(zip(converted.returned, results, new, strict=True))

    def receive(values: Args, raw: Any) -> list[tuple[int, torch.Tensor]]:
        received: list[tuple[int, torch.Tensor]] = []
        for (i, result, allocate), x in zip(plan, unpack(raw), strict=False):
            x = as_torch(x)
            x = torch.view_as_complex(x) if result.layout.dtype.is_complex else x
            x = x if result.order is None else x.permute(inverse(result.order))
            received.append((i, x if allocate is None else fill(allocate(values), x)))
        return received

    return receive


def shared_results(module: Module, results: int) -> Collection[int]:
    """The results whose memory a program shares with its parameters or with an earlier result, where torch's do not:
    they are copied, so that writes to one leave the other alone. The program's writes to parameters come last."""
    sources = result_sources(module.main)
    count = len(sources) - len(module.main.attrs.get(MUTATES, {}))
    memories = set(range(len(module.main.params))).union(*sources[count:])
    copied: set[int] = set()
    for i, source in enumerate(sources[:results]):
        if source & memories:
            copied.add(i)
        memories |= source
    return copied
