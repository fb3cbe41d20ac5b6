"""Gradients of the backward operators of adaptive pooling."""

from __future__ import annotations

from typing import Any

import meta
from meta.ir.type import TensorType


def adaptive_max_pool1d_dx_dy(x: Any, dy: TensorType, dz: Any) -> Any:
    return meta.adaptive_max_pool1d_at(x, dz, dy.shape[2:])


def adaptive_max_pool2d_dx_dy(x: Any, dy: TensorType, dz: Any) -> Any:
    return meta.adaptive_max_pool2d_at(x, dz, dy.shape[2:])


def adaptive_max_pool3d_dx_dy(x: Any, dy: TensorType, dz: Any) -> Any:
    return meta.adaptive_max_pool3d_at(x, dz, dy.shape[2:])


def adaptive_avg_pool1d_dx_dy(dy: TensorType, dz: Any) -> Any:
    return meta.adaptive_avg_pool1d(dz, dy.shape[2:])


def adaptive_avg_pool2d_dx_dy(dy: TensorType, dz: Any) -> Any:
    return meta.adaptive_avg_pool2d(dz, dy.shape[2:])


def adaptive_avg_pool3d_dx_dy(dy: TensorType, dz: Any) -> Any:
    return meta.adaptive_avg_pool3d(dz, dy.shape[2:])
