"""Functions of TVM as bytes, for another process that runs the same version of TVM.

TVM's own JSON of expressions crashes in 0.27. The fields of every node are those that TVM's reflection lists; spans are
left out.
"""

from __future__ import annotations

import marshal
from functools import cache
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import intrinsic
from meta.backend.tvm.te import dots, math, philox
from meta.backend.tvm.workarounds import exact, select

_PLAIN: Final = (bool, int, float, type(None))
_ARRAY, _MAP, _OPERATOR, _TARGET = "array", "map", "operator", "target"


class UntransferableError(TypeError):
    """A function has a part that cannot be written as bytes."""


def to_bytes(function: tvm.PrimFunc) -> bytes:
    """The nodes of a function, each after those that it refers to, and its structural hash.

    Raises:
        UntransferableError: it contains something other than nodes, numbers and strings, such as the data of constants.
    """
    nodes: list[tuple[str, Any]] = []
    numbers: dict[int, int] = {}
    parts: dict[int, tuple[str, Any, list[Any], list[int | None]]] = {}
    pending: list[tuple[Any, Any]] = [(function, function.__chandle__())]
    while pending:  # no recursion: sums may nest deeper than Python's limit
        node, address = pending[-1]
        if address in numbers:
            pending.pop()
            continue
        part = parts.pop(address, None)
        if part is None:
            kind, names, values = _parts(node)
            addresses = [x.__chandle__() if _is_node(type(x)) else None for x in values]
            missing = [(x, a) for x, a in zip(values, addresses, strict=True) if a is not None and a not in numbers]
            if missing:
                parts[address] = kind, names, values, addresses
                pending += missing
                continue
        else:
            kind, names, values, addresses = part
        written = [_plain(x) if a is None else (numbers[a],) for x, a in zip(values, addresses, strict=True)]
        numbers[address] = len(nodes)
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


@cache
def _is_node(kind: type) -> bool:
    return not issubclass(kind, (*_PLAIN, str))


def _plain(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else str(value)  # a dtype is a string with attributes


def _parts(node: Any) -> tuple[str, Any, list[Any]]:
    """The kind of a node, the names of its fields and their values."""
    kind = _container(type(node))
    if kind == _ARRAY:
        get = tvm.array_item
        return _ARRAY, None, [get(node, i) for i in range(len(node))]
    if kind == _MAP:
        return _MAP, None, [x for item in node.items() for x in item]
    if kind == _OPERATOR:
        return _OPERATOR, None, [node.name]
    if kind == _TARGET:
        return _TARGET, None, [str(tvm.save_json(node))]
    kind, names, getters = _fields(type(node))
    return kind, names, [get(node) for get in getters]


@cache
def _container(kind: type) -> str:
    """How nodes of a type are written, "" for their fields."""
    kinds = {tvm.ffi.Array: _ARRAY, tvm.ffi.Map: _MAP, tvm.Op: _OPERATOR, tvm.Target: _TARGET}
    return next((name for each, name in kinds.items() if issubclass(kind, each)), "")


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
    for module in (dots, exact, intrinsic, math, philox, select):
        module.register_operators()
