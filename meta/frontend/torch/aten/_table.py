"""The look-ups of the table: rows by ATen's base name, and what torch still has to decompose."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Protocol, TypeVar

from meta.frontend.rows import Function
from meta.frontend.torch.aten._row import runnable, table


class Overload(Protocol):
    """An overload of an operator of torch. name: "aten::add.Tensor"."""

    def name(self) -> str: ...


AnyOverload = TypeVar("AnyOverload", bound=Overload)


def rows() -> Mapping[str, Function]:
    """The functions of all rows, by ATen's base name."""
    return {name: row.function for name, row in table.rows().items()}


def names() -> list[str]:
    """ATen's names that the table has, sorted."""
    return table.names()


def stays_whole(name: str) -> bool:
    """Whether an operator stays whole where torch decomposes a program: what the table has, but for recurrent layers.
    It has only one kind of overload of these, and torch's own choices of kernels are those that decompose them."""
    row = table.find(name)
    return row is not None and row.whole


def without_rows(decompositions: Mapping[AnyOverload, Function]) -> dict[AnyOverload, Function]:
    """A table of torch's decompositions without the operators that stay whole, written in place or not."""
    return {
        overload: function
        for overload, function in decompositions.items()
        if not stays_whole(overload.name().partition("::")[2].partition(".")[0].removesuffix("_"))
    }


@cache
def find(name: str, strict: bool = False) -> Function | None:
    """The function of ATen's arguments for the operator with this base name, None if the table lacks it.

    strict: refuse numbers in place of tensors, as torch's functions of that name do; graphs have them there."""
    row = table.find(name)
    return None if row is None else runnable(name, row.function, strict)
