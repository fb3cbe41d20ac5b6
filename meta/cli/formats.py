"""The formats that `python -m meta import` reads, by the suffix of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meta.cli.model_inputs import errors_of_files
from meta.errors import ArgumentError, NotSupportedError

if TYPE_CHECKING:
    from meta.frontend.examination import Examination
    from meta.ir.builder import Module


@dataclass(frozen=True, slots=True)
class Request:
    """A file to import. params: a file of parameters.  shapes: of inputs, in place of the declared ones."""

    path: Path
    params: Path | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    device: str = "cpu"


@dataclass(frozen=True, slots=True, eq=False)
class ImportedProgram:
    """An imported program.

    inputs: the names of the first parameters of its "main", as its format has them.  state: values of the others."""

    module: Module
    inputs: tuple[str, ...]
    state: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Format:
    """A format. Both functions import what they need at their first call."""

    name: str
    examine: Callable[[Request], Examination]
    load: Callable[[Request], ImportedProgram]


def format_of(path: Path) -> Format:
    """The format of a file. Raises ArgumentError for files of other formats, and for files that do not exist."""
    if not path.exists():
        raise ArgumentError("import", f"there is no file {path}", "a model")
    file_format = FORMATS.get(path.suffix.lower())
    if file_format is None:
        raise ArgumentError("import", f"{path.name} is of an unknown format", f"one of {', '.join(FORMATS)}")
    return file_format


def _relay_examine(request: Request) -> Examination:
    from meta.frontend import relay

    return relay.examine(request.path, request.params, shapes=request.shapes)


def _relay_load(request: Request) -> ImportedProgram:
    from meta.frontend.relay.api import imported

    program = imported(request.path, request.params, request.shapes, request.device)
    return ImportedProgram(program.module, program.inputs)


def _onnx_examine(request: Request) -> Examination:
    from meta.frontend import onnx

    return onnx.examine(request.path, _onnx_params(request), shapes=request.shapes)


def _onnx_load(request: Request) -> ImportedProgram:
    from meta.frontend import onnx

    program = onnx.from_onnx(request.path, _onnx_params(request), shapes=request.shapes, device=request.device)
    if program.undecided is not None:
        error = program.undecided
        remedy = "pass it: --params FILE.npz; in Python, from_onnx(...).interpret runs the model node by node"
        raise NotSupportedError("import", error.problem, error.expected, remedy)
    return ImportedProgram(program.module, program.inputs)


def _onnx_params(request: Request) -> Mapping[str, Any]:
    from meta.frontend.relay.params import read_params

    with errors_of_files():
        return {} if request.params is None else read_params(request.params)


def _torch_examine(request: Request) -> Examination:
    from meta.frontend import torch

    return torch.examine(_whole(request).path)


def _torch_load(request: Request) -> ImportedProgram:
    import meta
    from meta.frontend import torch

    record = torch.from_exported(_whole(request).path, device=request.device).record()
    keys = [meta.array([0, i], "int64", device=request.device) for i, _ in enumerate(record.random)]
    return ImportedProgram(record.module, record.inputs, (*(array.detach() for _, array in record.state), *keys))


def _whole(request: Request) -> Request:
    """A request for a file that holds parameters and shapes itself."""
    for option, value in (("--params", request.params), ("--shape", request.shapes)):
        if value:
            problem = f"{option} for {request.path.name}"
            raise ArgumentError("import", problem, "neither: the file holds its parameters and shapes")
    return request


_RELAY = Format("Relay", _relay_examine, _relay_load)
_ONNX = Format("ONNX", _onnx_examine, _onnx_load)
_TORCH = Format("PyTorch", _torch_examine, _torch_load)
FORMATS = {".onnx": _ONNX, ".pt2": _TORCH, ".relay": _RELAY, ".rly": _RELAY, ".txt": _RELAY, ".json": _RELAY}
"""Formats by suffix."""
