"""The recorder to which the operators, programs and kernels of one thread report, while a profile or NVTX ranges are
on."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from meta.backend.cuda import streams
from meta.device import CPU, Device
from meta.eager.call import OpState, fast_key
from meta.eager.ndarray import NDArray
from meta.errors import user_location
from meta.modes import scoped
from meta.op.registry import Op
from meta.profiler.events import Event
from meta.profiler.instrumented import KernelLayout, instrumented
from meta.profiler.memory import LivingArrays
from meta.profiler.nvtx import Ranges
from meta.tree import leaves_of


class Recorder:
    """Makes events of what is reported to it.

    events: receives the events in the order in which they end; with None nothing waits for devices.
    memory: whether to count the bytes of living arrays.
    ranges: NVTX's, None without them."""

    def __init__(self, events: list[Event] | None, *, memory: bool, ranges: Ranges | None) -> None:
        self.begin = time.perf_counter_ns()
        self.events = events
        self.arrays = LivingArrays() if memory else None
        self.ranges = ranges
        self._inner = [0]
        """Nanoseconds of the events inside of each open one."""
        self._kernels: list[_OpenKernel] = []
        self._calls: list[int] = [0]
        """The number of kernel calls so far in each open program."""

    # --- the interface of modes.profiler ------------------------------------------------------------------------------

    def timed(self, op: Op, run: Callable[..., Any]) -> Callable[..., Any]:
        """`run`, which computes an operator from its tensors, as an event."""

        def timed_run(*tensors: object) -> Any:
            arrays = [x for x in leaves_of(tensors) if isinstance(x, NDArray)]
            device = arrays[0].device if arrays else CPU
            if self.arrays is not None:
                self.arrays.sweep()
            with self.event("operator", op.name, device, _user_lines(), shapes=_shapes(arrays)):
                result = run(*tensors)
                if self.arrays is not None:
                    self.arrays.add(result, arrays)
            return result

        return timed_run

    def preparing(self, name: str, prepare: Callable[..., Any]) -> Callable[..., Any]:
        """`prepare`, which infers, dispatches and builds, as an event.

        There is no event for a call that was prepared outside of the profile and is only looked up anew."""

        def timed_prepare(op_state: OpState, args: tuple[Any, ...], *rest: object) -> Any:
            if fast_key(op_state.op, args) in op_state.fast:
                return prepare(op_state, args, *rest)
            with self.event("compile", name, CPU, _user_lines()), scoped(profiler=None):
                return prepare(op_state, args, *rest)

        return timed_prepare

    def run_program(self, executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a compiled program; its kernels become events inside of the call's event."""
        lines, name = _user_lines(), executor._name
        if self.events is None:
            with self.event("program", name, executor.device, lines), scoped(profiler=None):
                return executor(*args, **kwargs)
        twin = instrumented(executor)
        compiled, start = twin.compiled(), self._now(CPU)
        with scoped(profiler=None):
            twin.program(*args, **kwargs)
        if twin.compiled() > compiled:
            self._inner.append(0)
            self._close("compile", name, start, self._now(CPU), lines, (), "", None)
        self._calls.append(0)
        try:
            with self.event("program", name, executor.device, lines):
                return twin(*args, **kwargs)
        finally:
            self._calls.pop()

    def kernel_starts(self, name: str, layout: KernelLayout) -> None:
        """A kernel of the running program begins."""
        kernel = _OpenKernel(name, layout, self._calls[-1])
        self._calls[-1] += 1
        self._kernels.append(kernel)
        self._inner.append(0)
        self._push(name)
        kernel.start = self._now(layout.device)

    def kernel_ends(self) -> None:
        """The kernel that began last has ended."""
        kernel = self._kernels.pop()
        end = self._now(kernel.layout.device)
        self._pop()
        info = kernel.layout.kernels[kernel.name]
        living = kernel.layout.living
        byte_count = living[kernel.index] + kernel.layout.base if kernel.index < len(living) else None
        self._close("kernel", kernel.name, kernel.start, end, info.lines, info.operators, "", byte_count)

    # --- events ------------------------------------------------------------------------------------------------------

    @contextmanager
    def event(
        self, kind: str, name: str, device: Device, lines: tuple[str, ...], *, shapes: str = ""
    ) -> Generator[None, None, None]:
        """Time the block. It begins and ends when the device has no work left."""
        self._push(name)
        self._inner.append(0)
        start = self._now(device)
        try:
            yield
        finally:
            end = self._now(device)
            living = None if self.arrays is None or kind != "operator" else self.arrays.bytes
            self._pop()
            self._close(kind, name, start, end, lines, (), shapes, living)

    def _push(self, name: str) -> None:
        if self.ranges is not None:
            self.ranges.push(name)

    def _pop(self) -> None:
        if self.ranges is not None:
            self.ranges.pop()

    def _close(
        self, kind: str, name: str, start: int, end: int, lines: tuple[str, ...], operators: tuple[str, ...],
        shapes: str, living: int | None,
    ) -> None:  # fmt: skip
        inner = self._inner.pop()
        self._inner[-1] += end - start
        if self.events is not None:
            duration = end - start
            self.events.append(Event(kind, name, start, duration, duration - inner, lines, operators, shapes, living))

    def _now(self, device: Device) -> int:
        if self.events is not None and device is not CPU:
            streams.synchronize(device)
        return time.perf_counter_ns() - self.begin


class _OpenKernel:
    """A kernel that runs. index: its position among the kernel calls of the program."""

    __slots__ = ("index", "layout", "name", "start")

    def __init__(self, name: str, layout: KernelLayout, index: int) -> None:
        self.name, self.layout, self.index, self.start = name, layout, index, 0


def _user_lines() -> tuple[str, ...]:
    location = user_location()
    return () if location is None else (f"{location[0]}:{location[1]}",)


def _shapes(arrays: list[NDArray]) -> str:
    return ", ".join(f"{x.dtype}[{'x'.join(map(str, x.shape))}]" for x in arrays)
