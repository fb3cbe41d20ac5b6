"""Rows of functions that meta and torch have, with inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import meta
from meta.testing.arrays import to_torch
from tests.python.functional.against_torch import compare, floats


@dataclass(frozen=True, slots=True)
class Row:
    """A function of both libraries and its inputs, NumPy arrays.

    constants: how many of the last inputs have no gradient, as labels of classes."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    inputs: Sequence[Any]
    constants: int = 0


def signs(*shape: int) -> Any:
    """1 and -1."""
    return np.sign(floats(*shape)).astype(np.float32)


def classes(count: int, *shape: int) -> Any:
    return np.random.default_rng(count).integers(0, count, shape)


def assert_agrees(row: Row) -> None:
    """Compare values, dtypes and gradients."""
    count = len(row.inputs) - row.constants
    fixed = row.inputs[count:]

    def ours(*xs: Any) -> Any:
        return row.ours(*xs, *map(meta.array, fixed))

    def theirs(*xs: Any) -> Any:
        return row.theirs(*xs, *map(to_torch, fixed))

    compare(ours, theirs, row.inputs[:count])
