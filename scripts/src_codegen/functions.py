"""meta/_generated/functions.py: the typed public functions, which are also the eager fast path."""

from __future__ import annotations

from collections.abc import Sequence

from meta.op.registry import Op
from meta.schema._dsl import Arg
from scripts.src_codegen.signature import by_family, definition, docstring, header, parameter, tensor_args

_IMPORTS = """
# A call looks up a runner by the types of its arguments; everything else happens once, in meta.eager.call.
# ruff: noqa: A001, A002, E501
# A number among the operands has no type to look up: the AttributeError sends the call the general way.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportInvalidTypeVarUse=false

from __future__ import annotations

from collections.abc import Sequence
from marshal import dumps
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from meta._generated.methods import TensorMethods
from meta.eager.tape import record
from meta.eager.call import invoke, state
from meta.op.registry import get
from meta.modes import modes, scopes

if TYPE_CHECKING:
    from meta.device import Device
    from meta.dim import Dim
    from meta.eager.ndarray import NDArray

    DeviceLike = Device | str
    DTypeLike = Any

T = TypeVar("T", bound=TensorMethods)
"""


_NO_KEY = "(KeyError, AttributeError, TypeError)"
"""What plain keys raise; the truth and the bytes of an unsuitable attribute may raise anything."""


def render(ops: Sequence[Op]) -> str:
    from scripts.src_codegen.gradients import differentiable_positions

    parts = [header("The public operators, eager and traced."), _IMPORTS]
    for family, group in by_family(ops).items():
        parts.append(f"\n# --- {family} " + "-" * (113 - len(family)) + "\n")
        for op in group:
            parts.append(_function(op, differentiable_positions(op)))
            parts.extend(f"\n{alias} = {op.name}\n" for alias in op.aliases)
    return "".join(parts)


def result_type(op: Op, tensor: str) -> str:
    """The annotation of an operator's result."""
    if op.name in VALUE_OPS:
        return VALUE_OPS[op.name]
    if not op.outputs:
        return tensor
    return f"tuple[{tensor}, ...]" if op.outputs == ("*",) else f"tuple[{', '.join([tensor] * len(op.outputs))}]"


VALUE_OPS = {"shape": "tuple[int, ...]"}
"""Operators whose result is a plain value."""


def _function(op: Op, differentiable: Sequence[int]) -> str:
    tensor = "T" if tensor_args(op) else "NDArray"
    head = definition(op.name, [parameter(a, tensor) for a in op.schema.args], result_type(op, tensor))
    names = ", ".join(op.schema.names)
    call = f"invoke(_s_{op.name}{', ' if names else ''}{names})"
    state = f'\n_s_{op.name} = state(get("{op.name}"))\n_r_{op.name} = _s_{op.name}.fast\n\n\n'
    lines = [state, head + "\n", docstring(op, "    ")]
    if op.name in VALUE_OPS:
        return "".join([*lines, f"    return {call}\n\n"])
    runs = ", ".join(a.name for a in op.schema.args if a.is_tensor)
    lines.extend(_wrap_int(arg) for arg in op.schema.args if arg.type.name.startswith("IntTuple"))
    if op.recorded_as:
        lines.append(
            f'    if getattr({runs}, "_node", None) is not None and modes.grad_enabled:\n'
            f"        return {op.recorded_as}({names})[0]\n"
        )
    plain = all(arg.type.key in ("value", "class") for arg in op.schema.args)
    lines.append(
        f"    try:\n        run = _r_{op.name}[{_key(op)}]\n"
        f"    except {_NO_KEY if plain else 'Exception'}:\n        run = None\n"
        f"    if run is None or scopes.active:\n        return {call}\n"
    )
    if not differentiable or op.recorded_as:
        return "".join([*lines, f"    return run({runs})\n\n"])
    lines.append(f"    _y = run({runs})\n")  # operators have arguments called y
    tracked = " or ".join(_tracked(op.schema.args[i]) for i in differentiable)
    comma = "," if len(op.schema.names) == 1 else ""
    lines.append(f'    if {tracked}:\n        return record("{op.name}", _y, ({names}{comma}))\n    return _y\n\n')
    return "".join(lines)


def _wrap_int(arg: Arg) -> str:
    """Converts an int to a tuple, the normal form that the fast path uses as a cache key."""
    return f"    if type({arg.name}) is int:\n        {arg.name} = ({arg.name},)\n"


def _key(op: Op) -> str:
    """The cache key; meta.eager.call.fast_key computes the same from normalised arguments."""
    parts = [part for arg in op.schema.args for part in _key_parts(arg)]
    return ", ".join(parts) if parts else "()"


_ATTRIBUTE_KEYS = {
    "value": ["{0}"],
    "class": ["{0}", "{0}.__class__"],
    "float": ["{0} or repr({0})", "{0}.__class__"],
    "items": ["dumps({0}, 2)"],
}
"""Parts of cache keys by ArgType.key: -0.0 equals 0.0, and (True,) equals (1,)."""


def _key_parts(arg: Arg) -> list[str]:
    if arg.type.role == "tensors":
        return [f"tuple([t._type for t in {arg.name}])"]
    if arg.is_tensor:
        typed = f"{arg.name}._type"
        return [f"None if {arg.name} is None else {typed}" if arg.type.optional else typed]
    return [part.format(arg.name) for part in _ATTRIBUTE_KEYS[arg.type.key]]


def _tracked(arg: Arg) -> str:
    if arg.type.role == "tensors":
        return f"[t for t in {arg.name} if t._node is not None]"
    if arg.type.optional:
        return f"({arg.name} is not None and {arg.name}._node is not None)"
    return f"{arg.name}._node is not None"
