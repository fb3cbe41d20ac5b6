"""Choices of tuning in files that travel with models, and results in the cache of this machine, by target.

Nothing in a file is evaluated: a choice selects one of the values that a schedule offers, or is ignored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from meta.backend.tvm import cpu as cpus
from meta.backend.tvm import target as targets
from meta.backend.tvm.cpu import CpuTarget
from meta.backend.tvm.knobs import KnobChoices, Value
from meta.cache import default_cache
from meta.errors import ArgumentError, FileError
from meta.files import atomic
from meta.records import record
from meta.vm.tune.kernels import KernelVariant, State

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


# --- in the cache of this machine -------------------------------------------------------------------------------------


@record
class TuneResult:
    """The tuning of a kernel. default, tuned: seconds of a call with the default choices and with these.
    finished: whether the search was at its end."""

    state: State
    default: float
    tuned: float
    finished: bool


_SUFFIX: Final = ".tuned"


def result_key(variant: KernelVariant, place: str) -> str:
    """The key of a kernel, by its variant with default choices, for the CPU compiled for and the place of the times: an
    emulator's say nothing about a board."""
    facts = (place, variant.key, sorted({scope for scope, _ in variant.knobs}), targets.identity("cpu"))
    return f"tuned_{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}"


def read_result(key: str) -> TuneResult | None:
    """The result of an earlier tuning on this machine, None without a whole one."""
    disk = default_cache()
    try:
        content: Any = json.loads((disk and disk.read(key, _SUFFIX)) or "")
        state = {(str(scope), str(name)): parse_value(value) for scope, name, value in content["choices"]}
        result = TuneResult({}, float(content["default"]), float(content["tuned"]), bool(content["finished"]))
    except (ValueError, TypeError, LookupError):
        return None
    values = {place: value for place, value in state.items() if value is not None}
    return replace(result, state=values) if len(values) == len(state) else None


def store_result(key: str, result: TuneResult) -> None:
    """Store a result in the cache of this machine, if there is one."""
    disk = default_cache()
    if disk is not None:
        choices = [[scope, name, value] for (scope, name), value in result.state.items()]
        content = {"default": result.default, "tuned": result.tuned, "finished": result.finished, "choices": choices}
        disk.put(key, json.dumps(content).encode(), _SUFFIX)
