"""Types of Relay programs as types of meta."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from meta import dtype as dtypes
from meta.dim import Dim, is_name, sym
from meta.errors import TypeInferenceError
from meta.frontend.relay import ast
from meta.frontend.relay.convert.values import OpaqueError, Value, identifier
from meta.frontend.relay.errors import RelayError, UnsupportedError, located
from meta.ir.type import TensorType, TupleType, Type, tensor_type
from meta.tracing.symbol import Symbol
from meta.tree import is_tuple

Bindings = Mapping[str, "Dim | Type"]
"""Sizes and types of type parameters, by name."""


def dtype_of(name: str, place: ast.Place) -> str:
    """meta's name of a dtype. Raises UnsupportedError for dtypes that meta lacks."""
    dtype = _renamed(name)
    if dtype not in dtypes.ALL:
        raise UnsupportedError("relay", located(place, f"the dtype {name}"), f"one of {', '.join(dtypes.ALL)}")
    return dtype


def _renamed(dtype: str) -> str:
    return "bool" if dtype == "uint1" else dtype


def convert_type(kind: ast.Type, place: ast.Place, name: str = "n", bound: Bindings | None = None) -> Type:
    """The type of a tensor or of nested tuples of tensors. name: prefix of the names of open sizes.

    Raises UnsupportedError for functions, references, data types, and types left to inference."""
    bound = bound or {}
    match kind:
        case ast.TensorType():
            shape = tuple(_dim(d, f"{name}_{i}", bound) for i, d in enumerate(kind.shape))
            try:
                return tensor_type(shape, dtype_of(kind.dtype, place))
            except TypeInferenceError as error:
                raise RelayError("relay", located(place, f"'{name}': {error.problem}"), error.expected) from None
        case ast.TupleType():
            return TupleType(tuple(convert_type(f, place, f"{name}_{i}", bound) for i, f in enumerate(kind.fields)))
        case ast.NamedType() if not kind.args and isinstance(bound.get(kind.name), (TensorType, TupleType)):
            return bound[kind.name]  # type: ignore[return-value]
        case _:
            problem = located(place, f"'{name}' is {_description(kind)}")
            raise UnsupportedError("relay", problem, "tensors and tuples of them")


def _dim(size: int | str | None, name: str, bound: Bindings) -> Dim:
    if isinstance(size, int):
        return size
    if size is None:
        return sym(size_name("".join(c if c.isalnum() or c == "_" else "_" for c in name)))
    dim = bound.get(size)
    if dim is None or isinstance(dim, (TensorType, TupleType)):
        return sym(size_name(size))
    return dim  # type: ignore[return-value]


def size_name(name: str) -> str:
    """The name of a size: the program's name, or one that IR text can hold, distinct for distinct names."""
    if is_name(name):
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{identifier(name)[:64]}_{digest}"


def _description(kind: ast.Type) -> str:
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
    if is_tuple(value):
        return TupleType(tuple(map(value_type, value)))
    raise OpaqueError(value)


def match_types(declared: ast.Type, actual: Type, bound: dict[str, Dim | Type]) -> None:
    """Bind the type parameters in a declared type so that it is the type of an argument."""
    match declared, actual:
        case ast.TensorType(), TensorType():
            for size, dim in zip(declared.shape, actual.shape, strict=False):
                if isinstance(size, str):
                    bound.setdefault(size, dim)
        case ast.TupleType(), TupleType():
            for declared_field, field in zip(declared.fields, actual.fields, strict=False):
                match_types(declared_field, field, bound)
        case ast.NamedType(), _ if not declared.args:
            bound.setdefault(declared.name, actual)
        case _:
            pass


def fits(declared: ast.Type, actual: Type) -> bool:
    """Whether a type agrees with a declared one; open sizes and types left to inference agree with any."""
    match declared, actual:
        case ast.TensorType(), TensorType():
            sizes = zip(declared.shape, actual.shape, strict=False)
            same_sizes = all(a == b for a, b in sizes if isinstance(a, int) and isinstance(b, int))
            return same_sizes and len(declared.shape) == actual.ndim and _renamed(declared.dtype) == actual.dtype
        case ast.TupleType(), TupleType():
            pairs = zip(declared.fields, actual.fields, strict=False)
            return len(declared.fields) == len(actual.fields) and all(fits(a, b) for a, b in pairs)
        case _:
            return True


def constant_value(node: ast.Constant) -> np.ndarray[Any, Any]:
    """The array of a constant, in NumPy's dtype for it (bfloat16: the one from `ml_dtypes`)."""
    dtype = dtype_of(node.dtype, node.place)
    if dtype == "bfloat16":
        import ml_dtypes

        words: Any = node.value
        return words.view(ml_dtypes.bfloat16)
    return node.value if str(node.value.dtype) == dtype else node.value.astype(dtype)
