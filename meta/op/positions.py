"""Tensors of positions: the values that an operator accepts in them, and the error for others.

A declaration states them as its fact `positions`. Eager calls on the CPU refuse others. Elsewhere, in compiled programs
and on GPUs, reads at other positions are NaN (integers: the lowest value, bool: False), and nothing is written there;
with META_CHECK=1 in the environment they are refused there as well, at the cost of a copy of the positions to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from meta.dtype import is_complex
from meta.errors import PositionError
from meta.modes import checks_always as checks_always
from meta.modes import modes
from meta.records import record

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo
    from meta.ir.type import TensorType


@record
class Positions:
    """The accepted values of one tensor of positions.

    argument: its place in the schema.
    sizes: the size of the axis that they index, which values lie below. Several sizes are those for the slices of the
        tensor along its first axis.
    from_end: whether values from -size count from the end.
    ignored: a value that is accepted besides, None without one.
    first: the value of the first position.
    """

    argument: int
    sizes: tuple[Any, ...]
    from_end: bool = False
    ignored: int | None = None
    first: int = 0


Rule = Callable[..., Positions | None]
"""`rule(*arguments in schema order, out)`: tensors, and `out`, the first result, by anything with a shape; None where
every value is accepted."""


def is_checked(call: CallInfo) -> bool:
    """Whether some tensor of a call holds positions."""
    rule = call.op.positions
    return rule is not None and rule(*call.args, out=call.outputs()[0]) is not None


def checked(kernel: Callable[..., Any], payload: object, call: CallInfo) -> Callable[..., Any]:
    """`kernel` of a call, with PositionError for positions out of range where they are refused: on the CPU, and with
    META_CHECK=1. TVM's kernels for the CPU find them themselves, so a call costs no further pass.

    payload: of the implementation that made the kernel."""
    from meta.backend.tvm.compute import TEImplementation

    if not is_checked(call) or (call.device.kind != "cpu" and not checks_always()):
        return kernel
    refuse = _refusal(call)
    if not isinstance(payload, TEImplementation) or call.device.kind != "cpu":

        def check_first(*tensors: object) -> None:
            if not modes.skips_positions:
                refuse(tensors)
            kernel(*tensors)

        return check_first
    if len(call.tensors()) == 2:

        def run_binary(x1: object, x2: object, out: object) -> None:
            try:
                kernel(x1, x2, out)
            except IndexError:
                refuse((x1, x2, out))
                raise

        return run_binary

    def run(*tensors: object) -> None:
        try:
            kernel(*tensors)
        except IndexError:
            refuse(tensors)
            raise

    return run


def _refusal(call: CallInfo) -> Callable[[Sequence[Any]], None]:
    """`refuse(raw inputs and outputs)`: PositionError for a position out of range."""
    from meta.backend.memory.numpy_arrays import to_numpy
    from meta.ir.type import TensorType, flat_types
    from meta.tree import leaves_of, with_leaves

    rule: Rule = call.op.positions

    def refuse(tensors: Sequence[Any]) -> None:
        inputs = iter(tensors)
        leaves = [_sized(next(inputs), t) if isinstance(t, TensorType) else t for t in leaves_of(call.args)]
        accepted = rule(*with_leaves(call.args, leaves), out=_sized(next(inputs), call.outputs()[0]))
        assert accepted is not None
        data = tensors[len(flat_types(call.args[: accepted.argument]))]
        values = to_numpy(data, str(data.dtype), tuple(map(int, data.shape)), call.device)
        require_in_range(call.op.name, call.op.schema.names[accepted.argument], accepted, values)

    return refuse


def _sized(raw: Any, kind: TensorType) -> Any:
    """An object with the shape of a tensor: raw memory of complex numbers has an axis more, for their parts."""
    return SimpleNamespace(shape=raw.shape[:-1]) if is_complex(kind.dtype) else raw


def require_in_range(subject: str, name: str, accepted: Positions, values: Any) -> None:
    """Raise PositionError, with the first value out of range, unless an array has accepted values only."""
    import numpy as np

    several = len(accepted.sizes) > 1
    for n, size in enumerate(map(int, accepted.sizes)):
        part = values[n] if several else values
        low, last = -size if accepted.from_end else accepted.first, accepted.first + size - 1
        wrong = (part < low) | (part > last)
        if accepted.ignored is not None:
            wrong &= part != accepted.ignored
        if not wrong.any():
            continue
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        index = (n, *place) if several else place
        shown = f"{name}[{', '.join(map(str, index))}]" if index else name
        allowed = f"{low} to {last}" if size else "no positions, as the axis is empty"
        ignored = "" if accepted.ignored is None else f", or {accepted.ignored}, which is ignored"
        raise PositionError(
            subject,
            f"{shown} is {part[place]}, out of range for size {size}",
            f"{allowed}{ignored}",
            f"meta.clip({name}, {accepted.first}, {last}) moves positions inside" if size and not ignored else "",
        )
