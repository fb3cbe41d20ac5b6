"""`meta.vm.compile`: programs compiled for the shapes and dtypes they are called with."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import meta
from meta import progress, tracing
from meta.backend.tvm.cpu import CpuTarget, chosen_target
from meta.device import Device
from meta.eager.ndarray import NDArray, asarray, with_arrays
from meta.eager.seeds import zeros_of
from meta.errors import MetaError
from meta.ir.analysis import contents
from meta.ir.builder import Module
from meta.ir.type import TensorType
from meta.locks import new_lock
from meta.modes import GradMode, modes, scoped, scopes
from meta.passes.ranks import COLLECTIVES, LastProgram, agree_on
from meta.progress import without_collection
from meta.tracing.open_sizes import Dynamic, OpenSizes, example, open_sizes, recording
from meta.vm import report
from meta.vm.arguments import (
    Recordable,
    check_call,
    check_devices,
    check_rewritten,
    flatten_call,
    module_record,
    recorder_of,
    refuse_symbols,
    refuse_writes,
)
from meta.vm.build.executables import load
from meta.vm.dynamic_sizes import Key, Specialisations
from meta.vm.lower.choose import output_types, prepare
from meta.vm.program import Program
from meta.vm.runner import (
    Machine,
    Runner,
    finisher,
    program_runner,
    recording_runner,
    shared_results,
    with_left_gradients,
)

if TYPE_CHECKING:
    from meta.backend.tvm.choices import TuneReport, Tuning
    from meta.backend.tvm.target import KnobChoices
    from meta.pictures import Picture
    from meta.vm.cuda_graph import GraphCall

Transform = Callable[[Module], Module]
_COMPILED = ("_choices", "_runs", "_programs", "_variants", "_containers", "_revision")
"""What an executor has compiled, and how."""

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Executor(Generic[P, R]):
    """A compiled program: call it with arrays, as what it was compiled from. See `compile`."""

    def __init__(
        self, what: Module | Recordable | Callable[..., Any], device: Device, fuse: bool,
        passes: Transform | Iterable[Transform] | None, graphs: bool = False, dynamic: Dynamic | None = None,
        memory_budget: int | str | None = None, cpu: CpuTarget | None = None, tuning: Tuning | None = None,
    ) -> None:  # fmt: skip
        self.device, self.fuse, self.cpu = device, fuse, cpu
        self.tuning = tuning
        self._choices = tuning and tuning.choices(cpu)
        self.compiled_from = what
        self.graphs = graphs and device.kind == "cuda"
        self.memory_budget: int | None = None
        if memory_budget is not None:
            from meta.vm.plan.budget import parse_bytes

            self.memory_budget = parse_bytes(memory_budget, "memory_budget")
        self._name = str(getattr(what, "__name__", type(what).__name__))
        self._placements: Callable[[], Sequence[tuple[str, ...]]] = getattr(what, "placements", tuple)
        self._record = module_record(what) if isinstance(what, Module) else recorder_of(what)
        self._whole = isinstance(what, Module)
        self._passes: tuple[Transform, ...] = (passes,) if callable(passes) else tuple(passes or ())
        stated = getattr(what, "open_sizes", None) if dynamic is None else open_sizes(dynamic, self._whole)
        self._sizes = Specialisations(self._name, stated)
        self._dialects = modes.dialects
        self._runs: dict[Any, Runner] = {}
        self._programs: dict[Any, Program] = {}
        """The programs for the modes that models are in, those in `_variants` for all modes."""
        self._variants: dict[Any, list[Program]] = {}
        self._containers: list[tracing.Held] = []
        self._signature: inspect.Signature | None = None
        self._lock = new_lock("program")
        self._revision = tracing.revision()
        self._copied_bytes: int | None = None
        self._last_program: LastProgram | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the program, compiled first for new types. Arrays of NumPy, torch and other libraries become inputs as by
        `meta.asarray`, without a copy where their layout and device allow.

        Inputs and parameters that require gradients record the call, as eager calls do: `backward` runs a compiled
        gradient, compiled at its first use, and first derivatives only. `backward` inside the compiled function leaves
        gradients in `.grad`.
        Raises ArgumentError for inputs that are not arrays or do not fit, DeviceError for arrays on another device."""
        if scopes.active and (watcher := modes.profiler or modes.anomalies) is not None:
            return watcher.run_program(self, args, kwargs)
        stale = self._containers and tracing.changed(self._containers)
        if not kwargs and not stale and self._revision == tracing.revision():
            try:
                run = self._runs.get(tuple([x._type for x in args]))  # type: ignore[attr-defined]
            except AttributeError:
                run = None
            if run is not None:
                return run(args)  # type: ignore[arg-type]
        return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        converted: list[NDArray] = []
        program, inputs = self._specialised(args, kwargs, converted, opens=not (self._whole or self.memory_budget))
        if converted:
            refuse_writes(program.record, inputs, converted)
        return program.run(inputs)

    def program(self, *args: P.args, **kwargs: P.kwargs) -> Program:
        """The specialisation for arguments of these types, compiled if need be."""
        return self._specialised(args, kwargs)[0]

    def module(self, *args: P.args, **kwargs: P.kwargs) -> Module:
        """The program of a call with these arguments as it is before the standard passes: traced, and rewritten by
        `passes`. Nothing is compiled or run."""
        args, kwargs = with_arrays((args, kwargs), self.device)
        record = self._trace(args, kwargs, self._sizes.stated)
        return self._rewritten(with_left_gradients(record)[0] if record.left else record)

    def memory(self, *args: P.args, **kwargs: P.kwargs) -> report.MemoryReport:
        """Bytes that a call with these arguments needs; nothing is run. `.draw()` shows them step by step."""
        program, inputs = self._specialised(args, kwargs)
        return report.memory(program, inputs, fuse=self.fuse, name=self._name)

    def draw(self, *args: Any, repeat: int = 3, **kwargs: Any) -> Picture:
        """An SVG of the kernels as boxes: the operators in each, the lines that they are from, the bytes that it reads
        and writes, and its time over `repeat` calls (0: nothing is run). State that the program writes does not
        change. The result is a str; `.save(path)` writes it, and notebooks show it."""
        program, inputs = self._specialised(args, kwargs)
        return report.draw(program, inputs, fuse=self.fuse, repeat=repeat, name=self._name)

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """A table of operators and types: the dialect that runs each, the number of calls, and the reason; then where
        the parameters and the state of a step of several processes are, what collectives overlap with, and what a
        budget of memory costs."""
        return report.explain(self.program(*args, **kwargs), fuse=self.fuse, placements=self._placements())

    def ir(self, *args: Any, stage: str = "optimized", **kwargs: Any) -> str:
        """The text of the program: "traced", "optimized" (after the passes), "relax" (lowered) or "planned" (fused,
        scheduled, memory assigned). Raises ArgumentError for another stage."""
        return report.ir(self.program(*args, **kwargs), stage, fuse=self.fuse)

    def profile(self, *args: Any, repeat: int = 10, **kwargs: Any) -> report.Profile:
        """Time every kernel over `repeat` calls. State that the program writes does not change."""
        program, inputs = self._specialised(args, kwargs)
        return report.profile(program, inputs, fuse=self.fuse, repeat=repeat)

    def tune(self, *args: Any, seconds: float = 60, **kwargs: Any) -> TuneReport:
        """Try other tiles, orders of loops and the like for the slowest kernels, on this machine, and use what wins by
        3 %, if the whole call then wins by 1 %. Results differ by rounding alone, and state does not change.

        Choices stay in the cache, and `report.save(path)` writes them for `meta.vm.compile(..., tuning=path)`. Kernels
        of open sizes are timed at the sizes of the arguments. seconds: for the search; compiling comes on top.
        Raises ArgumentError for another number of seconds, NotSupportedError for programs without kernels to tune."""
        others: list[Executor[P, R]] = []

        def compiled(choices: KnobChoices) -> Program:
            others.append(self._for(self.cpu, choices))
            return others[0].program(*args, **kwargs)

        program, inputs = self._specialised(args, kwargs)
        report = meta.deploy.tune_here(program, inputs, seconds, compiled, self._choices, self.fuse)
        for name in _COMPILED if others and report.kept else ():
            setattr(self, name, getattr(others[0], name))
        return report

    def relax(self, *args: Any, stage: str = "relax", **kwargs: Any) -> Any:
        """The program for these arguments as an IRModule of TVM: "relax" (lowered) or "planned" (fused, scheduled,
        memory assigned). Raises ArgumentError for another stage."""
        return report.relax(self.program(*args, **kwargs), stage, fuse=self.fuse)

    def save(
        self, path: str | os.PathLike[str], *, format: str = "program", target: str | CpuTarget | None = None,
        cpu: str | None = None,
    ) -> str:  # fmt: skip
        """Write the programs that are compiled, with the arrays of their state, to a file that `meta.vm.load` runs
        without the source of the model. Returns the SHA-256 of the file, in hex.

        Programs are compiled by calls, and by `program(...)` for the types of its arguments. If a model has changed
        since, they are compiled anew.
        format: "program"; or, for C and with the one program that is compiled, all of whose kernels are TVM's: "c" (a
            folder of sources), "archive" and "library", with the weights beside them; and "web", a folder with a page,
            for the target "wasm32" (see docs/deploy.md).
        target, cpu: the machine that the programs are compiled for, as for `compile`; by default the executor's.
        Raises FileError when the file cannot be written (an older one stays), ArgumentError when nothing is compiled,
        NotSupportedError, with the operator, for programs that call functions which only this process has."""
        from meta.vm import saved

        if target or cpu:
            machine = chosen_target(self.device, target, cpu)
            return self._for(machine, self.tuning and self.tuning.choices(machine)).save(path, format=format)
        self._compile_anew()
        programs = [(key[0], program) for key, program in self._programs.items()]
        return saved.write(path, self._name, programs, self.device, fuse=self.fuse, whole=self._whole, format=format)

    def _compile_anew(self) -> None:
        """Compile all programs once more if a model has changed since."""
        signature = self._signature
        if signature is None or not (self._revision != tracing.revision() or tracing.changed(self._containers)):
            return
        for (tree, _, types), program in list(self._programs.items()):
            inputs = [zeros_of(example(kind)) for kind in types]
            for x, tracked in zip(inputs, program.tracked or (), strict=False):
                x.requires_grad = tracked
            call = inspect.BoundArguments(signature, tree.build(iter(inputs)))
            self._specialised(call.args, call.kwargs)

    def _for(self, cpu: CpuTarget | None, choices: KnobChoices | None) -> Executor[P, R]:
        """The same programs for another CPU, or with other choices of its kernels' schedules."""
        other = copy(self)
        other.cpu, other._revision, other._programs = cpu, -1, dict(self._programs)
        other._choices = choices
        other._runs, other._variants, other._containers = {}, {}, []
        other._compile_anew()
        return other

    def _specialised(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], converted: list[NDArray] | None = None, *,
        opens: bool = False,
    ) -> tuple[Program, list[NDArray]]:  # fmt: skip
        """The program for a call and its inputs. converted: receives those made of other libraries' arrays.
        opens: whether sizes may be open that no call has had open."""
        cache_limit = 256  # Most specialisations that an executor keeps; all are dropped when there would be more.
        args, kwargs = with_arrays((args, kwargs), self.device, converted)
        if tracing.changed(self._containers):
            tracing.invalidate()
        if self._revision != tracing.revision():
            self._runs.clear()
            self._programs.clear()
            if self._revision < tracing.last_change():
                self._variants.clear()
                self._containers.clear()
                self._signature = None
            self._revision = tracing.revision()
        stated, fresh = self._sizes.stated, None
        if self._signature is None:
            self._signature = (fresh := self._trace(args, kwargs, stated)).signature
        call, inputs, names = flatten_call(self._signature, args, kwargs)
        sizes = self._sizes.opened_by(call, names, opens=opens)
        if sum(map(len, self._variants.values())) >= cache_limit:
            for each in (self._programs, self._variants, self._sizes.exact):
                each.clear()
        if len(self._runs) >= cache_limit:
            self._runs.clear()
        try:
            program = self._fitting(call, names, inputs, args, kwargs, sizes, fresh if sizes is stated else None)
        except Exception as error:
            if sizes is None or stated:
                raise
            self._sizes.refuse(call, error)
            return self._specialised(args, kwargs, converted)
        if not kwargs and len(args) == len(inputs) and all(isinstance(x, NDArray) for x in args):
            types = tuple([x.type for x in args])
            run = self._checked(program)
            if sizes and not stated:
                run = self._sizes.counted(run, call, lambda: self._runs.pop(types, None))
            self._runs[types] = run
        return program, inputs

    def _fitting(
        self, call: Key, names: Sequence[str], inputs: Sequence[NDArray], args: tuple[Any, ...], kwargs: dict[str, Any],
        sizes: OpenSizes | None, fresh: tracing.Record | None = None,
    ) -> Program:  # fmt: skip
        """The program with these open sizes, compiled if need be. fresh: its trace.

        A call without the sizes that other calls have opened, where those refuse its own."""
        key = call if sizes is None else (*call[:2], tuple(map(sizes.type_of, names, call[2])))
        program = self._programs.get(key)
        if not (program and program.is_current(inputs)):
            variants = (p for p in self._variants.get(key, ()) if p.record.fits_modes() and p.is_current(inputs))
            if program := next(variants, None):
                self._programs[key] = program
        record, checks = program.record if program else fresh or self._trace(args, kwargs, sizes), None
        if sizes or program is None:
            same = (program,) if program else (p for p in self._programs.values() if p.record.main is record.main)
            if sizes:
                sizes.check_names(record.inputs)
            try:
                checks = check_call(record, inputs, sizes or self._sizes.stated, next((p.checks for p in same), None))
            except MetaError:
                if sizes is None or self._sizes.stated:
                    raise
                self._sizes.exact.add(call)
                return self._fitting(call, names, inputs, args, kwargs, None)
        if program is not None:
            return program
        if not self._whole:  # a module states its sizes
            self._sizes.warn(call, record.inputs)
        choices = scoped(dialects=self._dialects, cpu=self.cpu, tuning=self._choices)
        with self._lock, choices, progress.compiling(self._name), without_collection():
            program = self._programs[key] = replace(self._lower(record, inputs), checks=checks)
            self._variants.setdefault(key, []).append(program)
            watched = {id(container) for container, _ in self._containers}
            self._containers += [entry for entry in record.containers if id(entry[0]) not in watched]
        if program.digest and sizes is None:
            self._sizes.refuse(call, "its ranks have to run the same programs")
        return program

    def _checked(self, program: Program) -> Runner:
        """The call of a program, which first compiles anew if other arrays require gradients than while tracing."""
        if program.tracked is None:
            return program.run

        def run(inputs: Sequence[NDArray]) -> Any:
            return program.run(inputs) if program.is_current(inputs) else self._run(tuple(inputs), {})

        return run

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any], sizes: OpenSizes | None) -> tracing.Record:
        """A record with these open sizes. What it assumes of sizes that calls have opened becomes its conditions. The
        program also serves calls that record gradients."""
        refuse_symbols(args, kwargs)
        assumed: list[Any] = []
        opened = recording(sizes, assumed) if sizes else nullcontext()
        with self._lock, GradMode(True), opened, without_collection():
            record = self._record(*args, **kwargs)
        chosen = sizes and not self._sizes.stated
        return replace(record, conditions=(*record.conditions, *assumed)) if chosen else record

    def _lower(self, traced: tracing.Record, inputs: Sequence[NDArray]) -> Program:
        record, indices = with_left_gradients(traced) if traced.left else (traced, ())
        module = self._rewritten(record)
        program = self._compile(record, module)
        finish = finisher(traced, indices)
        plain = program.run
        if program.digest:
            last = self._last_program = self._last_program or LastProgram()
            plain = last.compare_before(plain, program.digest)
        run: Runner = (lambda inputs: finish(inputs, plain(inputs))) if traced.left else plain

        def recorder() -> Runner:
            from meta.vm.gradient import recording_call

            return recording_call(run, record, module, traced.result.count(), self._compile, finish)

        tracked = [x.requires_grad for x in (*inputs, *(x for _, x in traced.state))] if traced.left else None
        run_or_record = recording_runner(run, traced, recorder)
        return replace(program, run=run_or_record, tracked=tracked, traced=traced, left=indices)

    def _rewritten(self, record: tracing.Record) -> Module:
        """The module of a record after the user's passes, which may not change what it takes and returns."""
        module = record.module
        for each in self._passes:
            module = each(module)
        if self._passes:
            check_rewritten(record, module)
        return module

    def _compile(self, record: tracing.Record, module: Module, *, is_standard: bool = False) -> Program:
        from meta.passes.standard import separate_results, standard

        with self._lock, scoped(dialects=self._dialects, cpu=self.cpu, tuning=self._choices):
            progress.stage("passes")
            return self._build(record, module if is_standard else separate_results(module, standard()(module)))

    def _build(self, record: tracing.Record, module: Module) -> Program:
        check_devices(record, self.device)
        digest = agree_on(module) if contents(module).has(*COLLECTIVES) else ""
        progress.stage("choose dialects")
        source = prepare(module, self.device, self.memory_budget)
        loaded = load(source, fuse=self.fuse, graphs=self.graphs and source.static and not source.reads_values)
        constants = tuple(asarray(c.value, device=self.device) for c in source.constants)
        machine: Machine | GraphCall | None = None
        if loaded.destinations is not None:
            from meta.vm import cuda_graph

            if not cuda_graph.repays(source, loaded.destinations, self._copied_bytes):
                loaded = load(source, fuse=self.fuse)
            elif self._copied_bytes is None:
                machine = Machine(loaded.module, source)
                machine = cuda_graph.graph_call(machine, record, source, loaded.destinations)
        machine = machine or Machine(loaded.module, source)
        outputs = [t for t in output_types(source) if isinstance(t, TensorType)]
        shared = () if record.result.count() != len(outputs) else shared_results(record.main)
        run = program_runner(machine, record, constants, outputs, source.mutates, whole=self._whole, shared=shared)
        return Program(record, module, source, loaded, constants, machine, run, digest=digest)
