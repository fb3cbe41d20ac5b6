"""The public functions: `from_exported`, `load`, `examine`."""

from __future__ import annotations

import os
from typing import Any

from meta.device import CPU, Device
from meta.device import device as parse_device
from meta.frontend.examination import Examination
from meta.frontend.torch.errors import TorchProgramError
from meta.frontend.torch.exported import Exported, decomposed, is_dense, read_program
from meta.frontend.torch.functions import READER, operators
from meta.frontend.torch.model import ExportedModel

Source = Any
"""A `torch.export.ExportedProgram`, or a path to a `.pt2` file."""


def from_exported(program: Source, *, device: Device | str = CPU) -> ExportedModel:
    """A program of torch.export as a model in infer mode, to run, differentiate and compile.

    program: a `torch.export.ExportedProgram`, or a path to a file that `torch.export.save` wrote. No code in the file
        is run. The tensors are copied.
    device: where all of it runs; devices that the program names are ignored.

    model(*args, **kwargs) takes the arguments of the exported module, as arrays of meta, and returns what it returns;
    `meta.vm.compile(model)` compiles it, with the dynamic sizes of the export left open. Operators that are in the ATen
    table stay whole; a program that has others is decomposed by torch first (a file is not).

    Raises UnsupportedError for what meta lacks (all operators at once, with their lines), TorchProgramError for invalid
    programs and files, with the node and its line, and FileError for a file that cannot be read."""
    return _model(program, parse_device(device)).infer_mode()


def load(program: Source, *, device: Device | str = CPU) -> ExportedModel:
    """`from_exported` as a model in train mode: its floating parameters require gradients.

    Export the module in train mode to train it with dropout and with the statistics of its batches: a program does
    what the module did in the mode in which it was exported."""
    return _model(program, parse_device(device))


def examine(program: Source) -> Examination:
    """The operators that a program calls, each with its support and its lines, and what else prevents its conversion.

    An operator that is not supported may still be one that torch decomposes: `from_exported` then does that first."""
    read = _read(program, CPU)
    name = os.path.basename(os.fspath(program)) if isinstance(program, (str, os.PathLike)) else "<exported>"
    return READER.examination(name, operators(read.graph), lambda: _checked(read, CPU))


def _model(program: Source, device: Device) -> ExportedModel:
    try:
        return _checked(_read(program, device), device)
    except TorchProgramError as error:
        if not hasattr(program, "run_decompositions") or not is_dense(program):
            raise
        try:
            simple = decomposed(program)
        except Exception as failure:
            error.details = f"torch.export cannot decompose it either: {type(failure).__name__}: {failure}"[:500]
            raise error from failure
    return _checked(read_program(simple, device), device)


def _checked(program: Exported, device: Device) -> ExportedModel:
    """A model whose program has been converted once, so that its errors come now."""
    model = ExportedModel(program, device)
    model.check()
    return model


def _read(program: Source, device: Device) -> Exported:
    if isinstance(program, (str, os.PathLike)):
        from meta.frontend.torch.archive import read_file

        return read_file(program, device)
    return read_program(program, device)
