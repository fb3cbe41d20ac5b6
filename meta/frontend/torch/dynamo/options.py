"""The options that `torch.compile(..., backend="meta", options={...})` accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from meta.device import Device
from meta.errors import ArgumentError, NotSupportedError, did_you_mean
from meta.frontend.torch.dynamo.convert import Converted
from meta.frontend.torch.dynamo.report import RANDOM, Fallback
from meta.op.dispatch import with_dialect
from meta.vm.arguments import RecordSource
from meta.vm.compilation import compile as compiled
from meta.vm.executor import Executor
from meta.vm.program import Program

T = TypeVar("T")
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
PARTITIONS = ("min_cut", "all")


@dataclass(frozen=True, slots=True)
class Options:
    """fuse: let neighbouring operators share a kernel.
    graphs: on CUDA, record programs of known sizes as CUDA graphs.
    dialects: the dialects that may run operators, in this order of preference, as `meta.with_dialect` takes them.
    fallback: whether torch runs what meta lacks; without it, such a graph is an error that lists all of it.
    partition: what the forward pass saves for the backward pass: "min_cut" the fewest bytes, computing cheap operators
        again, "all" every tensor that the backward pass reads."""

    fuse: bool = True
    graphs: bool = True
    dialects: tuple[str, ...] | None = None
    fallback: bool = True
    partition: str = "min_cut"

    def compiled(self, build: Callable[[], T]) -> T:
        """`build()` with the dialects of these options."""
        if self.dialects is None:
            return build()
        with with_dialect(self.dialects):
            return build()

    def refuse_whole(self, kind: str, reason: str) -> None:
        """Raise NotSupportedError for a graph that torch would run, unless it may."""
        if not self.fallback:
            raise _refused(kind, reason)

    def refuse(self, kind: str, fallbacks: Sequence[Fallback]) -> None:
        """Raise NotSupportedError for the operators that torch would run, unless it may. It always draws numbers."""
        names = sorted({each.operator for each in fallbacks if each.reason != RANDOM})
        if names and not self.fallback:
            raise _refused(kind, f"meta does not run {', '.join(names)}")


def _refused(kind: str, reason: str) -> NotSupportedError:
    return NotSupportedError(
        "torch.compile", f"the {kind} graph needs torch: {reason}", "operators that meta runs",
        "leave out options={'fallback': False}, or give the operator a twin: meta.frontend.torch.twin",
    )  # fmt: skip


def read_options(mode: Any, options: Any) -> Options:
    """The options of a call. Raises ArgumentError for unknown ones and for values of a wrong kind."""
    if mode not in (None, *_MODES):
        raise ArgumentError("torch.compile", f"mode is {mode!r:.80}", f"None or one of {', '.join(_MODES)}",
                            did_you_mean(str(mode), _MODES))  # fmt: skip
    settings: Any = {} if options is None else options
    if not isinstance(settings, Mapping):
        raise ArgumentError("torch.compile", f"options is {type(settings).__name__}", "a dict such as {'fuse': False}")
    option_names = [each.name for each in fields(Options)]
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in option_names:
            hint = did_you_mean(str(name), option_names)
            raise ArgumentError("torch.compile", f"meta has no option {name!r:.80}", ", ".join(option_names), hint)
        values[name] = _checked(name, value)
    if mode == "max-autotune-no-cudagraphs":
        values.setdefault("graphs", False)
    return Options(**values)


def _checked(name: str, value: Any) -> Any:
    if name == "dialects":
        names = (value,) if isinstance(value, str) else value
        if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) for n in names):
            raise ArgumentError("torch.compile", f"dialects is {value!r:.80}", 'names such as ["tvm", "torch"]')
        with with_dialect(tuple(names)):
            return tuple(names)
    if name == "partition":
        if value not in PARTITIONS:
            raise ArgumentError("torch.compile", f"partition is {value!r:.80}", " or ".join(map(repr, PARTITIONS)))
    elif not isinstance(value, bool):
        raise ArgumentError("torch.compile", f"{name} is {value!r:.80}", "True or False")
    return value


def compile_record(
    converted: Converted, device: Device, *, fuse: bool, graphs: bool, copied_bytes: int | None
) -> Program:  # fmt: skip
    """The program of a converted graph, which is called with raw tensors: `program.machine.main`.

    copied_bytes: how many bytes are copied in each call, where calls are recorded as CUDA graphs. If graphs repay that,
        the program takes the memory of its tensors (`program.loaded.destinations`)."""
    record = converted.record
    executor: Executor[..., Any] = compiled(RecordSource(record), device, fuse=fuse, graphs=graphs)
    executor._copied_bytes = copied_bytes
    executor.graphs |= copied_bytes is not None
    return executor._compile(record, record.module, is_standard=converted.is_standard)
