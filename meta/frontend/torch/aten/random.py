"""Random operators. Every call draws the next key of meta's default generator: the numbers are not torch's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.device import Device
from meta.dtype import canonical, int_range, is_complex, is_float, real_dtype, significand_bits
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import direct, row, rows
from meta.frontend.torch.aten._values import in_dtype, is_tensor

rows({
    "rand": lambda size, *, dtype=None, device=None:
        _uniform(size, 0.0, 1.0, canonical(dtype or "float32"), device or "cpu"),
    "rand_like": lambda self, *, dtype=None, device=None:
        _uniform(self.shape, 0.0, 1.0, canonical(dtype or self.dtype), device or self.device),
    "randn": lambda size, *, dtype=None, device=None:
        _normal(size, 0.0, 1.0, canonical(dtype or "float32"), device or "cpu"),
    "randn_like": lambda self, *, dtype=None, device=None:
        _normal(self.shape, 0.0, 1.0, canonical(dtype or self.dtype), device or self.device),
    # With the probability p, or with those in the tensor itself.
    "bernoulli": lambda self, p=None:
        meta.random.bernoulli(self.shape, self if p is None else p, self.dtype, self.device),
    "uniform": lambda self, low=0.0, to=1.0, **ends:
        _uniform(self.shape, ends.get("from", low), to, self.dtype, self.device),
    "exponential": lambda self, lambd=1.0: meta.random.exponential(self.shape, lambd, self.dtype, self.device),
    "normal_functional": lambda self, mean=0.0, std=1.0: _normal(self.shape, mean, std, self.dtype, self.device),
    "multinomial": direct("random.multinomial", self="weights", num_samples="count"),
    "poisson": direct("random.poisson", self="rate"), "_standard_gamma": direct("random.standard_gamma", self="alpha"),
    # The exact derivative; torch's approximation has relative errors up to 1e-3, and 2e-2 below alpha = 0.1.
    "_standard_gamma_grad": lambda self, output: meta.standard_gamma_grad(self, output),
    # The order of random numbers: a permutation drawn on the host cannot be traced.
    "randperm": lambda n, *, dtype=None, device=None:
        in_dtype(meta.argsort(meta.random.uniform((n,), dtype="float64", device=device or "cpu")), dtype or "int64"),
    "native_dropout_backward": lambda grad_output, mask, scale:
        meta.multiply(grad_output, meta.multiply(meta.cast(mask, grad_output.dtype), scale)),
})  # fmt: skip


def _uniform(shape: Sequence[Any], low: float, high: float, dtype: str, device: Device | str) -> Any:
    """Both parts of complex numbers are drawn."""
    return _drawn(meta.random.uniform, shape, low, high, dtype, device)


def _normal(shape: Sequence[Any], mean: float, std: float, dtype: Any, device: Any) -> Any:
    """`std` is the deviation of complex numbers, `mean` the mean of each of their parts."""
    return _drawn(meta.random.normal, shape, mean, std / math.sqrt(2) if is_complex(dtype) else std, dtype, device)


def _drawn(draw: Any, shape: Sequence[Any], first: float, second: float, dtype: str, device: Device | str) -> Any:
    if not is_complex(dtype):
        return draw(tuple(shape), first, second, dtype, device)
    return meta.view_as_complex(draw((*shape, 2), first, second, real_dtype(dtype), device))


@row()
def randint(low: Any, high: Any, size: Any = None, *, dtype: Any = None, device: Any = None) -> Any:
    """`randint(high, size)` starts at 0."""
    first, last, shape = (0, low, high) if size is None else (low, high, size)
    drawn = meta.random.randint(tuple(shape), first, last, device=device or "cpu")
    return meta.cast(drawn, dtype) if dtype else drawn


@row()
def randint_like(self: Any, low: Any, high: Any = None, *, dtype: Any = None, device: Any = None) -> Any:
    first, last = (0, low) if high is None else (low, high)
    return randint(first, last, self.shape, dtype=dtype or self.dtype, device=device or self.device)


@row()
def random(self: Tensor, *ends: Any, **named: Any) -> Any:
    """Integers, as elements of the dtype of `self`. ends: `to`, or `from` and `to`, which is not included; without
    `to`, up to the largest integer, or the largest up to which a floating dtype has all integers."""
    first, last = (0, *ends) if len(ends) == 1 else ends or (0, None)
    first, last = named.get("from", first), named.get("to", last)
    if last is None:
        last = (2 ** significand_bits(self.dtype) if is_float(self.dtype) else int_range(self.dtype)[1]) + 1
    drawn = meta.random.randint(self.shape, first, min(last, 2**63 - 1), device=self.device)
    return meta.cast(drawn, self.dtype)


@row()
def cauchy(self: Tensor, median: float = 0.0, sigma: float = 1.0) -> Any:
    if sigma <= 0:
        raise ArgumentError("cauchy", f"sigma is {sigma}", "a positive number")
    return meta.tan((_uniform(self.shape, 0.0, 1.0, self.dtype, self.device) - 0.5) * math.pi) * sigma + median


@row()
def geometric(self: Tensor, p: float) -> Any:
    """The number of trials up to the first success: logarithms of uniform numbers, rounded up."""
    if not 0 < p < 1:
        raise ArgumentError("geometric", f"p is {p}", "a number between 0 and 1")
    drawn = meta.random.uniform(self.shape, dtype="float64", device=self.device)
    return in_dtype(meta.maximum(meta.ceil(meta.log1p(-drawn) / math.log1p(-p)), 1.0), self.dtype)


@row()
def log_normal(self: Tensor, mean: float = 1.0, std: float = 2.0) -> Any:
    if std <= 0:
        raise ArgumentError("log_normal", f"std is {std}", "a positive number")
    return meta.exp(meta.random.normal(self.shape, mean, std, self.dtype, self.device))


@row()
def rrelu_with_noise_functional(
    self: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> Any:
    """The result, and the slopes that were drawn, 1 where x is positive."""
    if not training:
        return meta.leaky_relu(self, (lower + upper) / 2), noise
    drawn = _uniform(self.shape, lower, upper, self.dtype, self.device)
    slopes = meta.where(meta.less_equal(self, 0), drawn, 1.0)
    return self * slopes, slopes


@row()
def normal(mean: Any, std: Any = 1.0, size: Any = None, *, dtype: Any = None, device: Any = None) -> Any:
    """Normal numbers from two numbers and a size; or from tensors, whose elements are means and deviations."""
    if size is not None:
        return _normal(size, mean, std, canonical(dtype or "float32"), device or "cpu")
    like = mean if is_tensor(mean) else std
    if is_tensor(std) and isinstance(std, meta.NDArray) and std.size and meta.min(std.detach()).item() < 0:
        raise ArgumentError("normal", "std has negative values", "0 or more")
    shape = meta.broadcast_tensors(mean, std)[0].shape if is_tensor(mean) and is_tensor(std) else like.shape
    return _normal(shape, 0.0, 1.0, like.dtype, like.device) * std + mean


@row("_sample_dirichlet")
def sample_dirichlet(self: Any) -> Any:
    """Numbers of gamma distributions, divided by their sum."""
    drawn = meta.random.standard_gamma(self)
    return drawn / meta.sum(drawn, -1, True)


@row()
def dropout(input: Tensor, p: float, train: bool) -> Any:
    if not train or p == 0 or not input.size:
        return input if 0 <= p <= 1 else meta.dropout(input, meta.random.next_key(input.device), p)[0]
    if p == 1:
        return meta.multiply(input, meta.zeros_like(input))
    return meta.dropout(input, meta.random.next_key(input.device), p)[0]


@row()
def native_dropout(input: Tensor, p: float, train: bool | None) -> Any:
    if train is False:
        return input, meta.ones_like(input, "bool")
    out, mask = meta.dropout(input, meta.random.next_key(input.device), p)
    return out, meta.cast(mask, "bool")


def _channels(name: str) -> None:
    @row(name)
    def dropout(input: Tensor, p: float, train: bool) -> Any:
        if not 0 <= p <= 1:
            raise ArgumentError(name, f"p is {p}", "a probability from 0 to 1")
        if not train or p == 0:
            return input
        key = meta.random.next_key(input.device)
        if name != "feature_dropout":
            return getattr(meta, name)(input, key, p)
        ones = meta.ones((*input.shape[:2], *(1,) * (input.ndim - 2)), input.dtype, input.device)
        return input * meta.dropout(ones, key, p)[0]


for _name in ("feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
    _channels(_name)
