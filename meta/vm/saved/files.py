"""Programs to files, and back; programs loaded from files."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from platform import machine
from typing import Any, Final

import meta
from meta import __version__
from meta.backend.tvm import hooks, library
from meta.backend.tvm import target as targets
from meta.backend.tvm.cpu import host, instruction_sets
from meta.device import Device
from meta.device import device as parse_device
from meta.eager.named_state import Unmatched, fitting_state
from meta.eager.ndarray import NDArray, asarray, with_arrays
from meta.errors import ArgumentError, FileError, GradientError, MetaError, NotSupportedError
from meta.files import program_file, safetensors
from meta.files.atomic import Path, check_path
from meta.files.program_file import PROGRAM
from meta.files.safetensors import TensorFile
from meta.files.strict_json import parse_json
from meta.modes import modes
from meta.random.generator import Generator
from meta.tree import Tree
from meta.vm import report
from meta.vm.arguments import check_call, flatten_call, refuse_writes
from meta.vm.build.executables import shared_library
from meta.vm.gradient import without_gradient
from meta.vm.program import Program
from meta.vm.runner import Runner
from meta.vm.saved.convention import Tables, decode, encode

FORMAT: Final = 2
"""The version of the files. It counts up with every change of the files, and of the functions in Python that programs
call (`meta.vm.lower.calls`)."""


def write(
    path: Path, name: str, programs: Sequence[tuple[Tree, Program]], device: Device, *, fuse: bool, whole: bool,
    format: str,
) -> str:  # fmt: skip
    """See `Executor.save`. programs: each with the nest of its arguments.  whole: compiled from an IR Module."""
    check_path("save", path)
    formats = ("program", *meta.deploy.WRITERS)
    if format not in formats:
        raise ArgumentError("save", f"the format is {format!r:.80}", " or ".join(map(repr, formats)))
    if not programs:
        raise ArgumentError(
            "save", f"{name} has not been compiled", "a program that is compiled",
            "call it first, or executor.program(...) with arguments of the types that calls will have",
        )  # fmt: skip
    if any(program.traced is not None and program.traced.before for _, program in programs):
        problem = f"calls of {name} evaluate Python functions, such as a LambdaLR, on the host"
        remedy = "save a step without the schedule, or write the rate with operators in a subclass of Schedule"
        raise NotSupportedError("save", problem, "programs that need no Python", remedy)
    if format != "program":
        return meta.deploy.write(path, name, [program for _, program in programs], fuse=fuse, format=format)
    tables = Tables()
    entries: list[safetensors.ArrayEntry] = []
    libraries: dict[str, int] = {}
    described: list[dict[str, Any]] = []
    for number, (arguments, program) in enumerate(programs):
        facts = encode(arguments, program, tables)
        key = program.loaded.key
        if key not in libraries:
            libraries[key] = len(libraries)
            code = shared_library(program.source, program.loaded, fuse=fuse)
            entries.append(_bytes_entry(f"library.{libraries[key]}", code))
        entries += [safetensors.array_entry(f"constant.{number}.{i}", x) for i, x in enumerate(program.constants)]
        described.append({**facts, "library": libraries[key], "constants": len(program.constants)})
    entries += [safetensors.array_entry(f"state.{n}", x) for n, x in tables.state.items()]
    cpu = programs[0][1].source.cpu
    header = {
        "name": name,
        "format": FORMAT,
        "meta": __version__,
        "tvm": targets.tvm_version(),
        "platform": cpu.platform if cpu else f"{sys.platform} {machine()}",
        "device": str(device),
        "processor": "" if cpu else processor(),
        "target": str(programs[0][1].source.target),
        "features": sorted(instruction_sets(cpu or host())),
        "whole": whole,
        "generators": [generator.state for generator in tables.generators],
        "programs": described,
    }
    return program_file.write(path, entries, {PROGRAM: json.dumps(header)})


def processor() -> str:
    """A digest of what identifies the instruction set of this CPU."""
    return hashlib.sha256(targets.describe_processor().encode()).hexdigest()


def _bytes_entry(name: str, data: bytes) -> safetensors.ArrayEntry:
    import numpy as np

    return safetensors.ArrayEntry(name, "uint8", lambda: np.frombuffer(data, np.uint8))


_REMEDY = "save the program again here, from its source"


def load(path: Path, *, trust: bool | str = False) -> LoadedExecutor:
    """A program that `Executor.save` wrote, to be called as the executor was. The source of the model is not needed.

    A program is machine code: whoever wrote the file can run code as you. It is loaded only if you are known to trust
    it:

    trust: False takes files that this user saved on this machine, which carry a signature. The SHA-256 of the file, in
        hex, takes that file: `Executor.save` returned it, and its author tells you. True takes any file.

    The file is checked before anything in it is used: that it is whole, trusted, saved by these versions of meta and
    TVM, and for a processor or GPU like this one. Libraries of other dialects that the program calls (torch, cuDNN,
    your own) have to be there.

    Raises FileError for a file that is damaged, foreign, not trusted or does not fit this machine, DeviceError without
    its device, ArgumentError for another `trust`."""
    check_path("load", path)
    name = os.fspath(path)
    file = safetensors.from_bytes(program_file.contents(path, trust), name)
    try:
        header = parse_json(file.metadata[program_file.PROGRAM])
        _check_versions(header, name)
        return _executor(header, file)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, MetaError):
            raise
        problem = f"{name} does not describe a program: {type(error).__name__}: {error}"[:300]
        raise FileError("load", problem, "a file that Executor.save wrote") from error


def _check_versions(header: Mapping[str, Any], path: str) -> None:
    versions = {
        "format": FORMAT, "meta": __version__, "tvm": targets.tvm_version(), "platform": f"{sys.platform} {machine()}"
    }  # fmt: skip
    for key, expected in versions.items():
        if header[key] != expected:
            raise FileError("load", f"{path} was saved for {key} {header[key]!s:.60}", f"{key} {expected}", _REMEDY)
    kind = parse_device(header["device"]).kind
    if kind == "cuda" and header["target"] != str(targets.target(kind)):
        raise FileError(
            "load", f"{path} was compiled for {header['target']!s:.200}", str(targets.target(kind)), _REMEDY
        )
    if header["processor"] == processor():
        return  # the features of this CPU would have to be asked from TVM's compiler, which takes seconds to import
    lacking = sorted(set(header["features"]) - instruction_sets(host()))
    if lacking:
        problem = f"{path} was compiled for a processor with {', '.join(lacking[:5])}, which this one lacks"
        raise FileError("load", problem, "a processor with these instructions", _REMEDY)


def _executor(header: Mapping[str, Any], file: TensorFile) -> LoadedExecutor:
    device = parse_device(header["device"])
    tables = Tables()
    for name in file.dtypes:
        if name.startswith("state."):
            tables.state[name.removeprefix("state.")] = asarray(file.array(name), device=device)
    for state in header["generators"]:
        generator = Generator()
        generator.state = tuple(state)
        tables.generators.append(generator)
    programs = [decode(facts, tables, device, whole=bool(header["whole"])) for facts in header["programs"]]
    modules: dict[int, Any] = {}  # libraries run code as they load, so they come last
    built: list[tuple[Tree, Program]] = []
    for number, (facts, (arguments, program)) in enumerate(zip(header["programs"], programs, strict=True)):
        index = int(facts["library"])
        if index not in modules:
            modules[index] = _library(file, index)
        names = [f"constant.{number}.{i}" for i in range(facts["constants"])]
        constants = tuple(asarray(file.array(name), device=device) for name in names)
        built.append((arguments, program(modules[index], constants)))
    return LoadedExecutor(str(header["name"]), device, built, tables.state, tables.generators)


def _library(file: TensorFile, index: int) -> Any:
    hooks.prepare()
    try:
        return library.load_bytes(file.array(f"library.{index}").tobytes())
    except (OSError, RuntimeError) as error:
        raise FileError(
            "load", f"the code in {file.path} does not load: {error}"[:400], "code for this system"
        ) from error


class LoadedExecutor:
    """A program from a file: call it as the executor that was saved. See `meta.vm.load`.

    state: the arrays that it reads or writes in place besides its arguments, by name: parameters, buffers, the state of
        an optimizer.  generators: the random generators that it draws from, other than the default one.
    It is compiled for the types that it was saved with. Gradients through a call are not available; a training step
    with `backward` inside is."""

    def __init__(
        self, name: str, device: Device, programs: Sequence[tuple[Tree, Program]], state: Mapping[str, NDArray],
        generators: Sequence[Generator],
    ) -> None:  # fmt: skip
        self.name = name
        self.device = device
        self.state = dict(state)
        self.generators = tuple(generators)
        self._programs = tuple(programs)
        self._runs: dict[Any, Runner] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. Raises ArgumentError, before anything is written, for arguments that none of the saved
        programs fits."""
        max_runs = 256  # Combinations of types that are found without a search.
        if not kwargs:
            try:
                run = self._runs.get(tuple([x._type for x in args]))
            except AttributeError:
                run = None
            if run is not None:
                return run(args)
        converted: list[NDArray] = []
        program, inputs = self._fitting(args, kwargs, converted)
        if converted:
            refuse_writes(program.record, inputs, converted)
        run = _refusing_gradients(program)
        plain = not kwargs and not converted and program.tracked is None and len(args) == len(inputs)
        if plain and all(isinstance(x, NDArray) for x in args) and len(self._runs) < max_runs:
            self._runs[tuple([x.type for x in args])] = run
        return run(inputs)

    def memory(self, *args: Any, **kwargs: Any) -> report.MemoryReport:
        """Bytes that a call with these arguments needs; nothing is run."""
        return report.memory(*self._fitting(args, kwargs, []))

    def named_state(self) -> Iterator[tuple[str, NDArray]]:
        """The arrays of the state, with names."""
        yield from self.state.items()

    def state_dict(self) -> dict[str, NDArray]:
        """The arrays of the state by name; not copies."""
        return dict(self.state)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Unmatched:
        """Copy values into the state. Raises ArgumentError for missing, unknown or misshapen entries, before any array
        is written. strict: as in `Model.load_state_dict`."""
        values, unmatched = fitting_state(self.state, state, "the program", strict)
        for name, value in values.items():
            self.state[name].detach().update(value)
        return unmatched

    def _fitting(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], converted: list[NDArray]
    ) -> tuple[Program, list[NDArray]]:
        """The program for a call, and its inputs."""
        args, kwargs = with_arrays((args, kwargs), self.device, converted)
        refusal: MetaError | None = None
        for arguments, program in self._programs:
            key, inputs, _ = flatten_call(program.record.signature, args, kwargs)
            if arguments.exact() != key[:2]:
                continue
            try:
                check_call(program.record, inputs, checks=program.checks)
            except ArgumentError as error:
                refusal = error
                continue
            if program.is_current(inputs):
                return program, inputs
        if len(self._programs) == 1 and refusal is not None:
            raise refusal
        saved = "; ".join(f"({_types(program)})" for _, program in self._programs)
        raise ArgumentError(
            "vm", f"{self.name} was not saved for these arguments", f"one of {saved}"[:500],
            "save it after a call with such arguments",
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"<LoadedExecutor {self.name}, {len(self._programs)} programs, {len(self.state)} arrays on {self.device}>"
        )


def _types(program: Program) -> str:
    pairs = zip(program.record.inputs, program.record.main.params, strict=False)
    return ", ".join(f"{name}: {p.type!r}" for name, p in pairs)


def _refusing_gradients(program: Program) -> Runner:
    """The call, whose results refuse `backward` if an input requires gradients."""
    plain = program.run
    if program.tracked is not None:
        return plain
    refused = GradientError(
        "vm", "a program from a file has no gradient", "programs with backward inside, or an executor",
        "compile it from its source, or save the whole step",
    )  # fmt: skip

    def run(inputs: Sequence[NDArray]) -> Any:
        if modes.grad_enabled and any(x._node is not None for x in inputs):
            return without_gradient(plain, inputs, refused)
        return plain(inputs)

    return run
