"""What users of Relay programs call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from meta.device import CPU, Device
from meta.device import device as parse_device
from meta.frontend.relay.examine import OperatorUse, operators
from meta.frontend.relay.importer import Imported, convert
from meta.frontend.relay.model import MOMENTUM, RelayModel
from meta.frontend.relay.params import read_params
from meta.frontend.relay.source import Source, read
from meta.ir.module import Module
from meta.passes.composites import composites
from meta.passes.manager import Pass
from meta.passes.place import place

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
    params: values of parameters of main - a dict of arrays, the bytes of `relay.save_param_dict`, or a path to such a
        file or to an `.npz`. They become constants of the program; what is left over are the parameters of "main".
    shapes: shapes of parameters of main to use instead of the program's own, such as another batch size.
    device: where all of the program runs; what it says itself about devices is not followed.

    Raises RelaySyntaxError for text that does not parse (with line, column and what was expected), UnsupportedError for
    operators and attributes that meta does not have - all operators at once, with their lines -, RelayError for
    programs that make no sense, and ArgumentError for params and shapes that do not fit."""
    return imported(source, params, shapes, device).module


def FromRelay(
    params: Params | None = None, *, shapes: Mapping[str, Sequence[int]] | None = None, device: Device | str = CPU
) -> Pass:
    """`from_relay` as a pass, which takes a source instead of a Module; `PassContext` times, prints and verifies it."""

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
    """A Relay network as a `meta.Model` whose parameters are those in `params`, to be run, trained and saved.

    momentum: how fast moving statistics of batch normalisations follow those of the batches in train mode; with 0 they
    stay, and train mode normalises by them. The other arguments and the errors are those of `from_relay`."""
    made = imported(source, None, shapes, device)
    return RelayModel(made.module, made.inputs, read_params(params), momentum)


def examine(source: Source) -> tuple[OperatorUse, ...]:
    """The operators that a program calls - name, whether it is supported, lines - by name. Nothing is converted."""
    return operators(read(source))


def imported(
    source: Source,
    params: Params | None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    device: Device | str = CPU,
) -> Imported:
    """`from_relay`, with the names that Relay has for the parameters that are left."""
    values = None if params is None else read_params(params)
    made = convert(read(source), values, shapes, _name(source))
    module = composites(made.module)
    return Imported(module if parse_device(device) is CPU else place(device)(module), made.inputs)


def _name(source: Source) -> str:
    """What the lines of the program are lines of."""
    if isinstance(source, os.PathLike):
        return os.path.basename(os.fspath(source))
    return (
        os.path.basename(source) if isinstance(source, str) and "\n" not in source and len(source) < 1024 else "<relay>"
    )
