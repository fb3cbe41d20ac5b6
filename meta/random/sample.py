"""Arrays of random numbers. Every call draws a fresh key."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import meta
from meta import spellings
from meta.device import CPU, Device
from meta.dtype import accumulation_dtype, canonical
from meta.eager.ndarray import NDArray, array
from meta.errors import ArgumentError, TypeInferenceError, value_text
from meta.functional._checks import is_tensor, require, require_float
from meta.random.generator import Generator, next_key
from meta.schema.annotations import checked, explained
from meta.tree import is_sequence

Shape = int | Sequence[int]
DeviceLike = Device | str


@explained
def uniform(
    shape: Shape, low: float = 0.0, high: float = 1.0, dtype: object = "float32", device: DeviceLike = CPU,
    generator: Generator | None = None,
) -> NDArray:  # fmt: skip
    """Floating-point numbers uniform in [low, high). Raises TypeInferenceError for low > high."""
    _check_order("uniform", shape, low, high)
    return meta.uniform(next_key(device, generator), shape, low, high, dtype)


@explained
def normal(
    shape: Shape, mean: float = 0.0, std: float = 1.0, dtype: object = "float32", device: DeviceLike = CPU,
    generator: Generator | None = None,
) -> NDArray:  # fmt: skip
    """Floating-point numbers of a normal distribution. Raises TypeInferenceError for a negative std."""
    _check_order("normal", shape, mean, std)
    return meta.normal(next_key(device, generator), shape, mean, std, dtype)


@explained
def randint(
    shape: Shape, low: int, high: int, dtype: object = "int64", device: DeviceLike = CPU,
    generator: Generator | None = None,
) -> NDArray:  # fmt: skip
    """Integers uniform in [low, high). Raises TypeInferenceError for an empty range or one that exceeds the dtype's."""
    _check_order("randint", shape, low, high)
    return meta.randint(next_key(device, generator), shape, low, high, dtype)


def _check_order(name: str, *args: object) -> None:
    """Raise ArgumentError for a call in the order of NumPy and torch, where the shape comes last."""
    if is_sequence(args[-1]):
        remedy = spellings.call_text(f"meta.random.{name}", ["..."] * len(args), spellings.shape_first(args), {})
        raise ArgumentError(name, f"the last argument is the shape {args[-1]}", "it first", remedy)


@explained
def bernoulli(
    shape: Shape, p: Any = 0.5, dtype: Any = "float32", device: DeviceLike = CPU, generator: Generator | None = None
) -> NDArray:
    """One with probability p, zero otherwise. p: a number, or a floating tensor that broadcasts to the shape, whose
    device is used. Raises TypeInferenceError for a p outside [0, 1] or of another shape."""
    _check_order("bernoulli", shape, p)
    if not is_tensor(p):
        return meta.bernoulli(next_key(device, generator), shape, p, dtype)
    chances = meta.broadcast_to(p, shape)
    require_float("bernoulli", chances, "p")
    require_known("bernoulli", meta.logical_and(chances >= 0, chances <= 1), "'p' has values outside [0, 1]",
                  "probabilities: 0 to 1")  # fmt: skip
    drawn = meta.uniform(next_key(chances.device, generator), chances.shape, 0.0, 1.0, "float32")
    return meta.cast(meta.less(drawn, meta.cast(chances, "float32")), dtype)


@explained
def exponential(
    shape: Shape, rate: float = 1.0, dtype: object = "float32", device: DeviceLike = CPU,
    generator: Generator | None = None,
) -> NDArray:  # fmt: skip
    """Floating-point numbers of an exponential distribution of mean 1 / rate: -log(1 - u) / rate of uniform u.

    Raises TypeInferenceError for a rate of 0 or less."""
    if not isinstance(rate, Real) or not rate > 0:
        raise TypeInferenceError("exponential", f"rate is {value_text(rate)}", "more than 0")
    wide = accumulation_dtype(canonical(dtype))
    drawn = meta.uniform(next_key(device, generator), shape, 0.0, 1.0, wide)
    return meta.cast(meta.negative(meta.log1p(meta.negative(drawn))) / rate, dtype)


@checked
def poisson(rate: NDArray, generator: Generator | None = None) -> NDArray:
    """Numbers of Poisson distributions, one for each rate, in its dtype. The gradient by the rate is zero.

    rate: floating, of any shape, 0 or more. Raises TypeInferenceError for other rates."""
    require_float("poisson", rate, "rate")
    require_known("poisson", rate >= 0, "'rate' has negative values or NaN", "0 or more")
    return meta.poisson(next_key(rate.device, generator), rate)


@checked
def standard_gamma(alpha: NDArray, generator: Generator | None = None) -> NDArray:
    """Numbers of gamma distributions of scale 1, one for each shape parameter, in its dtype, with a gradient by the
    parameter: the derivative at a fixed quantile. `standard_gamma(alpha) / rate` has the rate `rate`.

    alpha: floating, of any shape, 0 or more. Raises TypeInferenceError for other parameters."""
    require_float("standard_gamma", alpha, "alpha")
    require_known("standard_gamma", alpha >= 0, "'alpha' has negative values or NaN", "0 or more")
    return meta.standard_gamma(next_key(alpha.device, generator), alpha)


@checked
def multinomial(weights: NDArray, count: int, replacement: bool = False, generator: Generator | None = None) -> NDArray:
    """`count` positions for each row of weights, drawn with probabilities proportional to them, as int64.

    weights: (n,) or (rows, n), floating, not negative; they need not add up to 1.  replacement: positions may repeat;
    else a row needs as many positive weights as positions are drawn. Without replacement, the positions of the largest
    weight / e for exponential e (P. Efraimidis, P. Spirakis, "Weighted Random Sampling with a Reservoir", 2006).
    Raises TypeInferenceError for other weights, or too large a count."""
    require_float("multinomial", weights, "weights")
    fits = weights.ndim in (1, 2) and weights.shape[-1] > 0
    require("multinomial", fits, f"'weights' has shape {weights.shape}", "(n,) or (rows, n), with n of 1 or more")
    most = weights.shape[-1]
    allowed = count > 0 and (replacement or count <= most)
    require(
        "multinomial", allowed, f"count is {count} for rows of {most}", "1 or more" if replacement else f"1 to {most}"
    )
    wide = meta.cast(weights, "float64")
    valid = meta.logical_and(meta.isfinite(wide), wide >= 0)
    require_known(
        "multinomial", valid, "'weights' has negative values, infinities or NaN", "finite numbers of 0 and more"
    )
    require_known("multinomial", meta.sum(wide, -1) > 0, "a row of 'weights' adds up to 0", "a positive weight")
    if not replacement:
        few = meta.sum(wide > 0, -1) >= count
        require_known("multinomial", few, f"a row has fewer than {count} positive weights", "as many as are drawn")
        waits = exponential(wide.shape, 1.0, "float64", wide.device, generator)
        return meta.topk(wide / meta.maximum(waits, 1e-300), count, -1)[1]
    ends = meta.cumsum(wide, -1)
    drawn = uniform((*wide.shape[:-1], count), 0.0, 1.0, "float64", wide.device, generator)
    places = meta.searchsorted(ends, drawn * ends[..., -1:], right=True)
    last = meta.sum(meta.less(ends, ends[..., -1:]), -1, True)  # rounding must not draw weights of 0 behind the end
    return meta.minimum(places, last)


def require_known(name: str, condition: object, problem: str, expected: str) -> None:
    """Raise TypeInferenceError unless a condition on values holds everywhere; in a traced function they are unknown."""
    if isinstance(condition, NDArray):
        require(name, bool(meta.all(condition.detach())), problem, expected)


@checked
def permutation(n: int, device: DeviceLike = CPU, generator: Generator | None = None) -> NDArray:
    """The integers 0 to n - 1 in random order, int64. Runs on the host and cannot be traced."""
    import numpy as np

    from meta.backend.reference.philox import words

    if n < 0:
        raise ArgumentError("permutation", f"n is {n}", "an int of at least 0")
    high, low = words(next_key(CPU, generator).numpy(), (n,), 2)
    return array(np.lexsort((low, high)).astype(np.int64), device=device)
