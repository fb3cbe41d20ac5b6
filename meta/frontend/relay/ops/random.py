"""Random numbers by Threefry, whose state is a tensor of ten words of 64 bits: the same numbers as in Relay.

Words 0 to 3 are the key, 4 and 5 the path of splits, 6 and 7 the counter, 8 and 9 the bit of the path that the next
split sets (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011; K. Claessen, M. Palka, "Splittable
pseudorandom number generators using cryptographic hashing", 2013).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.frontend.relay.convert.call import OpCall, constant, converter
from meta.frontend.relay.convert.type_mapping import dtype_of

_ROUNDS = 20
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_PARITY = 0x1BD11BDAA9FC1A22
_ALL = (1 << 64) - 1
_HIGHEST = 1 << 63
_FRACTION = {"float32": 23, "float64": 52}
"""Bits of the fraction of a float."""


def _word(value: int) -> Any:
    return constant(np.asarray([value], "uint64"))


def _words(call: OpCall, key: Tensor) -> list[Any]:
    """The words of a state, each (1,)."""
    if key.shape != (10,) or key.dtype != "uint64":
        call.refuse(f"a key {key.type!r}", "10 words of uint64")
    return [meta.strided_slice(key, (i,), (i + 1,)) for i in range(10)]


def _threefry(key: list[Any], counter: list[Any], count: int) -> list[Any]:
    """Four words (count,) from each of `count` states: the i-th hashes the counter plus i."""
    whole = _word(_PARITY)
    for word in key:
        whole = meta.bitwise_xor(whole, word)
    schedule = [*key, whole]
    step = constant(np.arange(count, dtype="uint64"))
    x = [meta.add(word, step) for word in counter]
    for i in range(_ROUNDS // 4):
        x = [meta.add(word, schedule[(i + j) % 5]) for j, word in enumerate(x)]
        x[3] = meta.add(x[3], _word(i))
        for k in range(4):
            first, second = _ROTATIONS[(4 * i + k) % 8]
            a, b = _mixed(x[0], x[1], first)
            c, d = _mixed(x[2], x[3], second)
            x = [a, d, c, b]
    return x


def _mixed(a: Tensor, b: Tensor, rotation: int) -> tuple[Any, Any]:
    total = meta.add(a, b)
    turned = meta.bitwise_or(meta.left_shift(b, _word(rotation)), meta.right_shift(b, _word(64 - rotation)))
    return total, meta.bitwise_xor(total, turned)


def _next_bit(high: Any, low: Any) -> list[Any]:
    """Two words with one bit set: the bit after the one set in `high` and `low`."""
    one, zero = _word(1), _word(0)
    shifted = meta.right_shift(high, one)
    entered = meta.where(meta.equal(high, one), _word(_HIGHEST), meta.right_shift(low, one))
    return [shifted, meta.where(meta.equal(shifted, zero), entered, zero)]


def _path_is_full(words: list[Any]) -> Any:
    return meta.logical_and(meta.equal(words[8], _word(0)), meta.equal(words[9], _word(0)))


def _with_one(words: list[Any]) -> list[Any]:
    """The path with a 1 appended."""
    return [meta.bitwise_or(words[4], words[8]), meta.bitwise_or(words[5], words[9])]


def _select(condition: Tensor, then: list[Any], otherwise: list[Any]) -> list[Any]:
    return [meta.where(condition, a, b) for a, b in zip(then, otherwise, strict=True)]


def _generated(call: OpCall, key: Tensor, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The next state, and random words of a shape."""
    call.check_size(*shape)
    count = math.prod(shape)
    if count <= 0 or count % 4:
        call.refuse(f"{count} random numbers", "a multiple of 4")
    words, zero = _words(call, key), _word(0)
    hashed = _threefry(words[:4], [_word(_ALL), _word(_ALL), *words[:2]], 1)
    renewed = [*hashed, zero, zero, zero, zero, _word(_HIGHEST), zero]
    extended = [*words[:4], *_with_one(words), zero, zero, *_next_bit(words[8], words[9])]
    has_room = meta.less(words[7], _word(_ALL - count))
    state = _select(has_room, words, _select(_path_is_full(words), renewed, extended))
    numbers = meta.reshape(meta.stack(_threefry(state[:4], state[4:8], count // 4), 1), shape)
    state[6], state[7] = zero, meta.add(state[7], _word(count))
    return meta.concatenate(state, 0), numbers


@converter("random.threefry_generate")
def threefry_generate(call: OpCall) -> Any:
    (key,) = call.tensors(1)
    return _generated(call, key, call.sizes("out_shape"))


@converter("random.threefry_split")
def threefry_split(call: OpCall) -> Any:
    """Two states, whose paths end in 0 and in 1."""
    (key,) = call.tensors(1)
    words, zero = _words(call, key), _word(0)
    hashed, bit = _threefry(words[:4], words[4:8], 1), _next_bit(words[8], words[9])
    end = [zero, zero, zero, _word(1 << 62), zero]
    full = _path_is_full(words)
    left = _select(full, [*hashed, zero, *end], [*words[:8], *bit])
    right = _select(full, [*hashed, _word(_HIGHEST), *end], [*words[:4], *_with_one(words), *words[6:8], *bit])
    return meta.concatenate(left, 0), meta.concatenate(right, 0)


def _uniform(call: OpCall, key: Tensor, shape: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
    """The next state, and numbers from 0 to 1: the highest bits of random words as a fraction."""
    if dtype not in _FRACTION:
        call.refuse(f"out_dtype is {dtype}", " or ".join(_FRACTION))
    bits = _FRACTION[dtype]
    state, numbers = _generated(call, key, shape)
    whole = meta.cast(meta.right_shift(numbers, _word(64 - bits)), dtype)
    return state, meta.divide(whole, float(1 << bits))


def _out_dtype(call: OpCall) -> str:
    return dtype_of(call.text("out_dtype", "float32") or "float32", call.place)


@converter("random.uniform")
def uniform(call: OpCall) -> Any:
    key, low, high = call.tensors(3)
    state, x = _uniform(call, key, call.sizes("out_shape"), _out_dtype(call))
    return state, meta.add(meta.multiply(x, meta.subtract(high, low)), low)


@converter("random.normal")
def normal(call: OpCall) -> Any:
    """By the transform of G. Box and M. Muller (1958), from two uniform numbers for each."""
    key, mean, scale = call.tensors(3)
    state, x = _uniform(call, key, (2, *call.sizes("out_shape")), _out_dtype(call))
    first, second = (meta.squeeze(part, (0,)) for part in meta.split(x, 2, 0))
    radius = meta.sqrt(meta.multiply(meta.log(first), -2.0))
    y = meta.multiply(radius, meta.cos(meta.multiply(second, 2.0 * math.pi)))
    return state, meta.add(meta.multiply(y, scale), mean)


@converter("random.multinomial")
def multinomial(call: OpCall) -> Any:
    """Indices drawn with probabilities proportional to the last axis: the first whose cumulative probability exceeds a
    uniform number."""
    key, weights = call.tensors(2)
    count = call.int("num_samples", 1)
    weights = meta.maximum(meta.cast(weights, "float32"), 0.0)
    shares = meta.divide(weights, meta.sum(weights, (-1,), True))
    state, x = _uniform(call, key, (*shares.shape[:-1], count), "float32")
    limits = meta.expand_dims(meta.cumsum(shares, -1), shares.ndim)
    distance = meta.subtract(limits, meta.expand_dims(x, shares.ndim - 1))
    above = meta.where(meta.greater(distance, 0.0), distance, 1.0)
    return state, meta.cast(meta.argmin(above, -2), "int32")
