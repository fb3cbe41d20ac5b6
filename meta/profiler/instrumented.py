"""Executors whose machines report every kernel call, with the user's lines and the bytes that live: for profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from meta import tracing
from meta.device import Device
from meta.eager.ndarray import asarray
from meta.ir.expr import Call, GlobalVar, Var
from meta.ir.module import Module
from meta.ir.type import TensorType
from meta.modes import modes
from meta.vm.arguments import check_devices
from meta.vm.build.executables import Loaded
from meta.vm.build.generate import build_module, plan_source
from meta.vm.executor import Executor
from meta.vm.lower.calls import function_name
from meta.vm.lower.choose import Choice, Source, is_open, output_types, packed_name, prepare, register_kernels
from meta.vm.lower.translate import Lowered, Lowering
from meta.vm.plan.graph import live_bytes
from meta.vm.plan.kernels import OWN, PLANNED, KernelCall, KernelList, Step
from meta.vm.program import Program
from meta.vm.runner import Machine, program_runner


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """operators: those in the kernel, in order.  lines: `file:line` of the calls that it may run for."""

    operators: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(slots=True)
class KernelLayout:
    """kernels: by name.  living: bytes of temporaries and results during each kernel call of "main", in order.
    base: bytes of the parameters, state and constants.  Tensors of symbolic size are not counted."""

    kernels: dict[str, KernelInfo]
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
        lowering = _SpannedLowering(source.module, source.choices, source.calls)
        lowered = lowering.run()
        # Planned with the names of the kernels as operators: a fused kernel then lists the kernels it is made of.
        members = Lowered(lowered.module, {name: name for name in lowered.ops})
        planned = plan_source(source, fuse=self.fuse, lowered=members)
        kernels = dict(_kernels(planned.kernels, lowered.ops, lowering.lines))
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


class _SpannedLowering(Lowering):
    """Lowering that keeps the lines of the calls of every kernel."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.line: str = ""
        self.lines: dict[str, dict[str, None]] = {}

    def call(self, scope: Any, call: Call) -> Any:
        before = self.line
        self.line = str(call.span or before)
        packed = None if isinstance(call.op, (Var, GlobalVar)) or call.op.view else self._packed(call)
        if packed:
            self._keep_line(packed)
        try:
            return super().call(scope, call)
        finally:
            self.line = before

    def _packed(self, call: Call) -> str:
        """The name of the function in Python or of the kernel outside of the program that a call calls, "" for none."""
        if is_open(call):
            return function_name(call)
        choice = self.choices.of(call)
        return "" if choice.compiled else packed_name(choice)

    def kernel(self, kernel_spec: Any, choice: Choice) -> Any:
        target = super().kernel(kernel_spec, choice)
        self._keep_line(target.name_hint)
        return target

    def _keep_line(self, name: str) -> None:
        if self.line:
            self.lines.setdefault(name, {})[self.line] = None


def _kernels(
    planned: Mapping[str, tuple[str, ...]], operators: Mapping[str, str], lines: Mapping[str, Mapping[str, None]]
) -> Iterator[tuple[str, KernelInfo]]:
    for name, members in planned.items():
        source_lines = dict.fromkeys(line for member in members for line in lines.get(member, ()))
        yield name, KernelInfo(tuple(operators.get(m, m) for m in members), tuple(source_lines))


def _living(main: KernelList, kernels: Mapping[str, KernelInfo]) -> list[int]:
    """Bytes of the tensors that "main" allocates and that live during each of its kernel calls, in order.

    A tensor lives from the first kernel that takes it to the last one, a result to the end."""
    living = zip(main.steps, live_bytes(main, PLANNED, OWN), strict=True)
    return [count for step, count in living if _function(step) in kernels]


def _function(step: Step) -> str:
    """The name of the function that a step calls, "" for a conditional."""
    if isinstance(step, KernelCall):
        return step.function
    return str(getattr(getattr(step.expression, "op", None), "global_symbol", ""))
