"""The public functions of reading: `from_relax`, `load`, `examine`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meta.device import CPU, Device
from meta.device import device as parse_device
from meta.errors import ArgumentError
from meta.frontend.examination import Examination
from meta.frontend.reader import ConvertedProgram
from meta.frontend.relax.convert import Functions
from meta.frontend.relax.operator_use import READER, operators
from meta.frontend.relax.program import RelaxProgram, Shapes, convert, read
from meta.frontend.relay.model import MOMENTUM, RelayModel
from meta.ir.builder import Module


class RelaxModel(RelayModel):
    """A network read by `meta.frontend.relax.load`, called with the inputs that are not parameters, in order.

    Its arrays are copies of the parameters, by their names in Relax (`model.state_dict()`). Moving means and variances
    of batch normalisations are buffers.

    In train mode batch normalisations use the statistics of the batch and move their running statistics by `momentum`.
    With momentum 0, and in infer mode, they use the running statistics. Dropout is the identity in both modes.
    """

    subject = "relax"


Params = Mapping[str, Any]
"""Arrays by the names of parameters, or what `tvm.relax.frontend.detach_params` returns: lists by function."""


def from_relax(
    module: Any,
    params: Params | None = None,
    *,
    entry: str = "",
    shapes: Shapes | None = None,
    functions: Functions | None = None,
    device: Device | str = CPU,
) -> Module:
    """A function of an IRModule as a Module of meta, which the interpreter and the VM run, and which has gradients.

    module: a `tvm.IRModule` before Relax's lowering: with operators of Relax, calls of TIR kernels, or both.
    params: values of parameters: arrays by name, or the lists that `tvm.relax.frontend.detach_params` returns. They
        become constants; the other parameters remain parameters of "main".
    entry: the name of the function; by default "main", or the only public function. Those that it calls are inlined.
    shapes: shapes of tensors, by parameter, in place of the declared ones, and the values of parameters that are shapes
        or numbers.
    functions: by the name of a TIR kernel or a packed function, a function of meta's tensors that computes its results:
        with a gradient, or for another device.
    device: where all of the program runs; devices named in the program are ignored.

    Symbolic sizes keep their names; sizes that the program requires to be equal become one size. A kernel is an
    operator of the program without a gradient.
    Raises UnsupportedError for operators, functions and dtypes that meta lacks (all at once, with their bindings),
    RelaxError for invalid programs, and ArgumentError for another object and for params and shapes that do not fit."""
    return _imported(read(module, entry), params, shapes, functions, device).module


def load(
    module: Any,
    params: Params | None = None,
    *,
    entry: str = "",
    shapes: Shapes | None = None,
    functions: Functions | None = None,
    momentum: float = MOMENTUM,
    device: Device | str = CPU,
) -> RelaxModel:
    """A network in Relax as a `meta.Model` with the parameters in `params`, to run, train and save. By default those
    that the module itself has: the attribute "params" of the function, which Relax's importers and `to_relax` write.

    momentum: weight of the batch in the moving statistics of batch normalisations in train mode. With 0 they stay, and
    train mode normalises by them. The other arguments and the errors are the same as for `from_relax`."""
    program = read(module, entry)
    values = _attached(program) if params is None else _by_name(program, params)
    imported = _imported(program, None, shapes, functions, device)
    model = RelaxModel(imported.module, imported.inputs, values, momentum)
    return model if parse_device(device) is CPU else model.to(device)


def examine(
    module: Any,
    params: Params | None = None,
    *,
    entry: str = "",
    shapes: Shapes | None = None,
    functions: Functions | None = None,
) -> Examination:
    """The operators that a function of a module uses, each with its support and its bindings, and everything else that
    prevents a conversion with these arguments (see `from_relax`)."""
    program = read(module, entry)
    uses = operators(program.module, program.entry, functions or {})
    return READER.examination(f"@{program.entry}", uses, lambda: _imported(program, params, shapes, functions, CPU))


def _imported(
    program: RelaxProgram,
    params: Params | None,
    shapes: Shapes | None,
    functions: Functions | None,
    device: Device | str,
) -> ConvertedProgram:
    return convert(program, _by_name(program, params or {}), shapes or {}, functions or {}).finished(device)


def _by_name(program: RelaxProgram, params: Params) -> dict[str, Any]:
    """Values by the names of parameters. Lists, as of `detach_params`, are of the last parameters."""
    listed: Any = params.get(program.entry)
    if not isinstance(listed, (list, tuple)) and type(listed).__name__ != "Array":
        return dict(params)
    names, values = program.names, list(listed)
    if len(values) > len(names):
        problem = f"params has {len(values)} arrays for @{program.entry}"
        raise ArgumentError("relax", problem, f"at most {len(names)}: {', '.join(names)}")
    return dict(zip(names[len(names) - len(values) :], values, strict=True))


def _attached(program: RelaxProgram) -> dict[str, Any]:
    """The values of parameters that a function has as its attribute "params"."""
    attrs = program.function.attrs
    values = list(attrs["params"]) if attrs is not None and "params" in attrs else []
    return _by_name(program, {program.entry: values}) if values else {}
