"""Operators that join tensors, or add axes to several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import meta
from meta.frontend.torch.aten._row import Rows, into
from meta.frontend.torch.aten.shape import cat

ROWS: Rows = {}


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """`function` of a tensor, or of every tensor of a list."""
    return tuple(map(function, value)) if isinstance(value, (list, tuple)) else function(value)  # pyright: ignore[reportUnknownArgumentType]


def _one(x: Any) -> Any:
    return x if x.ndim else meta.reshape(x, (1,))


def _two(x: Any) -> Any:
    return x if x.ndim >= 2 else meta.reshape(x, (1, x.shape[0] if x.ndim else 1))


def _three(x: Any) -> Any:
    return meta.expand_dims(_two(x) if x.ndim < 2 else x, -1) if x.ndim < 3 else x


@into(ROWS)
def atleast_1d(tensors: Any) -> Any:
    return _each(_one, tensors)


@into(ROWS)
def atleast_2d(tensors: Any) -> Any:
    return _each(_two, tensors)


@into(ROWS)
def atleast_3d(tensors: Any) -> Any:
    return _each(_three, tensors)


@into(ROWS)
def hstack(tensors: Sequence[Any]) -> Any:
    parts = [_one(x) for x in tensors]
    return cat(parts, 0 if parts and parts[0].ndim == 1 else 1)


@into(ROWS, "vstack", "row_stack")
def vstack(tensors: Sequence[Any]) -> Any:
    return cat([_two(x) for x in tensors], 0)


@into(ROWS)
def dstack(tensors: Sequence[Any]) -> Any:
    return cat([_three(x) for x in tensors], 2)


@into(ROWS)
def column_stack(tensors: Sequence[Any]) -> Any:
    return cat([x if x.ndim > 1 else meta.reshape(x, (-1, 1)) for x in tensors], 1)
