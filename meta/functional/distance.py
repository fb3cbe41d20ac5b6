"""Lengths, distances and angles of vectors along an axis."""

from __future__ import annotations

from typing import Any

import meta
from meta.functional._axes import broadcast
from meta.functional._p_norm import p_norm

__all__ = ["cosine_similarity", "normalize", "pairwise_distance"]


def normalize(x: Any, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Any:
    """x divided by its p-norm along an axis, or by `eps` where the norm is less."""
    return x / meta.maximum(p_norm(x, p, axis, True), eps)


def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Any:
    """The p-norm of x1 - x2 + eps along the last axis; shapes broadcast. Raises TypeInferenceError for others."""
    return p_norm(x1 - x2 + eps, p, -1, keepdims)


def cosine_similarity(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8) -> Any:
    """sum(x1 * x2) / (max(|x1|, eps) * max(|x2|, eps)) along an axis: the cosine of the angle of two vectors. Shapes
    broadcast. Raises TypeInferenceError for others."""
    x1, x2 = broadcast("cosine_similarity", x1, x2)
    unit1, unit2 = normalize(x1, 2.0, axis, eps), normalize(x2, 2.0, axis, eps)
    return meta.sum(unit1 * unit2, axis)
