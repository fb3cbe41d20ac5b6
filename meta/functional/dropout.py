"""Dropout of whole channels, and dropout that keeps mean and variance."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta._generated.methods import T
from meta.errors import ArgumentError

__all__ = ["alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

_LIMIT = -1.7580993408473766
"""The limit of SELU at -inf: -scale * alpha."""


def dropout1d(x: T, key: T, p: float = 0.5) -> T:
    """x (n, c, l), or (c, l), with a random share p of the channels set to 0 and the others divided by 1 - p (J.
    Tompson et al., "Efficient Object Localization Using Convolutional Networks", 2015). key: from
    `meta.random.next_key()`. Raises ArgumentError for another rank, TypeInferenceError for p outside of 0 to 1."""
    return _of_channels(1, x, key, p)


def dropout2d(x: T, key: T, p: float = 0.5) -> T:
    """dropout1d of (n, c, h, w), or (n, c, l) without an axis."""
    return _of_channels(2, x, key, p)


def dropout3d(x: T, key: T, p: float = 0.5) -> T:
    """dropout1d of (n, c, d, h, w), or (c, d, h, w)."""
    return _of_channels(3, x, key, p)


def _of_channels(rank: int, x: T, key: T, p: float) -> T:
    if x.ndim not in (rank + 1, rank + 2):
        raise ArgumentError(f"dropout{rank}d", f"'x' has shape {tuple(x.shape)}", f"rank {rank + 1} or {rank + 2}")
    # Without a batch channels come first; but three axes are a batch of sequences in dropout2d, as in torch.
    lead = 1 if x.ndim == rank + 1 and rank != 2 else 2
    ones = meta.ones((*x.shape[:lead], *(1,) * (x.ndim - lead)), x.dtype, x.device)
    return x * meta.dropout(ones, key, p)[0]


def alpha_dropout(x: T, key: T, p: float = 0.5) -> T:
    """x with a random share p of the elements set to the limit of SELU, then scaled and shifted so that mean 0 and
    variance 1 stay (G. Klambauer et al., "Self-Normalizing Neural Networks", 2017). Raises ArgumentError for p outside
    of 0 to 1."""
    return _scaled("alpha_dropout", x, key, p, tuple(x.shape))


def feature_alpha_dropout(x: T, key: T, p: float = 0.5) -> T:
    """alpha_dropout of whole channels; x: (n, c, ...). Raises ArgumentError for less axes and p outside of 0 to 1."""
    if x.ndim < 2:
        raise ArgumentError("feature_alpha_dropout", f"'x' has shape {tuple(x.shape)}", "(n, c, ...)")
    return _scaled("feature_alpha_dropout", x, key, p, (*x.shape[:2], *(1,) * (x.ndim - 2)))


def _scaled(name: str, x: T, key: T, p: float, shape: tuple[Any, ...]) -> T:
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(name, f"p is {p}", "a probability from 0 to 1")
    if p in (0.0, 1.0):
        return x * (1.0 - p)
    scale = 1.0 / math.sqrt((1 - p) * (1 + p * _LIMIT**2))
    mask = meta.bernoulli(key, shape, 1 - p, "bool")
    return meta.where(mask, x, _LIMIT) * scale - scale * _LIMIT * p
