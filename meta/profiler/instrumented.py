"""Executors whose machines report every kernel call, with the user's lines and the bytes that live: for profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from meta import tracing
from meta.device import Device
from meta.eager.ndarray import asarray
from meta.ir.builder import Module
from meta.ir.type import TensorType
from meta.modes import modes
from meta.vm.arguments import check_devices
from meta.vm.build.executables import Loaded
from meta.vm.build.generate import build_module
from meta.vm.executor import Executor
from meta.vm.located import KernelInfo, called_function, locate
from meta.vm.lower.choose import Source, output_types, prepare, register_kernels
from meta.vm.plan.graph import live_bytes
from meta.vm.plan.kernels import OWN, PLANNED, KernelList
from meta.vm.program import Program
from meta.vm.runner import Machine, program_runner


@dataclass(slots=True)
class KernelLayout:
    """kernels: by name.  living: bytes of temporaries and results during each kernel call of "main", in order.
    base: bytes of the parameters, state and constants.  Tensors of symbolic size are not counted."""

    kernels: Mapping[str, KernelInfo]
    living: list[int]
    base: int = 0
    device: Device = field(kw_only=True)


class InstrumentedExecutor(Executor[..., Any]):
    """An executor of the same program, whose kernel calls are reported to `modes.profiler`.

    It interprets the calls of the program instead of compiling them, and records no CUDA graphs."""

    def __init__(self, original: Executor[..., Any]) -> None:
        self.__dict__.update(original.__dict__)
        self.graphs = False
        self._runs = {}
        self._programs, self._variants = {}, {}
        self._containers = []
        self._signature = None

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self._run(args, kwargs)

    def compiled(self) -> int:
        """The number of programs compiled so far."""
        return len(self._programs)

    def _build(self, record: tracing.Record, module: Module) -> Program:
        check_devices(record, self.device)
        source = prepare(module, self.device)
        register_kernels(source)
        located = locate(source, fuse=self.fuse)
        planned, kernels = located.planned, located.kernels
        constants = tuple(asarray(c.value, device=self.device) for c in source.constants)
        base = sum(x.nbytes for _, x in record.state) + sum(x.nbytes for x in constants)
        layout = KernelLayout(kernels, _living(planned.main, kernels), base, device=self.device)
        executable = build_module(source, planned, mode="bytecode")
        machine = _ReportingMachine(executable, source, layout)
        loaded = Loaded(executable, {n: k.operators for n, k in kernels.items()}, planned.memory, "built")
        outputs = [t for t in output_types(source) if isinstance(t, TensorType)]
        run = program_runner(machine, record, constants, outputs, source.mutates, whole=self._whole)
        return Program(record, module, source, loaded, constants, machine, run)


_twins: WeakKeyDictionary[Executor[..., Any], InstrumentedExecutor] = WeakKeyDictionary()


def instrumented(executor: Executor[..., Any]) -> InstrumentedExecutor:
    """The instrumented executor of a program, which lives as long as `executor`."""
    twin = _twins.get(executor)
    if twin is None:
        twin = _twins[executor] = InstrumentedExecutor(executor)
    return twin


class _ReportingMachine(Machine):
    def __init__(self, executable: object, source: Source, layout: KernelLayout) -> None:
        super().__init__(executable, source)
        self.module["set_instrument"](_reporter(layout))


def _reporter(layout: KernelLayout) -> Callable[..., int]:
    """The function that the machine calls before and after each of its calls."""

    def report(_: object, name: str, before: bool, *__: object) -> int:
        if modes.profiler is not None and name in layout.kernels:
            if before:
                modes.profiler.kernel_starts(name, layout)
            else:
                modes.profiler.kernel_ends()
        return 0

    return report


def _living(main: KernelList, kernels: Mapping[str, KernelInfo]) -> list[int]:
    """Bytes of the tensors that "main" allocates and that live during each of its kernel calls, in order.

    A tensor lives from the first kernel that takes it to the last one, a result to the end."""
    living = zip(main.steps, live_bytes(main, PLANNED, OWN), strict=True)
    return [count for step, count in living if called_function(step) in kernels]
