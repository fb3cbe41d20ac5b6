"""Data parallelism: every rank has the whole model and computes with its part of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import meta
from meta.distributed.buckets import BUCKET_BYTES, buckets, check_bucket_bytes
from meta.distributed.exchanges import Exchange, add_exchange, check_step, read_only
from meta.distributed.mesh import Group, GroupLike, as_group
from meta.eager.ndarray import NDArray
from meta.modes import no_grad
from meta.optim.train_step import TrainStep


def data_parallel(
    mesh: GroupLike = None, *, bucket_bytes: int = BUCKET_BYTES, broadcast: bool = True
) -> Callable[[TrainStep], TrainStep]:
    """`data_parallel(mesh["dp"])(step)`: the training step updates with the mean of the ranks' gradients.

    With a loss that is a mean over the batch, ranks with equal parts of a batch compute the update of one process with
    the whole batch. The step returns the loss of the rank's part. With `accumulate`, only calls that update
    communicate. Statistics of batch norm stay local unless `sync_batch_norm` is applied to the model.
    mesh: the ranks, as a group, an axis of a mesh, or None for all processes.
    bucket_bytes: least size at which a bucket of gradients is sent; gradients are collected in the order in which the
        backward pass computes them.
    broadcast: start from the parameters and the state of the group's first rank.
    The step given is changed and returned. Raises ArgumentError for something else. A call raises NotSupportedError
    for a model that writes parameters itself."""
    group = as_group("data_parallel", mesh)
    check_bucket_bytes("data_parallel", bucket_bytes)

    def wrap(step: TrainStep) -> TrainStep:
        check_step("data_parallel", step, group, MeanGradients)
        if broadcast:
            broadcast_state(step, group)
        add_exchange(step, MeanGradients(step, group, bucket_bytes))
        return step

    return wrap


def broadcast_state(step: TrainStep, group: Group) -> None:
    """Overwrite the arrays of a step with the arrays of the group's first rank."""
    if group.ranks > 1:
        with no_grad():
            for _, x in step.named_state():
                x.update(meta.broadcast_from(x.detach(), 0, *group))


class MeanGradients(Exchange):
    """Replaces gradients by their mean over the ranks, in buckets."""

    def __init__(self, step: TrainStep, group: Group, bucket_bytes: int) -> None:
        self.step = step
        self.ranks = group
        self.bucket_bytes = bucket_bytes

    def parameters(self) -> AbstractContextManager[None]:
        if self.ranks.ranks == 1:
            return nullcontext()
        return read_only("data_parallel", dict(self.step.optimizer.named))

    def before_update(self, named: Iterable[tuple[str, NDArray]], last: Any) -> None:
        if self.ranks.ranks == 1:
            return
        arrays = [x for _, x in named if x.grad is not None]
        with no_grad():
            # The last parameters have the first gradients.
            for bucket in buckets(arrays[::-1], self.bucket_bytes):
                joined = bucket.join([x.grad for x in bucket.arrays])
                if last is True:
                    mean = meta.all_reduce(joined, "mean", *self.ranks)
                else:
                    mean = meta.all_reduce_when(joined, last, "mean", *self.ranks)
                for x, own_mean in zip(bucket.arrays, bucket.divide(mean), strict=True):
                    x.grad = own_mean
