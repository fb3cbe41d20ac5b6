"""Batch norm with the statistics of all ranks' batches."""

from __future__ import annotations

from typing import TypeVar

from meta.distributed.mesh import GroupLike, as_group
from meta.errors import ArgumentError
from meta.model.model import Model
from meta.nn.norm import BatchNorm1d

M = TypeVar("M", bound=Model)


def sync_batch_norm(model: M, mesh: GroupLike = None) -> M:
    """Let the BatchNorm layers of a model normalise, in train mode, by the mean and the variance of all ranks' batches,
    which are of one size. The model is changed and returned. Raises ArgumentError for a model without such layers.

    mesh: the ranks, as a group, an axis of a mesh, or None for all processes."""
    group = as_group("sync_batch_norm", mesh)
    if not isinstance(model, Model):
        raise ArgumentError("sync_batch_norm", f"the model is of class {type(model).__name__}", "a meta.Model")
    layers = [part for part in (model, *(m for _, m in model.named_models())) if isinstance(part, BatchNorm1d)]
    if not layers:
        raise ArgumentError("sync_batch_norm", f"{type(model).__name__} has no BatchNorm layer", "at least one")
    for layer in layers:
        layer.group = group if group.ranks > 1 else None
    return model
