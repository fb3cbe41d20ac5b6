"""The public functions: `from_onnx`, `load`, `examine`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meta.device import CPU, Device
from meta.device import device as parse_device
from meta.dim import Dim
from meta.frontend.examination import Examination
from meta.frontend.onnx.errors import UndecidedError
from meta.frontend.onnx.model import OnnxModel
from meta.frontend.onnx.operator_use import READER, check_supported, examined
from meta.frontend.onnx.program import OnnxProgram
from meta.frontend.onnx.source import Source, SourceProgram, read
from meta.frontend.relay.model import MOMENTUM


def from_onnx(
    source: Source,
    constants: Mapping[str, Any] | None = None,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    device: Device | str = CPU,
) -> OnnxProgram:
    """An ONNX model as a program of meta.

    source: a path, the bytes of a model, an `onnx.ModelProto` or an `onnx_ir.Model`. External data is read from files
        in the folder of the path.
    constants: values of inputs and initializers, by name, in place of the model's; the inputs become constants.
    shapes: shapes of inputs, by name, in place of the declared ones, such as a batch size for an open dimension.
    device: where the program runs.

    Raises OnnxError for invalid models, with the node's name; UnsupportedError for what meta lacks, all operators at
    once; ArgumentError for constants and shapes of unknown inputs; NotSupportedError without onnx and onnx-ir."""
    program = read(source)
    check_supported(program)
    return _converted(program, constants, shapes, device)


def load(
    source: Source,
    constants: Mapping[str, Any] | None = None,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    momentum: float = MOMENTUM,
    device: Device | str = CPU,
) -> OnnxModel:
    """An ONNX network as a `meta.Model`, to run, train and save: its floating initializers, except scalars, are the
    parameters, under their names.

    momentum: weight of the batch in the moving statistics of batch normalisations in train mode. With 0 they stay, and
    train mode normalises by them. The other arguments and the errors are the same as for `from_onnx`; also raises
    UndecidedError for a network whose shapes depend on values."""
    program = read(source)
    check_supported(program)
    _check_names(program, constants or {}, shapes or {})
    model = OnnxModel(program, constants or {}, shapes or {}, momentum)
    return model if parse_device(device) is CPU else model.to(device)


def examine(
    source: Source,
    constants: Mapping[str, Any] | None = None,
    *,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
) -> Examination:
    """The operators that a model uses, each with its support and its nodes, and everything else that prevents a
    conversion with these `constants` and `shapes` (see `from_onnx`).

    Raises OnnxError for something other than a model."""
    program = read(source)
    uses, problems = examined(program)
    if problems or not all(use.supported for use in uses):
        return Examination(program.name, uses, problems)
    return READER.examination(program.name, uses, lambda: _converted(program, constants, shapes, CPU))


def _converted(
    program: SourceProgram, constants: Mapping[str, Any] | None, shapes: Mapping[str, Any] | None, device: Device | str
) -> OnnxProgram:
    _check_names(program, constants or {}, shapes or {})
    result = OnnxProgram(program, constants or {}, shapes or {}, parse_device(device))
    try:
        _ = result.traced
    except UndecidedError as error:
        result.undecided = error
    return result


def _check_names(program: SourceProgram, constants: Mapping[str, Any], shapes: Mapping[str, Any]) -> None:
    inputs = [v.name for v in program.graph.inputs]
    for argument, mapping, names in (
        ("constants", constants, [*inputs, *program.graph.initializers]),
        ("shapes", shapes, inputs),
    ):
        READER.check_names(argument, mapping, names, "the model does not have")
