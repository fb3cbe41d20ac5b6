"""The public function of an operator as text: the eager fast path.

A call looks up a runner by the types of its arguments; everything else happens once, in meta.eager.call.
"""

from __future__ import annotations

from collections.abc import Sequence

from meta.op.codegen.signature import (
    MORE,
    UNKNOWN,
    definition,
    docstring,
    parameter,
    tensor_args,
)
from meta.op.registry import Op, split
from meta.schema._dsl import Arg


def result_type(op: Op, tensor: str) -> str:
    """The annotation of an operator's result."""
    if op.name in VALUE_OPS:
        return VALUE_OPS[op.name]
    if not op.outputs:
        return tensor
    return f"tuple[{tensor}, ...]" if op.outputs == ("*",) else f"tuple[{', '.join([tensor] * len(op.outputs))}]"


VALUE_OPS = {"shape": "tuple[int, ...]"}
"""Operators whose result is a plain value."""


def typed_function(op: Op, differentiable: Sequence[int]) -> str:
    """The function with annotations, defaults and docstring. It reads `_s_<name>`, the state of the operator,
    `_r_<name>`, the runners of its fast path, and `_i_<name>`, the known items of `remembered_items`.
    differentiable: the positions of the arguments with a gradient."""
    tensor = "T" if tensor_args(op) else "NDArray"
    parameters = [parameter(a, tensor) for a in op.schema.args]
    head = definition(op.basename, [*parameters, MORE, UNKNOWN], result_type(op, tensor))
    sized = f"@explained_sizes(_s_{op.name})\n" if _takes_sizes(op) else ""
    return f"{sized}@bound_by_schema\n{head}\n{docstring(op, '    ')}{body(op, differentiable)}"


def _takes_sizes(op: Op) -> bool:
    """Whether a shape comes first, which torch's users write number by number: `ones(4, 8)`."""
    return bool(op.schema.args) and _is_int_tuple(op.schema.args[0])


def bare_function(op: Op, differentiable: Sequence[int]) -> str:
    """A module with the function, and nothing of the operator but its names: the caller adds defaults, annotations and
    docstring, and the operator itself as `_op`. All names that it reads begin with an underscore, arguments may have
    all others."""
    name = op.basename
    state = f"_s_{name}, _i_{name} = _state(_op), _KnownItems()\n_r_{name} = _s_{name}.fast\n"
    parameters = [*op.schema.names, "*_more", "**_unknown"]
    return f"{_IMPORTS}{state}def {name}({', '.join(parameters)}):\n{body(op, differentiable, '_')}"


_IMPORTS = """from marshal import dumps as _dumps
from meta.eager.call import invoke as _invoke, refuse as _refuse, state as _state
from meta.eager.known_items import KnownItems as _KnownItems
from meta.eager.tape import record as _record
from meta.modes import modes as _modes, scopes as _scopes
_getattr, _int, _repr, _tuple, _type = getattr, int, repr, tuple, type
_AttributeError, _Exception, _KeyError, _TypeError = AttributeError, Exception, KeyError, TypeError
"""


def body(op: Op, differentiable: Sequence[int], prefix: str = "") -> str:
    """The body of the function; `prefix` comes before the names that it reads or sets for itself."""
    name, names = op.basename, ", ".join(op.schema.names)
    call = f"{prefix}invoke(_s_{name}{', ' if names else ''}{names})"
    runs = ", ".join(a.name for a in op.schema.args if a.is_tensor)
    given = f"({names}{', ' if names else ''}*{prefix}more)"
    lines = [f"    if {prefix}more or {prefix}unknown:\n        {prefix}refuse(_s_{name}, {given}, {prefix}unknown)\n"]
    if op.name in VALUE_OPS:
        return "".join([*lines, f"    return {call}\n"])
    if op.recorded_as:
        lines.append(
            f'    if {prefix}getattr({runs}, "_node", None) is not None and {prefix}modes.grad_enabled:\n'
            f"        return {prefix}{split(op.recorded_as)[1]}({names})[0]\n"
        )
    items = remembered_items(op)
    if not items:
        lines += [_wrap_int(arg, prefix) for arg in op.schema.args if _is_int_tuple(arg)]
    # The truth and the bytes of an unsuitable attribute may raise anything.
    plain = all(arg.type.key in ("value", "class") for arg in op.schema.args)
    errors = ", ".join(f"{prefix}{error}" for error in ("KeyError", "AttributeError", "TypeError"))
    lines.append(
        f"    try:\n{_known_items(op, items, prefix)}        {prefix}run = _r_{name}[{_key(op, prefix)}]\n"
        f"    except {f'({errors})' if plain else f'{prefix}Exception'}:\n        {prefix}run = None\n"
        f"    if {prefix}run is None or {prefix}scopes.active:\n        return {call}\n"
    )
    if not differentiable or op.recorded_as:
        return "".join([*lines, f"    return {prefix}run({runs})\n"])
    lines.append(f"    _y = {prefix}run({runs})\n")  # operators have arguments called y
    tracked = " or ".join(_tracked(op.schema.args[i]) for i in differentiable)
    recorded = f'{prefix}record("{op.name}", _y, ({names}{"," if len(op.schema.names) == 1 else ""}))'
    lines.append(f"    if {tracked}:\n        return {recorded}\n    return _y\n")
    return "".join(lines)


def remembered_items(op: Op) -> list[str]:
    """The names of the tuples of ints whose parts of the cache key are remembered: all of an operator on windows, such
    as a convolution. At least two have defaults, so that most calls pass the same objects as calls before."""
    args = [arg for arg in op.schema.args if _is_int_tuple(arg)]
    return [arg.name for arg in args] if sum(not arg.required for arg in args) >= 2 else []


def _is_int_tuple(arg: Arg) -> bool:
    return arg.type.name.startswith("IntTuple")


def _known_items(op: Op, names: Sequence[str], prefix: str) -> str:
    """Looks up the items: sets `names` to their normal form, and `_k0`, `_k1`, ... to their parts of the cache key.

    Objects other than the entry's are compared by their bytes, so that equal tuples share it."""
    if not names:
        return ""
    objects, raw = ", ".join(f"_k{i}" for i in range(len(names))), ", ".join(names)
    differ = " or ".join(
        f"({name} is not _k{i} and {prefix}dumps({name}, 2) != {prefix}dumps(_k{i}, 2))" for i, name in enumerate(names)
    )
    return (
        f"        {objects}, _known = _i_{op.basename}[{raw}]\n"
        f"        if {differ}:\n            _known = _i_{op.basename}.renew(({raw}))\n"
        f"        {raw}, {objects} = _known\n"
    )


def _wrap_int(arg: Arg, prefix: str) -> str:
    """Converts an int to a tuple, the normal form that the fast path uses as a cache key."""
    return f"    if {prefix}type({arg.name}) is {prefix}int:\n        {arg.name} = ({arg.name},)\n"


def _key(op: Op, prefix: str) -> str:
    """The cache key; meta.eager.call.fast_key computes the same from normalised arguments."""
    remembered = {name: [f"_k{i}"] for i, name in enumerate(remembered_items(op))}
    parts = [part for arg in op.schema.args for part in remembered.get(arg.name) or _key_parts(arg, prefix)]
    return ", ".join(parts) if parts else "()"


_ATTRIBUTE_KEYS = {
    "value": ["{0}"],
    "class": ["{0}", "{0}.__class__"],
    "float": ["{0} or {1}repr({0})", "{0}.__class__"],
    "items": ["{1}dumps({0}, 2)"],
}
"""Parts of cache keys by ArgType.key: -0.0 equals 0.0, and (True,) equals (1,)."""


def _key_parts(arg: Arg, prefix: str) -> list[str]:
    if arg.type.role == "tensors":
        return [f"{prefix}tuple([t._type for t in {arg.name}])"]
    if arg.is_tensor:
        typed = f"{arg.name}._type"
        return [f"None if {arg.name} is None else {typed}" if arg.type.optional else typed]
    return [part.format(arg.name, prefix) for part in _ATTRIBUTE_KEYS[arg.type.key]]


def _tracked(arg: Arg) -> str:
    if arg.type.role == "tensors":
        return f"[t for t in {arg.name} if t._node is not None]"
    if arg.type.optional:
        return f"({arg.name} is not None and {arg.name}._node is not None)"
    return f"{arg.name}._node is not None"
