"""The public functions: `from_relay`, `load`, `examine`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from meta.device import CPU, Device
from meta.frontend.examination import Examination
from meta.frontend.reader import ConvertedProgram
from meta.frontend.relay.convert.operator_use import READER, operators
from meta.frontend.relay.convert.parameter_names import matched
from meta.frontend.relay.convert.program import convert
from meta.frontend.relay.model import MOMENTUM, RelayModel
from meta.frontend.relay.params import read_params
from meta.frontend.relay.source import Source, read
from meta.ir.builder import Module
from meta.passes.manager import Pass

Params = Any
"""A dict of arrays, the bytes of `relay.save_param_dict`, or a path to a file of those or to an `.npz`."""


def from_relay(
    source: Source,
    params: Params | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    device: Device | str = CPU,
) -> Module:
    """A Relay program as a Module of meta, which runs on the interpreter and the VM and can be differentiated.

    source: Relay text, Relay JSON (`tvm.ir.save_json`), a path to a file of either, or an object with `astext()`.
    params: values of parameters of main: a dict of arrays, the bytes of `relay.save_param_dict`, or a path to such a
        file or to an `.npz`. They become constants of the program; the other parameters remain parameters of "main".
        Names are the program's, or the names before Relay's printer changed them: `1.bias` is `%v1.bias` in text.
    shapes: shapes of parameters of main, in place of the declared ones, such as another batch size.
    device: where all of the program runs; devices named in the program are ignored.

    Raises RelaySyntaxError for text that does not parse (with line, column and the expected tokens), UnsupportedError
    for operators, dtypes and attributes that meta lacks (all at once, with their lines), RelayError for invalid
    programs, and ArgumentError for params and shapes that do not fit."""
    return imported(source, params, shapes, device).module


def FromRelay(
    params: Params | None = None, *, shapes: Mapping[str, Sequence[int]] | None = None, device: Device | str = CPU
) -> Pass:
    """`from_relay` as a pass that takes a source; `PassContext` times, prints and verifies it."""

    def run(source: Any) -> Module:
        return from_relay(source, params, shapes=shapes, device=device)

    return Pass("from_relay", run, from_relay.__doc__ or "")


def load(
    source: Source,
    params: Params,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    momentum: float = MOMENTUM,
    device: Device | str = CPU,
) -> RelayModel:
    """A Relay network as a `meta.Model` with the parameters in `params`, to run, train and save.

    momentum: weight of the batch in the moving statistics of batch normalisations in train mode. With 0 they stay, and
    train mode normalises by them. The other arguments and the errors are the same as for `from_relay`."""
    values = read_params(params)
    parsed = read(source)
    program = convert(parsed, None, shapes, _name(source)).finished(device)
    users = {name: key for key, name in matched(parsed, values, "params").items()}
    names = tuple(users.get(name, name) for name in program.inputs)
    return RelayModel(program.module, names, values, momentum)


def examine(
    source: Source, params: Params | None = None, *, shapes: Mapping[str, Sequence[int]] | None = None
) -> Examination:
    """The operators that a program calls, each with its support and its lines, and everything else that prevents a
    conversion with these `params` and `shapes` (see `from_relay`).

    Raises RelaySyntaxError for text that does not parse."""
    program = read(source)
    values = None if params is None else read_params(params)
    name = _name(source)
    return READER.examination(name, operators(program), lambda: convert(program, values, shapes, name))


def imported(
    source: Source,
    params: Params | None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    device: Device | str = CPU,
) -> ConvertedProgram:
    """`from_relay`, with Relay's names of the remaining parameters."""
    values = None if params is None else read_params(params)
    return convert(read(source), values, shapes, _name(source)).finished(device)


def _name(source: Source) -> str:
    """The name of a program, which its lines are given with."""
    if isinstance(source, os.PathLike):
        return os.path.basename(os.fspath(source))
    if isinstance(source, str) and "\n" not in source and len(source) < 1024:
        return os.path.basename(source)
    return "<relay>"
