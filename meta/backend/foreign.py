"""Functions of other packages as payloads of dialects: functions that follow tvm-ffi's ABI, and functions on torch
tensors that return their results.

Either is called with the arguments of an operator that it names, in its order. A call that gives another argument
anything but its default is refused.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from meta.backend.tvm import bound
from meta.backend.tvm.bound import Position
from meta.errors import KernelError
from meta.ir.type import TensorType
from meta.records import record
from meta.tree import is_sequence, leaves_of

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo

Out = Literal["first", "last"]
_PLAIN = (bool, int, float, str, type(None))


@record(eq=False)
class KernelFunction:
    """A function of a compiled module, which can be called with tensors too.

    name: how the module exports it.  digest: the SHA-256 of the module's file in hex, "" where it is unknown."""

    name: str
    digest: str
    function: Any

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


@record(eq=False)
class FfiFunction:
    """A function of tvm-ffi's ABI for each kind of device, "" for all kinds.

    takes: the operator's arguments that it takes, in its order.  out: where its results are among its arguments."""

    functions: Mapping[str, KernelFunction]
    takes: tuple[str, ...]
    out: Out

    @property
    def identity(self) -> str:
        """A digest of what a program calls, by which programs recognise it, "" if some module's digest is unknown."""
        if not all(f.digest for f in self.functions.values()):
            return ""
        functions = sorted((kind, f.name, f.digest) for kind, f in self.functions.items())
        return hashlib.sha256(repr((functions, self.takes, self.out)).encode()).hexdigest()[:16]

    def refusal(self, call: CallInfo) -> str | None:
        """Why it cannot run a call, None if it can."""
        if not self.functions.keys() & {"", call.device.kind}:
            return f"no function for {call.device.kind}"
        given = call.bind()
        for name in self.takes:
            value = given[name]
            if isinstance(value, TensorType):
                if 0 in value.shape:
                    return f"'{name}' has no elements"
            elif not all(isinstance(leaf, _PLAIN) for leaf in leaves_of(value)):
                return f"'{name}' is {value!r}, which functions of tvm-ffi do not take"[:200]
            elif value is not None and call.op.schema.args[call.op.schema.index[name]].is_tensor:
                return f"'{name}' is a number, not a tensor"
        return refuse_others(call, self.takes)

    def kernel(self, call: CallInfo, what: str) -> Any:
        """The kernel of a call, which runs without Python."""
        given = call.bind()
        positions: dict[str, Position] = {}
        for name, value in given.items():
            if isinstance(value, TensorType):
                positions[name] = Position(len(positions))
        results = [Position(len(positions) + i) for i in range(len(call.outputs()))]
        values = [positions.get(name, given[name]) for name in self.takes]
        arguments = [*results, *values] if self.out == "first" else [*values, *results]
        function = self.functions.get(call.device.kind) or self.functions[""]
        label = f"{what} ({function.name})" if function.name else what
        return bound.bind(function.function, arguments, call.op.name, label)


def refuse_others(call: CallInfo, takes: tuple[str, ...]) -> str | None:
    """Refuse a call that gives an argument other than `takes` anything but its default.

    An axis counts from either end of the first tensor."""
    rank = call.tensors()[0].ndim if call.tensors() else 0
    for arg, value in zip(call.op.schema.args, call.args, strict=True):
        if arg.name not in takes and _from_start(value, rank) != _from_start(arg.default, rank):
            return f"'{arg.name}' is {value!r}, and the function takes no '{arg.name}': it is for {arg.default!r}"[:200]
    return None


def _from_start(value: Any, rank: int) -> Any:
    """A value with negative ints, as axes are, counted from the start."""
    if is_sequence(value):
        return [_from_start(item, rank) for item in value]
    return value + rank if type(value) is int and value < 0 else value


@record(eq=False)
class TorchFunction:
    """A function on torch tensors that returns its results, or that takes `out`.

    takes: the operator's arguments that it takes, in its order."""

    function: Callable[..., Any]
    takes: tuple[str, ...]

    def refusal(self, call: CallInfo) -> str | None:
        """Why it cannot run a call, None if it can."""
        return refuse_others(call, self.takes)

    def writing(self, call: CallInfo, what: str) -> Callable[..., None]:
        """It as a function of the operator's arguments and `out`."""
        function, name = self.function, call.op.name
        places = [call.op.schema.index[argument] for argument in self.takes]
        writes = _takes_out(function)

        def run(*args: Any, out: Any) -> Any:
            taken = [args[i] for i in places]
            if writes:
                return function(*taken, out=out)
            result = function(*taken)
            outs, results = _several(out), _several(result)
            if len(results) != len(outs) or not all(map(_fits, results, outs)):
                problem = f"{what} returned {', '.join(map(_form, results))}"
                raise KernelError(name, problem, ", ".join(map(_form, outs)))
            for each, value in zip(outs, results, strict=True):
                each.copy_(value)
            return None

        return run


def _several(value: Any) -> Sequence[Any]:
    return value if is_sequence(value) else (value,)


def _fits(value: Any, out: Any) -> bool:
    """Whether a result can be copied to `out`: torch's indices are int64, and meta's may be int32."""
    if not _is_tensor(value) or (value.shape, value.device) != (out.shape, out.device):
        return False
    return value.dtype == out.dtype or ("int" in str(value.dtype) and "int" in str(out.dtype))


def _is_tensor(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("dtype", "shape", "device"))


def _form(value: Any) -> str:
    """The dtype, shape and device of a torch tensor; the class of anything else."""
    if not _is_tensor(value):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}"


def _takes_out(function: Callable[..., Any]) -> bool:
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function in C has no signature
        return False
