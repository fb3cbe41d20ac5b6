"""Declarations of random operators.

A number is a function of the key and its position in the result, the same on every device and in every dialect.
The bits come from Philox4x32-10 (J. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011).
"""

from __future__ import annotations

from meta import dtype as dtypes
from meta.dim import Dim, same_dim
from meta.ir.type import TensorType, tensor_type
from meta.op import rules
from meta.op.declare._standard import standard_broadcast
from meta.op.registry import declare
from meta.schema import random


def require_key(key: TensorType) -> None:
    """Raise TypeInferenceError unless `key` is an int64 tensor (seed, offset)."""
    fits = key.dtype == "int64" and key.ndim == 1 and same_dim(key.shape[0], 2)
    rules.require(fits, f"'key' is {key!r}", "int64 of shape (2,)", "get one from meta.random.next_key()")


def _random(key: TensorType, shape: tuple[int, ...], dtype: str) -> TensorType:
    require_key(key)
    return tensor_type(shape, dtype, key.device)


def _floating(key: TensorType, shape: tuple[int, ...], dtype: str) -> TensorType:
    rules.require(dtypes.is_float(dtype), f"dtype is {dtype}", f"{', '.join(dtypes.FLOATS)}")
    return _random(key, shape, dtype)


@declare("uniform", schema=random.uniform, pattern="injective")
def uniform(key: TensorType, shape: tuple[int, ...], low: float, high: float, dtype: str) -> TensorType:
    """Uniformly distributed numbers in [low, high)."""
    rules.require_ordered(low, high)
    return _floating(key, shape, dtype)


@declare("normal", schema=random.normal, pattern="injective")
def normal(key: TensorType, shape: tuple[int, ...], mean: float, std: float, dtype: str) -> TensorType:
    """Normally distributed numbers (by the transform of G. Box and M. Muller, 1958), at most 6.6 standard
    deviations from the mean in float32 and less precise dtypes, 8.6 in float64."""
    rules.require(std >= 0, f"std is {std}", "0 or more")
    return _floating(key, shape, dtype)


@declare("randint", schema=random.randint, pattern="injective")
def randint(key: TensorType, shape: tuple[int, ...], low: Dim, high: Dim, dtype: str) -> TensorType:
    """Uniformly distributed integers in [low, high)."""
    rules.require(dtypes.is_int(dtype), f"dtype is {dtype}", f"{', '.join(dtypes.INTS)}")
    rules.require_ordered(low, high, strictly=True)
    if isinstance(low, int) and isinstance(high, int):
        rules.require(high - low < 2**63, f"[{low}, {high}) has {high - low} values", "less than 2**63")
        least, greatest = dtypes.int_range(dtype)
        rules.require(
            least <= low and high - 1 <= greatest,
            f"[{low}, {high}) is asked for in {dtype}",
            f"values from {least} to {greatest}",
        )
    return _random(key, shape, dtype)


@declare("bernoulli", schema=random.bernoulli, pattern="injective")
def bernoulli(key: TensorType, shape: tuple[int, ...], p: float, dtype: str) -> TensorType:
    """1 with probability p, else 0."""
    rules.require(0 <= p <= 1, f"p is {p}", "a probability: 0 to 1")
    return _random(key, shape, dtype)


def _like(key: TensorType, name: str, x: TensorType) -> TensorType:
    require_key(key)
    rules.same_device(key, x)
    rules.require_float(name, x)
    return x


@declare("poisson", schema=random.poisson, pattern="injective", amp="never")
def poisson(key: TensorType, rate: TensorType) -> TensorType:
    """Numbers of Poisson distributions, one for each rate, in its dtype; NaN for negative rates, inf for inf.

    By inversion for rates below 10, else by the transformed rejection method PTRS (W. Hoermann, "The Transformed
    Rejection Method for Generating Poisson Random Variables", 1993). The gradient is zero."""
    return _like(key, "rate", rate)


@declare("standard_gamma", schema=random.standard_gamma, pattern="injective", amp="never")
def standard_gamma(key: TensorType, alpha: TensorType) -> TensorType:
    """Numbers of gamma distributions of scale 1, one for each shape parameter, in its dtype; NaN for negative ones.

    By the method of G. Marsaglia and W. Tsang ("A Simple Method for Generating Gamma Variables", 2000). Results are at
    least the smallest normal number of the dtype, so that their logarithms are finite. The gradient is the derivative
    of the number as a function of alpha at a fixed quantile; see `standard_gamma_grad`."""
    return _like(key, "alpha", alpha)


standard_broadcast(
    "standard_gamma_grad",
    "The derivative of a gamma distributed number by its shape parameter at a fixed quantile (implicit "
    "reparametrisation; M. Figurnov and others, 2018). NaN for negative, infinite and NaN operands "
    "and for an alpha of 0.",
    schema=random.standard_gamma_grad,
    accepts="float",
    family="random",
    amp="never",
    method=False,
)
