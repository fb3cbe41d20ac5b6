"""Random numbers: meta draws its own, whatever the seed. A node with a seed draws the same ones in each new program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_float
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.frontend.onnx.ops._values import dtype_of, ints
from meta.functional._checks import as_dtype


def _generator(seed: float | None) -> Any:
    return None if seed is None else meta.random.Generator(int(seed))


def _dtype(node: Node, number: int | None, default: str) -> str:
    dtype = default if number is None else dtype_of(node.op_type, number)
    if not is_float(dtype):
        refuse(node, f"the result is {dtype}", "a floating dtype")
    return dtype


@row("RandomNormal", folds=False)
def random_normal(
    node: Node, *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None,
) -> Any:  # fmt: skip
    kind = _dtype(node, dtype, "float32")
    return meta.random.normal(ints(shape), mean, scale, kind, generator=_generator(seed))


@row("RandomUniform", folds=False)
def random_uniform(
    node: Node, *, shape: Sequence[int], dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Any:
    kind = _dtype(node, dtype, "float32")
    return meta.random.uniform(ints(shape), low, high, kind, generator=_generator(seed))


@row("RandomNormalLike", folds=False)
def random_normal_like(
    node: Node, input: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None,
) -> Any:  # fmt: skip
    kind = _dtype(node, dtype, input.dtype)
    return meta.random.normal(input.shape, mean, scale, kind, generator=_generator(seed))


@row("RandomUniformLike", folds=False)
def random_uniform_like(
    node: Node, input: Tensor, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0,
    seed: float | None = None,
) -> Any:  # fmt: skip
    kind = _dtype(node, dtype, input.dtype)
    return meta.random.uniform(input.shape, low, high, kind, generator=_generator(seed))


@row("Bernoulli", since=15, folds=False)
def bernoulli(node: Node, input: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Any:
    """1 with the probability that the input says. ONNX's function for this operator gives 0 with it."""
    kind = input.dtype if dtype is None else dtype_of("Bernoulli", dtype)
    draws = meta.random.uniform(input.shape, generator=_generator(seed))
    return meta.cast(meta.less(draws, as_dtype(input, "float32")), kind)


@row("Multinomial", since=7, folds=False)
def multinomial(node: Node, input: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Any:
    """Classes drawn by logarithms of probabilities up to a constant, (batch, classes) -> (batch, sample_size): the
    largest of the logarithms and Gumbel noise (E. Gumbel, 1954)."""
    batch, classes = input.shape
    draws = meta.random.uniform((batch, sample_size, classes), 1e-20, 1.0, generator=_generator(seed))
    noise = meta.negative(meta.log(meta.negative(meta.log(draws))))
    return as_dtype(meta.argmax(meta.add(meta.expand_dims(as_dtype(input, "float32"), 1), noise), 2),
                    dtype_of("Multinomial", dtype))  # fmt: skip
