"""Files to programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from platform import machine
from typing import Any

from meta import __version__
from meta.backend.tvm import hooks, library
from meta.backend.tvm import target as targets
from meta.device import device as parse_device
from meta.eager.ndarray import asarray
from meta.errors import FileError, MetaError
from meta.files import program_file, safetensors
from meta.files.atomic import Path, check_path
from meta.files.safetensors import TensorFile
from meta.files.strict_json import parse_json
from meta.random.generator import Generator
from meta.tree import Tree
from meta.vm.program import Program
from meta.vm.saved.convention import Tables, decode
from meta.vm.saved.executor import LoadedExecutor
from meta.vm.saved.write import FORMAT, processor

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
    lacking = sorted(set(header["features"]) - targets.instruction_sets(targets.target("cpu")))
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
