"""Types of Relay programs as types of meta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from meta import dtype as dtypes
from meta.dim import Dim, sym
from meta.frontend.relay import ast
from meta.frontend.relay.errors import UnsupportedError, at
from meta.frontend.relay.values import OpaqueError, Value
from meta.ir.type import TensorType, TupleType, Type, tensor_type
from meta.tracing.symbol import Symbol

Bindings = Mapping[str, "Dim | Type"]
"""What type parameters stand for, by name."""


def dtype_of(name: str, place: ast.Place) -> str:
    """meta's name of a dtype. Raises UnsupportedError for those that it has not."""
    found = {"uint1": "bool"}.get(name, name)
    if found not in dtypes.ALL:
        raise UnsupportedError("relay", at(place, f"the dtype {name}"), f"{', '.join(dtypes.ALL)}")
    return found


def convert_type(kind: ast.Type, place: ast.Place, name: str = "n", bound: Bindings | None = None) -> Type:
    """The type of values that tensors stand for. name: where sizes that are not known get theirs from.

    Raises UnsupportedError for functions, references, data types, and types left open."""
    known = bound or {}
    match kind:
        case ast.TensorType():
            shape = tuple(_dim(d, f"{name}_{i}", known) for i, d in enumerate(kind.shape))
            return tensor_type(shape, dtype_of(kind.dtype, place))
        case ast.TupleType():
            return TupleType(tuple(convert_type(f, place, f"{name}_{i}", known) for i, f in enumerate(kind.fields)))
        case ast.NamedType() if not kind.args and isinstance(known.get(kind.name), (TensorType, TupleType)):
            return known[kind.name]  # type: ignore[return-value]
        case _:
            wrong = at(place, f"'{name}' is {_said(kind)}")
            raise UnsupportedError("relay", wrong, "tensors and tuples of them")


def _dim(size: int | str | None, name: str, bound: Bindings) -> Dim:
    if isinstance(size, int):
        return size
    if size is None:
        return sym("".join(c if c.isalnum() or c == "_" else "_" for c in name))
    found = bound.get(size)
    return sym(size) if found is None or isinstance(found, (TensorType, TupleType)) else found  # type: ignore[return-value]


def _said(kind: ast.Type) -> str:
    match kind:
        case ast.FuncType():
            return "a function"
        case ast.RefType():
            return "a reference"
        case ast.NamedType():
            return f"of the type {kind.name}"
        case _:
            return "of a type that the program leaves to inference"


def value_type(value: Value) -> Type:
    """The type of a tensor or of nested tuples of them. Raises OpaqueError for anything else."""
    if isinstance(value, Symbol):
        return value.type
    if isinstance(value, tuple):
        return TupleType(tuple(map(value_type, value)))  # pyright: ignore[reportUnknownArgumentType]
    raise OpaqueError(value)


def match_types(wanted: ast.Type, given: Type, bound: dict[str, Dim | Type]) -> None:
    """Note in `bound` what the type parameters in `wanted` stand for when an argument has the type `given`."""
    match wanted, given:
        case ast.TensorType(), TensorType():
            for size, actual in zip(wanted.shape, given.shape, strict=False):
                if isinstance(size, str):
                    bound.setdefault(size, actual)
        case ast.TupleType(), TupleType():
            for inner, field in zip(wanted.fields, given.fields, strict=False):
                match_types(inner, field, bound)
        case ast.NamedType(), _ if not wanted.args:
            bound.setdefault(wanted.name, given)
        case _:
            pass


def fits(wanted: ast.Type, given: Type) -> bool:
    """Whether a result has the type that the program says it has, as far as both are known."""
    match wanted, given:
        case ast.TensorType(), TensorType():
            same = all(
                not isinstance(a, int) or not isinstance(b, int) or a == b
                for a, b in zip(wanted.shape, given.shape, strict=False)
            )
            return (
                same
                and len(wanted.shape) == given.ndim
                and {"uint1": "bool"}.get(wanted.dtype, wanted.dtype) == given.dtype
            )
        case ast.TupleType(), TupleType():
            pairs = zip(wanted.fields, given.fields, strict=False)
            return len(wanted.fields) == len(given.fields) and all(fits(a, b) for a, b in pairs)
        case _:
            return True


def constant_value(node: ast.Constant) -> np.ndarray[Any, Any]:
    """The array of a constant, in a dtype that names itself."""
    dtype = dtype_of(node.dtype, node.place)
    if dtype == "bfloat16":
        import ml_dtypes

        words: Any = node.value
        return words.view(ml_dtypes.bfloat16)
    return node.value if str(node.value.dtype) == dtype else node.value.astype(dtype)
