"""The rows of all families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any

from meta.frontend.torch.aten._row import Row, Rows, runnable

_PACKAGE = "meta.frontend.torch.aten"


@cache
def families() -> Mapping[str, Mapping[str, Row]]:
    """The rows of each family, by the name of its module."""
    names = [name for _, name, _ in iter_modules(import_module(_PACKAGE).__path__) if not name.startswith("_")]
    return MappingProxyType({name: import_module(f"{_PACKAGE}.{name}").ROWS for name in names})


@cache
def rows() -> Mapping[str, Row]:
    """All rows, by ATen's base name."""
    table: Rows = {}
    for family in families().values():
        table.update(family)
    return MappingProxyType(table)


def names() -> list[str]:
    """ATen's names that the table has, sorted."""
    return sorted(rows())


def stays_whole(name: str) -> bool:
    """Whether an operator stays whole where torch decomposes a program: what the table has, but for recurrent layers.
    It has only one kind of overload of these, and torch's own choices of kernels are those that decompose them."""
    return name in rows() and name not in families()["recurrent"]


@cache
def find(name: str, strict: bool = False) -> Callable[..., Any] | None:
    """The function of ATen's arguments for the operator with this base name, None if the table lacks it.

    strict: refuse numbers in place of tensors, as torch's functions of that name do; graphs have them there."""
    row = rows().get(name)
    return None if row is None else runnable(name, row, strict)
