"""Programs written by hand for the tests of the virtual machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import meta
from meta.ir.builder import Builder, Module
from meta.ir.expr import MUTATES
from meta.ir.type import Type, tensor_type
from meta.op.registry import get


class Ops:
    """Emits operator calls by name: `ops.add(x, y)`, other arguments by keyword."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = get(name)
        return lambda *args, **kwargs: self.builder.call(op, op.schema.bind(name, args, kwargs))


def program(
    params: Mapping[str, Type | tuple[Any, ...]],
    body: Callable[..., Any],
    mutates: Mapping[int, int] | None = None,
) -> Module:
    """The Module of `body(ops, *params) -> atom or sequence of atoms`."""
    builder = Builder()
    types = [(n, tensor_type(t) if isinstance(t, tuple) else t) for n, t in params.items()]
    with builder.function("main", types, {MUTATES: dict(mutates)} if mutates else {}) as scope:
        scope.ret(body(Ops(builder), *scope.params))
    return Module({"main": scope.function})


def randoms(*shapes: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> list[Any]:
    """Arrays of normal random numbers."""
    rng = np.random.default_rng(seed)
    return [meta.array(rng.standard_normal(shape).astype("float32"), dtype=dtype) for shape in shapes]


def flat(result: Any) -> list[Any]:
    """The arrays of a result."""
    if isinstance(result, (tuple, list)):
        return [x for item in result for x in flat(item)]
    return [result]


def assert_same(actual: Any, expected: Any, *, rtol: float = 1e-6, atol: float = 1e-6) -> None:
    """Equal types, and values equal up to rounding."""
    result, reference = flat(actual), flat(expected)
    assert len(result) == len(reference)
    for a, b in zip(result, reference, strict=True):
        assert a.type is b.type
        np.testing.assert_allclose(
            a.numpy().astype("float64"), b.numpy().astype("float64"), rtol=rtol, atol=atol, equal_nan=True
        )


def copies(arrays: Sequence[Any]) -> list[Any]:
    return [meta.array(x.numpy()) for x in arrays]
