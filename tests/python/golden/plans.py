"""Plans of the virtual machine as text. The only file here that reads the form in which it keeps them.

Plans for CUDA need no GPU: they are made for the target of an H100 and with TVM's kernels only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import meta
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import target as targets
from meta.device import device
from meta.passes.standard import standard
from meta.vm.build import generate
from meta.vm.build.generate import plan_source
from meta.vm.lower.choose import prepare
from meta.vm.plan.pipeline import Planned

Executor = meta.vm.Executor[..., Any]
_H100 = {
    "kind": "cuda", "arch": "sm_90", "max_threads_per_block": 1024, "max_num_threads": 1024, "thread_warp_size": 32,
    "max_shared_memory_per_block": 49152, "registers_per_block": 65536,
}  # fmt: skip


def kernel_sequence(executor: Executor, args: Sequence[Any]) -> list[str]:
    """Compile a program. The operators of each kernel call in the order of the calls, such as "tvm.matmul + tvm.add";
    then the bodies of loops and recursive functions. Branches are indented."""
    plans: list[Planned] = []

    def keep(*args: Any, **options: Any) -> Planned:
        plans.append(plan_source(*args, **options))
        return plans[-1]

    with patch.object(generate, "plan_source", keep):  # planning again takes as long as the compilation
        loaded = executor.program(*args).loaded
    module = plans[-1].module if plans else executor.relax(*args, stage="planned")
    return _sequence(module, loaded.kernels)


def cuda_plan(executor: Executor, args: Sequence[Any]) -> tuple[dict[str, int], list[str]]:
    """Planned bytes, and the kernels as in `kernel_sequence`, of the same program on CUDA."""
    real = targets.target
    gpu = tvm.Target(_H100, host=real("cpu"))
    with (
        patch.object(targets, "target", lambda kind: gpu if kind == "cuda" else real(kind)),
        meta.with_dialect(["tvm"]),
    ):
        module = standard()(meta.passes.place("cuda")(executor.module(*args)))
        source = prepare(module, device("cuda"), executor.memory_budget)
        arena = source.static and not source.reads_values
        planned = plan_source(source, fuse=executor.fuse, arena=arena)
    size = planned.memory
    sizes = {"cuda_intermediates": size.intermediates, "cuda_workspace": size.workspace, "cuda_dynamic": size.dynamic}
    return sizes, _sequence(planned.module, planned.kernels)


def kernel_count(sequence: Sequence[str]) -> int:
    """The kernel calls of a sequence, without the lines that name branches and functions."""
    return sum(not re.fullmatch(r" *(if|else|call \w+|function \w+)", line) for line in sequence)


def _sequence(module: Any, kernels: Mapping[str, tuple[str, ...]]) -> list[str]:
    walker = _Walker(module, kernels)
    lines = walker.function("main")
    for name in sorted(walker.functions):
        if name != "main" and not name.startswith("branch") and (body := walker.function(name)):
            lines += [f"function {name}", *(f"  {line}" for line in body)]
    return lines


class _Walker:
    """Walks over the functions of a planned module. kernels: the operators of each kernel."""

    def __init__(self, module: Any, kernels: Mapping[str, tuple[str, ...]]) -> None:
        functions = module.functions.items()
        self.functions = {g.name_hint: f for g, f in functions if isinstance(f, tvm.RelaxFunction)}
        self.kernels = kernels

    def function(self, name: str) -> list[str]:
        return list(self._block(self.functions[name].body))

    def _block(self, body: Any) -> Iterator[str]:
        for block in body.blocks:
            for binding in block.bindings:
                yield from self._value(binding.value)

    def _value(self, value: Any) -> Iterator[str]:
        if isinstance(value, tvm.RelaxIf):
            for title, branch in (("if", value.true_branch), ("else", value.false_branch)):
                yield title
                yield from (f"  {line}" for line in self._block(branch))
        elif isinstance(value, tvm.RelaxCall) and isinstance(value.op, (tvm.GlobalVar, tvm.ExternFunc)):
            yield from self._call(str(getattr(value.op, "name_hint", "") or value.op.global_symbol))

    def _call(self, name: str) -> list[str]:
        if name in self.functions:
            return self.function(name) if name.startswith("branch") else [f"call {name}"]
        return [" + ".join(self.kernels.get(name, (name,)))]
