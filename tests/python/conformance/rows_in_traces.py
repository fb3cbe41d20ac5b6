"""Rows of the ATen table as graphs call them: on symbols of a trace, run by the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import meta
from meta.interpreter.run import run as interpret
from meta.ir.type import TensorType
from tests.python.conformance.adapter import ADAPTER
from tests.python.conformance.compare import GRADIENT, differences


def traced(function: Callable[..., Any], arrays: Sequence[meta.NDArray], types: Sequence[TensorType] = ()) -> list[Any]:
    """The flat results of a function of arrays: tensors of its program, run operator by operator, and plain values.

    types: of the program's inputs, in place of those of the arrays."""
    kinds: list[bool] = []
    plain: list[Any] = []

    @meta.trace
    def program(*xs: Any) -> list[Any]:
        flat = tree_flatten(function(*xs))[0]
        kinds[:] = [hasattr(y, "dtype") for y in flat]
        plain[:] = [y for y, is_tensor in zip(flat, kinds, strict=True) if not is_tensor]
        return [y for y, is_tensor in zip(flat, kinds, strict=True) if is_tensor]

    record = program.record(*(types or arrays))
    keys = [meta.array([0, 0], dtype="int64") for _ in record.random]
    results = interpret(record.module, *arrays, *(array for _, array in record.state), *keys)
    tensors, rest = iter(results if isinstance(results, (tuple, list)) else [results]), iter(plain)
    return [next(tensors) if is_tensor else next(rest) for is_tensor in kinds]


def problem(row: Callable[..., Any], args: Any, kwargs: Any, expected: Any, values: bool = True) -> str:
    """How the results of a row in a trace differ from torch's; "" if they do not.

    args, kwargs: torch's, whose tensors are the program's inputs.  values: False to compare only shapes and dtypes."""
    flat, tree = tree_flatten((args, kwargs))
    places = [i for i, value in enumerate(flat) if isinstance(value, torch.Tensor)]

    def call(*xs: Any) -> Any:
        whole = list(flat)
        for i, x in zip(places, xs, strict=True):
            whole[i] = x
        args, kwargs = tree_unflatten(whole, tree)
        return row(*args, **kwargs)

    results = traced(call, [ADAPTER.from_torch(flat[i], False) for i in places])
    ours = [ADAPTER.to_torch(y) if isinstance(y, meta.NDArray) else y for y in results]
    theirs = tree_flatten(expected)[0]
    if not values:
        ours, theirs = (
            [torch.zeros_like(y) if isinstance(y, torch.Tensor) else y for y in ys] for ys in (ours, theirs)
        )
    return differences(ours, theirs, torch.float32, GRADIENT)
