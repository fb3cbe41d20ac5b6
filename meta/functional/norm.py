"""Normalisations that are special cases of others."""

from __future__ import annotations

from typing import Any

import meta
from meta.errors import ArgumentError
from meta.functional._axes import along

__all__ = ["group_norm", "instance_norm"]


def group_norm(x: Any, groups: int, scale: Any = None, bias: Any = None, eps: float = 1e-5, axis: int = 1) -> Any:
    """(x - mean) / sqrt(variance + eps) * scale + bias, with the moments of each group of channels of each example (Y.
    Wu, K. He, "Group Normalization", 2018). x: (batch, ...), with channels along `axis`; scale, bias: one a channel."""
    position = axis % x.ndim
    channels = x.shape[position]
    if isinstance(channels, int) and channels % groups:
        raise ArgumentError("group_norm", f"{channels} channels in {groups} groups", "a multiple of groups")
    moved = x if position == 1 else meta.moveaxis(x, position, 1)
    flat = meta.reshape(moved, (x.shape[0], groups, -1))
    normal = meta.reshape(meta.layer_norm(flat, None, None, -1, eps), moved.shape)
    y = normal if position == 1 else meta.moveaxis(normal, 1, position)
    y = y if scale is None else y * along(scale, position, x.ndim)
    return y if bias is None else y + along(bias, position, x.ndim)


def instance_norm(x: Any, scale: Any = None, bias: Any = None, eps: float = 1e-5, axis: int = 1) -> Any:
    """group_norm with a group a channel (D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance Normalization", 2016)."""
    return group_norm(x, x.shape[axis], scale, bias, eps, axis)
