"""Long random programs that move, cast, combine and overwrite tensors: interpreter and virtual machine agree with eager
calls bit by bit, results of earlier calls keep their values, and overwritten inputs get the new ones.

All operators here are exact, so that fusion and the order of kernels change nothing. Most programs call kernels of
torch, which need no compilation; their memory is planned like that of all programs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np

import meta
from meta.errors import DispatchError
from meta.interpreter.run import run
from meta.op.dispatch import with_dialect
from meta.testing.call import flat_results
from tests.python.vm.test_special_values import assert_same

_SHAPES = ((), (1,), (6,), (2, 3), (3, 4), (2, 3, 4), (1, 5, 3), (2, 1, 3, 2), (0, 3))
_DTYPES = ("float32", "float32", "int32", "int64", "float64", "bool", "float16")
_LARGEST = 4000
"""Elements of a tensor, at most."""
_CALLS = 3


def case(seed: int, index: int) -> str:
    """One program, called several times."""
    rng = random.Random(f"mixed/{seed}/{index}")
    moves = rng.random() < 0.3  # a short program of movements only, whose kernels nest repetitions
    length = rng.randrange(2, 9) if moves else rng.randrange(20, 60)
    dialects = ("tvm",) if moves or rng.random() < 0.1 else ("torch", "reference", "tvm")
    body = _Body(rng.random(), length, moves, overwrites=rng.random() < 0.4 and not moves)
    kinds = [(rng.choice(_SHAPES), rng.choice(_DTYPES)) for _ in range(3)]
    calls = [[_values(rng, shape, dtype) for shape, dtype in kinds] for _ in range(_CALLS)]
    try:
        with with_dialect(dialects):
            return _problem(body, calls, rng)
    except DispatchError:
        return ""


def _values(rng: random.Random, shape: tuple[int, ...], dtype: str) -> Any:
    numbers = np.random.default_rng(rng.randrange(2**32)).integers(-9, 9, shape)
    return np.asarray(numbers != 0 if dtype == "bool" else numbers).astype(dtype)


def _problem(body: _Body, calls: Sequence[Sequence[Any]], rng: random.Random) -> str:
    expected = [_call(body.run, values) for values in calls]
    traced = meta.trace(body.run)
    inputs = [meta.array(x) for x in calls[0]]
    count = len(expected[0][0])
    assert_same(flat_results(run(traced.record(*inputs).module, *inputs))[:count], expected[0][0], "interpreter")
    executor = meta.vm.compile(traced, fuse=rng.random() < 0.8)
    if rng.random() < 0.1:
        executor(*inputs)
        with ThreadPoolExecutor(2) as pool:
            kept = list(pool.map(lambda values: _call(executor, values), calls))
    else:
        kept = [_call(executor, values) for values in calls]
    for (results, written), (reference, wanted_written) in zip(kept, expected, strict=True):  # old results are alive
        assert_same(results, reference, "machine")
        assert_same(written, wanted_written, "inputs of the machine")
    if not body.overwrites and rng.random() < 0.3:
        same = [meta.array(calls[0][0])] * 3
        assert_same(meta.vm.compile(meta.trace(body.run))(*same), body.run(*same), "machine, one array three times")
    return ""


def _call(function: Callable[..., Any], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The results, and the inputs after the call."""
    inputs = [meta.array(x) for x in values]
    return flat_results(function(*inputs)), inputs


class _Body:
    """A function of three arrays, drawn anew from `seed` by each call."""

    def __init__(self, seed: float, length: int, moves: bool, overwrites: bool) -> None:
        self.seed, self.length, self.moves, self.overwrites = seed, length, moves, overwrites

    def run(self, x: Any, y: Any, z: Any) -> list[Any]:
        rng = random.Random(self.seed)
        values = [x.copy(), y, z] if self.overwrites else [x, y, z]
        for _ in range(self.length):
            if self.overwrites and rng.random() < 0.1:
                fitting = [v for v in values if v.shape == x.shape]
                _overwrite(rng, x, rng.choice(fitting))
                values.append(x.copy())
                continue
            value = rng.choice(values[-8:])
            draw = rng.random()
            if self.moves or draw < 0.5:
                values.append(_moved(rng, value, values))
            elif draw < 0.55:
                values.append(_branched(rng, value))
            else:
                values.append(_combined(rng, value, values))
        return rng.sample(values[3:], min(len(values) - 3, rng.randrange(1, 6))) + values[-1:]


def _overwrite(rng: random.Random, x: Any, value: Any) -> None:
    value = meta.cast(value, x.dtype)
    if x.ndim and x.shape[0] and rng.random() < 0.5:
        i = rng.randrange(x.shape[0])
        x[i] = value[x.shape[0] - 1 - i]
    elif x.dtype == "bool":
        x |= value
    else:
        x *= meta.clip(value, -1, 1)


def _branched(rng: random.Random, value: Any) -> Any:
    if not prod(value.shape):
        return value
    predicate = meta.max(value.cast("int32")) > rng.randrange(9)
    return meta.cond(predicate, lambda v: meta.maximum(v, meta.flip(v, 0) if v.ndim else v), meta.copy, value)


def _combined(rng: random.Random, value: Any, values: Sequence[Any]) -> Any:
    """A value computed element by element, or reduced exactly."""
    other = rng.choice([v for v in values if v.shape == value.shape and v.dtype == value.dtype] or [value])
    choices: list[Callable[[], Any]] = [
        lambda: meta.maximum(value, other),
        lambda: meta.minimum(value, meta.flip(other, 0) if other.ndim else other),
        lambda: meta.where(value > other, value, other),
        lambda: meta.not_equal(value, other),
        lambda: value.cast(rng.choice(("int32", "float32", "int64", "float64", "bool"))),
    ]
    if value.dtype != "bool":
        choices += [
            lambda: meta.clip(value + other, -999, 999),
            lambda: meta.clip(value - other, -999, 999),
            lambda: meta.clip(value, -30, 30) * meta.clip(other, -30, 30),
            lambda: meta.negative(value),
            lambda: meta.abs(value),
        ]
    if value.ndim and prod(value.shape):
        axis = rng.randrange(value.ndim)
        choices += [
            lambda: meta.max(value, axis=axis, keepdims=rng.random() < 0.5),
            lambda: meta.argmax(value.cast("int32"), axis=axis),
            lambda: meta.sum(value.cast("int64"), axis=axis),
            lambda: meta.sort(value.cast("int32"), axis=axis),
        ]
    return rng.choice(choices)()


def _moved(rng: random.Random, value: Any, values: Sequence[Any]) -> Any:
    """A value with elements in other places."""
    shape, size = value.shape, prod(value.shape)
    if not value.ndim:
        return meta.broadcast_to(value, (rng.randrange(1, 4), rng.randrange(1, 4)))
    axis = rng.randrange(value.ndim)
    length = shape[axis]
    choices: list[Callable[[], Any]] = [
        lambda: meta.transpose(value, rng.sample(range(value.ndim), value.ndim)),
        lambda: meta.flip(value, axis),
        lambda: meta.roll(value, rng.randrange(-3, 4), axis),
        lambda: meta.reshape(value, (size,)).copy(),
        lambda: _regrouped(rng, value),
        lambda: meta.concatenate([value, meta.flip(value, axis)], axis) if size < _LARGEST else value,
    ]
    if 0 < size < _LARGEST // 4:
        choices += [
            lambda: meta.tile(value, [rng.choice((1, 2, 3)) if size < 100 else 1 for _ in shape]),
            lambda: meta.repeat(value, rng.choice((2, 3, 5)), axis),
            lambda: meta.pad(value, [(rng.randrange(3), rng.randrange(3)) for _ in shape]),
            lambda: meta.stack([value, meta.flip(value, axis)], axis),
            lambda: meta.broadcast_to(
                meta.expand_dims(value, axis), (*shape[:axis], rng.choice((2, 4)), *shape[axis:])
            ),
        ]
    if length > 1:
        start, step = rng.randrange(length), rng.choice((1, 1, 2, -1))
        index = (*[slice(None)] * axis, slice(start, None, step))
        parts = rng.randrange(1, length)
        choices += [
            lambda: value[index],
            lambda: meta.split(value, [parts], axis)[rng.randrange(2)],
            lambda: meta.take(value, meta.array([rng.randrange(length) for _ in range(4)]), axis),
        ]
    return rng.choice(choices)()


def _regrouped(rng: random.Random, value: Any) -> Any:
    """The elements in another shape of up to four axes."""
    remaining, shape = prod(value.shape), list[int]()
    if not remaining:
        return value.copy()
    for _ in range(3):
        divisors = [d for d in (1, 2, 3, 4, 5, 6) if remaining % d == 0]
        shape.append(rng.choice(divisors))
        remaining //= shape[-1]
    return meta.reshape(value, (*shape, remaining)).copy()
