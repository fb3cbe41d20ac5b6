"""Functions of TVM as bytes, for another process that runs the same version of TVM.

TVM's own JSON of expressions crashes in 0.27. The fields of every node are those that TVM's reflection lists; spans are
left out.
"""

from __future__ import annotations

import marshal
from functools import cache
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.te import exact, math, philox, select

_PLAIN: Final = (bool, int, float, type(None))
_ARRAY, _MAP, _OPERATOR, _TARGET = "array", "map", "operator", "target"


class UntransferableError(TypeError):
    """A function has a part that cannot be written as bytes."""


def to_bytes(function: Any) -> bytes:
    """The nodes of a function, each after those that it refers to, and its structural hash.

    Raises:
        UntransferableError: it contains something other than nodes, numbers and strings, such as the data of constants.
    """
    nodes: list[tuple[str, Any]] = []
    numbers: dict[Any, int] = {}
    parts: dict[Any, tuple[str, Any, list[Any]]] = {}
    pending: list[tuple[Any, Any]] = [(function, _identity(function))]
    while pending:  # no recursion: sums may nest deeper than Python's limit
        node, identity = pending[-1]
        if identity in numbers:
            pending.pop()
            continue
        if identity not in parts:
            parts[identity] = _parts(node)
            fields = ((x, _identity(x)) for x in parts[identity][2] if _is_node(x))
            missing = [(x, key) for x, key in fields if key not in numbers]
            if missing:
                pending += missing
                continue
        kind, names, values = parts.pop(identity)
        written = [(numbers[_identity(x)],) if _is_node(x) else _plain(x) for x in values]
        numbers[identity] = len(nodes)
        nodes.append((kind, (names, written)))
        pending.pop()
    return marshal.dumps((nodes, tvm.structural_hash(function)))


def from_bytes(data: bytes) -> Any:
    """The function that `to_bytes` wrote.

    Raises:
        UntransferableError: it differs from what was written.
    """
    _register_operators()
    nodes, expected = marshal.loads(data)
    objects: list[Any] = []
    for kind, (names, written) in nodes:
        objects.append(_make(kind, names, [objects[x[0]] if isinstance(x, tuple) else x for x in written]))
    if tvm.structural_hash(objects[-1]) != expected:
        raise UntransferableError("a function changes when it is read")
    return objects[-1]


def _is_node(value: Any) -> bool:
    return not isinstance(value, (*_PLAIN, str))


def _identity(node: Any) -> Any:
    return node.__chandle__()


def _plain(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else str(value)  # a dtype is a string with attributes


def _parts(node: Any) -> tuple[str, Any, list[Any]]:
    """The kind of a node, the names of its fields and their values."""
    if isinstance(node, tvm.ffi.Array):
        return _ARRAY, None, list(node)
    if isinstance(node, tvm.ffi.Map):
        return _MAP, None, [x for item in node.items() for x in item]
    if isinstance(node, tvm.Op):
        return _OPERATOR, None, [node.name]
    if isinstance(node, tvm.Target):
        return _TARGET, None, [str(tvm.save_json(node))]
    kind, names, getters = _fields(type(node))
    return kind, names, [get(node) for get in getters]


@cache
def _fields(python_type: Any) -> tuple[str, list[str], list[Any]]:
    """The key of a type of nodes, the names of its fields, and functions that read them."""
    info = getattr(python_type, "__tvm_ffi_type_info__", None)
    if info is None or info.type_key.startswith("ffi."):
        raise UntransferableError(f"a function contains {python_type.__name__}")
    key, fields = str(info.type_key), list[Any]()
    while info is not None:
        fields += info.fields
        info = info.parent_type_info
    getters = [_no_span if f.name == "span" else f.getter for f in fields]
    return key, [str(f.name) for f in fields], getters


def _no_span(_: Any) -> None:
    return None


def _make(kind: str, names: list[str] | None, values: list[Any]) -> Any:
    if kind == _ARRAY:
        return tvm.ffi.convert(values)
    if kind == _MAP:
        return tvm.ffi.convert(dict(zip(values[::2], values[1::2], strict=True)))
    if kind == _OPERATOR:
        return tvm.Op.get(values[0])
    if kind == _TARGET:
        return tvm.load_json(values[0])
    assert names is not None
    fields = [x for pair in zip(names, values, strict=True) for x in pair]
    return tvm.make_object(_type_index(kind), *fields)


@cache
def _type_index(key: str) -> int:
    return tvm.type_index(key)


@cache
def _register_operators() -> None:
    """Register all operators of meta with TVM, which functions refer to by name."""
    for module in (exact, math, philox, select):
        module.register_operators()
