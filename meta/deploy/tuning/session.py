"""Tuning a program: which kernels take its time, their best choices, and the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf, isfinite
from typing import Final

from meta import progress
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.choices import KernelTuning, TuneReport, target_name
from meta.backend.tvm.cpu import CpuTarget, check_runs_here
from meta.backend.tvm.target import KnobChoices, Value
from meta.deploy.tuning import results
from meta.deploy.tuning.kernels import KernelVariant, TunableKernel, tunable_kernels
from meta.deploy.tuning.results import TuneResult
from meta.deploy.tuning.search import tune_kernel
from meta.deploy.tuning.timing import Clock, Measure, alternate, own_clock, timer
from meta.device import Device
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, NotSupportedError, value_text
from meta.modes import scoped
from meta.progress import without_collection
from meta.records import record
from meta.tracing.program import check_inputs
from meta.vm.lower.choose import Source
from meta.vm.program import Program

SHARE: Final = 0.9
"""The part of the time of all kernels that the tuned ones take."""
_LEAST_WORK: Final = 0.002
"""The part of a program's work from which on a kernel is timed."""
_FOR_TIMING: Final = 0.25
"""The part of the seconds in which kernels are timed before they are tuned."""
_TIMING_ROUNDS: Final = 3
_CALL_ROUNDS: Final = 7
_CALL_WIN: Final = 0.99
"""The time of a whole call with the choices, at most, as a part of the time without them."""


@record(eq=False)
class _Timed:
    """A kernel with its default choices, and what is known of it. key: of the entry in the cache on disk."""

    kernel: TunableKernel
    variant: KernelVariant
    result: TuneResult
    key: str

    @property
    def total(self) -> float:
        """Seconds of all its calls in a run, with the default choices."""
        return self.kernel.calls * self.result.default


@record(eq=False)
class Session:
    """The tuning of one program. measure: times variants, at a place that results are stored for.
    clock: of the seconds that it may take."""

    source: Source
    fuse: bool
    measure: Measure
    place: str
    seconds: float
    clock: Clock = time.perf_counter

    def run(self) -> tuple[tuple[KernelTuning, ...], KnobChoices]:
        """Tune the slowest kernels. The time is over after `seconds`, and one more measurement at most."""
        start = self.clock()
        chosen: dict[str, dict[str, Value]] = {}
        with scoped(cpu=self.source.cpu, tuning=None), without_collection():
            slowest = slowest_until(self._timed(start + _FOR_TIMING * self.seconds), SHARE)
            progress.stage("tune kernels", total=len(slowest))
            rows: list[KernelTuning] = []
            for i, timed in enumerate(slowest):
                now = self.clock()
                share = timed.total / sum(each.total for each in slowest[i:])
                rows.append(self._tune(timed, now + (start + self.seconds - now) * share, chosen))
                progress.advance()
        return tuple(rows), KnobChoices({scope: values for scope, values in chosen.items() if values})

    def _timed(self, end: float) -> list[_Timed]:
        """The kernels with knobs and their times: those with most work first, while there is time."""
        kernels = tunable_kernels(self.source, fuse=self.fuse)
        variants = [(k, v) for k in kernels if (v := k.variant({})) is not None and v.knobs]
        variants.sort(key=lambda pair: -pair[0].calls * pair[1].work)
        least = _LEAST_WORK * sum(k.calls * v.work for k, v in variants)
        variants = [(k, v) for k, v in variants if k.calls * v.work >= least]
        progress.stage("time kernels", total=len(variants))
        timed: list[_Timed] = []
        for kernel, variant in variants:
            key = results.result_key(variant, self.place)
            result = results.read_result(key)
            if result is None:
                if self.clock() >= end:
                    break
                (seconds,) = self.measure([variant], _TIMING_ROUNDS)
                result = TuneResult({}, seconds, seconds, finished=False)
            timed.append(_Timed(kernel, variant, result, key))
            progress.advance()
        return [each for each in timed if isfinite(each.result.default)]

    def _tune(self, timed: _Timed, end: float, chosen: dict[str, dict[str, Value]]) -> KernelTuning:
        """Tune a kernel until `end`, unless an earlier tuning has finished it. Adds its choices to `chosen`."""
        kernel, result = timed.kernel, timed.result
        fixed = frozenset(kernel.scopes & chosen.keys())
        state = {place: value for place, value in result.state.items() if place[0] not in fixed}
        state |= {(scope, name): value for scope in fixed for name, value in chosen[scope].items()}
        best = kernel.variant(state) or timed.variant
        if not result.finished:
            found = tune_kernel(kernel, best, result.tuned, self.measure, lambda: self._is_late(end), fixed)
            best = found.variant
            results.store_result(timed.key, TuneResult(best.state, result.default, found.seconds, found.finished))
            result = replace(result, tuned=found.seconds)
        values = best.choices()
        chosen.update({scope: values.get(scope, {}) for scope in {*kernel.scopes, *values}})
        flat = {name: value for table in values.values() for name, value in table.items()}
        times = result.default * 1e6, result.tuned * 1e6
        return KernelTuning(kernel.name, kernel.operators, kernel.calls, *times, flat, not result.finished)

    def _is_late(self, end: float) -> bool:
        progress.check_interrupts()
        return self.clock() >= end


def slowest_until(timed: Sequence[_Timed], share: float) -> list[_Timed]:
    """The slowest kernels, which together take this part of the time of all."""
    ordered = sorted(timed, key=lambda each: -each.total)
    left = share * sum(each.total for each in ordered)
    count = 0
    while left > 0 and count < len(ordered):
        left -= ordered[count].total
        count += 1
    return ordered[:count]


def check_request(seconds: float, device: Device, cpu: CpuTarget | None) -> None:
    """Raise ArgumentError for a time that is not positive, NotSupportedError for programs for a GPU, or for a CPU whose
    code does not run here."""
    check_seconds(seconds)
    if device.kind != "cpu":
        raise NotSupportedError("tune", f"the program is for {device}", "a program for the CPU")
    check_runs_here("tune", cpu)


def check_seconds(seconds: float) -> None:
    """Raise ArgumentError for a time that is not positive."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < inf:
        raise ArgumentError("tune", f"seconds is {value_text(seconds)}", "a positive number")


def check_tunable(source: Source) -> None:
    """Raise NotSupportedError for a program whose kernels are all of other libraries."""
    listed = source.choices.listed()
    if not any(choice.compiled for choice in listed):
        names = ", ".join(sorted({choice.implementation.name for choice in listed})[:5]) or "none"
        remedy = 'compile it with TVM\'s kernels: with meta.with_dialect("tvm")'
        raise NotSupportedError("tune", f"no kernel is TVM's: they are {names}", "kernels of TVM", remedy)


def tune(
    program: Program, inputs: Sequence[NDArray], seconds: float, *, fuse: bool, measure: Measure | None = None,
    place: str = "",
) -> TuneReport:  # fmt: skip
    """Tune the kernels of a program. measure: by default on this machine.  place: where that is, for stored results."""
    source = program.source
    check_tunable(source)
    measure = measure or timer(source.target, open_sizes(program, inputs))
    place = place or f"{tvm.num_threads()} threads"
    kernels, choices = Session(source, fuse, measure, place, seconds).run()
    untunable = sorted({choice.implementation.name for choice in source.choices.packed().values()})
    return TuneReport(kernels, target_name(source.cpu), choices, tuple(untunable))


def open_sizes(program: Program, inputs: Sequence[NDArray]) -> Mapping[str, int]:
    """The sizes that a program leaves open, for these inputs."""
    if program.source.static:
        return {}
    types = [p.type for p in program.record.main.params[: len(inputs)]]
    return check_inputs("tune", program.record.inputs, types, inputs)


def compared(report: TuneReport, old: Program, new: Program, inputs: Sequence[NDArray]) -> TuneReport:
    """The report with the times of whole calls of a program without and with the choices."""
    calls = [partial(program.machine.main, *program.arguments(inputs)) for program in (old, new)]
    before, after = alternate(calls, _CALL_ROUNDS, own_clock())
    return replace(report, before=before * 1e6, after=after * 1e6, kept=after <= _CALL_WIN * before)


def tune_here(
    program: Program, inputs: Sequence[NDArray], seconds: float, compiled: Callable[[KnobChoices], Program],
    before: KnobChoices | None, fuse: bool,
) -> TuneReport:  # fmt: skip
    """See `meta.deploy.tune_here`."""
    check_request(seconds, program.source.device, program.source.cpu)
    with progress.compiling("tuned"):
        report = tune(program, inputs, seconds, fuse=fuse)
    choices = report.choices.merged(before)
    if not report.choices.kernels or choices == before:
        return report
    return compared(report, program, compiled(choices), inputs)
