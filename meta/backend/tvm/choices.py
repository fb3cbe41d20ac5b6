"""What tuning has found: the report, and choices in files that travel with models, by target.

Nothing in a file is evaluated: a choice selects one of the values that a schedule offers, or is ignored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from meta.backend.tvm import cpu as cpus
from meta.backend.tvm.cpu import CpuTarget
from meta.backend.tvm.target import KnobChoices, Value
from meta.errors import ArgumentError, FileError
from meta.files import atomic
from meta.records import record

FORMAT: Final = "meta tuning"
VERSION: Final = 1
_MOST_BYTES: Final = 1 << 24
_EXPECTED: Final = "a file that TuneReport.save wrote"


@record
class Tuning:
    """The choices in a file, by target. path: of the file, for messages."""

    path: str
    targets: Mapping[str, KnobChoices]

    def choices(self, cpu: CpuTarget | None) -> KnobChoices | None:
        """The choices for a CPU, None for this machine's; None if the file has none."""
        return self.targets.get(target_name(cpu))

    def check(self, cpu: CpuTarget | None) -> None:
        """Raise FileError if the file has no choices for a CPU."""
        if self.choices(cpu) is None:
            problem = f"{self.path} has choices for {', '.join(sorted(self.targets)) or 'no target'}"
            raise FileError("tuning", problem, f"choices for {target_name(cpu)}", "tune the program on that machine")


def target_name(cpu: CpuTarget | None) -> str:
    """A CPU as files name it: architecture, system, processor and features; None for this machine's."""
    cpu = cpu or cpus.host()
    system = cpu.triple.rpartition("-")[2] if cpu.system == "linux" else ""
    return " ".join(filter(None, (cpu.architecture, cpu.system, system, cpu.cpu, *cpu.features)))


def read(path: atomic.Path) -> Tuning:
    """The choices in a file. Raises FileError for one that is missing, of another version, or malformed."""
    atomic.check_path("tuning", path, "save the report of a tuning: report.save(path)")
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise FileError("tuning", f"{path} cannot be read: {error}", _EXPECTED) from error
    return Tuning(str(path), parse(data, str(path)))


def parse(data: bytes, path: str) -> dict[str, KnobChoices]:
    """The choices in the content of a file. Raises FileError."""

    def refused(problem: str, remedy: str = "tune again") -> FileError:
        return FileError("tuning", f"{path} {problem}", _EXPECTED, remedy)

    if len(data) > _MOST_BYTES:
        raise refused(f"has more than {_MOST_BYTES >> 20} MiB")
    try:
        content: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise refused(f"is not in JSON: {error!s:.100}") from error
    if not isinstance(content, dict) or cast("dict[str, Any]", content).get("format") != FORMAT:
        raise refused("is not a file of choices")
    fields = cast("dict[str, Any]", content)
    if fields.get("version") != VERSION:
        raise refused(f"has version {fields.get('version')!r:.20} of the format, not {VERSION}")
    targets = _texts_to_fields(fields.get("targets"))
    kernels = {} if targets is None else {name: _texts_to_fields(value) for name, value in targets.items()}
    choices: dict[str, KnobChoices] = {}
    for name, table in kernels.items():
        by_kernel = None if table is None else {key: parse_values(values) for key, values in table.items()}
        if by_kernel is None or None in by_kernel.values():
            raise refused(f"has malformed choices for {name!r:.60}")
        choices[name] = KnobChoices({key: values for key, values in by_kernel.items() if values is not None})
    if targets is None:
        raise refused("has no targets")
    return choices


def _texts_to_fields(value: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def parse_values(value: Any) -> dict[str, Value] | None:
    """The values of knobs by name, None if they are malformed."""
    if not isinstance(value, dict):
        return None
    values = {name: parse_value(each) for name, each in cast("dict[str, Any]", value).items()}
    found = {name: each for name, each in values.items() if each is not None}
    return found if len(found) == len(values) else None


def parse_value(value: Any) -> Value | None:
    """A number, a truth value or several numbers; None for others."""
    if isinstance(value, list) and all(type(n) is int for n in cast("list[Any]", value)):
        return tuple(cast("list[int]", value))
    return value if isinstance(value, (bool, int)) else None


def write(path: atomic.Path, target: str, choices: KnobChoices) -> None:
    """Write the choices for a target to a file; if it exists, its choices for other targets stay.

    Raises ArgumentError for something other than a path, FileError for a file that cannot be written, or that has other
    content."""
    atomic.check_path("tuning", path)
    others = dict(read(path).targets) if Path(path).exists() else {}
    if Path(path).is_dir():
        raise ArgumentError("tuning", f"{path} is a folder", "the path of a file")
    others[target] = choices
    content = {
        "format": FORMAT, "version": VERSION, "targets": {name: c.kernels for name, c in sorted(others.items())},
    }  # fmt: skip
    with atomic.replacing(path) as file:
        file.write(json.dumps(content, indent=1, sort_keys=True).encode())


# --- reports ----------------------------------------------------------------------------------------------------------


@record
class KernelTuning:
    """A tuned kernel. operators: in it.  calls: in a run.  before, after: microseconds of a call.
    choices: the values of knobs that differ from the defaults, by name.  measured: False for choices of an earlier
    tuning, which are used again as they stand."""

    name: str
    operators: tuple[str, ...]
    calls: int
    before: float
    after: float
    choices: Mapping[str, Value]
    measured: bool


@record
class TuneReport:
    """What tuning has found. kernels: those it tuned, the slowest first.  target: the CPU, see `target_name`.
    choices: for programs that are compiled.  untunable: operators that other libraries compute.
    before, after: microseconds of a whole call, medians of alternating rounds; None where no program was run.
    kept: whether the program uses the choices: it does if the whole call wins by 1 %."""

    kernels: tuple[KernelTuning, ...]
    target: str
    choices: KnobChoices
    untunable: tuple[str, ...] = ()
    before: float | None = None
    after: float | None = None
    kept: bool = True

    def save(self, path: Path) -> None:
        """Write the choices to a file for `meta.vm.compile(..., tuning=path)`; choices for other targets in it stay.

        Raises FileError if it cannot be written, or has other content."""
        write(path, self.target, self.choices if self.kept else KnobChoices({}))

    def __str__(self) -> str:
        rows = [("kernel", "operators", "calls", "us", "tuned", "choices")]
        for k in self.kernels:
            choices = ", ".join(f"{name} {value}" for name, value in k.choices.items())
            choices += "" if k.measured else " (from before)"
            times = f"{k.before:.1f}", f"{k.after:.1f}"
            rows.append((k.name, " + ".join(k.operators), str(k.calls), *times, choices))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        if self.before is not None and self.after is not None:
            end = "" if self.kept else "; the choices are dropped"
            lines.append(f"a call took {self.before:.1f} us, and takes {self.after:.1f}{end}")
        if self.untunable:
            lines.append(f"not tunable: {', '.join(self.untunable)}")
        return "\n".join(lines)
