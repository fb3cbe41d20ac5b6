"""Normalisation layers. w multiplies the normalised values, b is added; torch calls them weight and bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import accumulation_dtype
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError
from meta.model.model import Model
from meta.model.names import Alias
from meta.nn.function import FunctionLayer

_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
"""The distance from 1 to the next number."""


class _Statistics(Model):
    """A normalisation of channels with parameters w and b, and running statistics."""

    _input_size = ("num_features", 1)
    running_mean: NDArray | None
    running_var: NDArray | None
    weight, bias = Alias("w"), Alias("b")
    _torch_unused = ("num_batches_tracked",)

    def _create(self, num_features: int, affine: bool, track: bool) -> None:
        self.w = meta.ones((num_features,)) if affine else None
        self.b = meta.zeros((num_features,)) if affine else None
        self.running_mean, self.running_var = None, None
        if track:
            self.buffer("running_mean", meta.zeros((num_features,)))
            self.buffer("running_var", meta.ones((num_features,)))

    def _move(self, mean: Tensor, var: Tensor, factor: Any) -> None:
        """Move the running statistics by `factor` towards a batch's statistics."""
        for running, value in ((self.running_mean, mean), (self.running_var, var)):
            assert running is not None
            running.update((running + (value - running) * factor).cast(running.dtype))

    def _normalised(self, x: Tensor) -> Tensor:
        """x, normalised by the running statistics."""
        assert self.running_mean is not None
        assert self.running_var is not None
        return meta.batch_norm_infer(x, self.running_mean, self.running_var, self.w, self.b, self.eps)

    eps: float


class BatchNorm1d(_Statistics):
    """Normalises each channel of (n, c) or (n, c, l): by the statistics of the batch in train mode, by running ones in
    inference mode (S. Ioffe, C. Szegedy, "Batch Normalization", 2015).

    momentum: weight of a batch in the running statistics; None for the mean over all batches, which the buffer
        num_batches_tracked counts.
    affine: whether there are w and b.
    track_running_stats: whether there are running statistics; without, both modes use the batch's statistics."""

    def build(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        self._create(num_features, affine, track_running_stats)
        self.eps = eps
        self.momentum = momentum
        self.group: tuple[str, int] | None = None
        """Name and number of the ranks whose batches are normalised together; see meta.distributed.sync_batch_norm."""
        if momentum is None and track_running_stats:
            self.num_batches_tracked: NDArray
            self.buffer("num_batches_tracked", meta.zeros((), "int64"))

    def forward(self, x: Tensor) -> Tensor:
        if self.group is not None:
            return self._synchronised(x, *self.group)
        mean, var, momentum = self.running_mean, self.running_var, self.momentum
        if mean is None or var is None:
            shape, dtype = (x.shape[1],), accumulation_dtype(x.dtype)
            mean, var, momentum = meta.zeros(shape, dtype, x.device), meta.ones(shape, dtype, x.device), 0.0
        elif momentum is None:
            self._count(x)
            momentum = 0.0  # the running statistics have moved
        assert momentum is not None
        return meta.batch_norm_train(x, mean, var, self.w, self.b, momentum, self.eps)[0]

    def forward_infer(self, x: Tensor) -> Tensor:
        return self.forward(x) if self.running_mean is None else self._normalised(x)

    def _synchronised(self, x: Tensor, group: str, ranks: int) -> Tensor:
        """x, normalised by the statistics of the batches of all ranks."""
        wide, axes = x.cast(accumulation_dtype(x.dtype)), (0, *range(2, x.ndim))
        mean = meta.all_reduce(meta.mean(wide, axes, keepdims=True), "mean", group, ranks)
        centred = wide - mean
        var = meta.all_reduce(meta.mean(centred * centred, axes, keepdims=True), "mean", group, ranks)
        shape = mean.shape
        if self.running_mean is not None:
            with meta.no_grad():
                count = ranks * x.size // x.shape[1]
                self._move_all(mean.reshape((-1,)), var.reshape((-1,)) * (count / max(count - 1, 1)))
        y = centred * meta.rsqrt(var + self.eps)
        if self.w is not None and self.b is not None:
            y = y * self.w.reshape(shape) + self.b.reshape(shape)
        return y.cast(x.dtype)

    def _move_all(self, mean: Tensor, var: Tensor) -> None:
        """Move the running statistics by the layer's momentum, or count a batch."""
        if self.momentum is not None:
            self._move(mean, var, self.momentum)
            return
        self.num_batches_tracked.update(self.num_batches_tracked + 1)
        self._move(mean, var, 1.0 / self.num_batches_tracked.cast(mean.dtype))

    def _count(self, x: Tensor) -> None:
        """Count a batch, and let the running statistics be the means over all."""
        with meta.no_grad():
            wide, axes = x.cast(accumulation_dtype(x.dtype)), (0, *range(2, x.ndim))
            self._move_all(meta.mean(wide, axes), meta.var(wide, axes))


class BatchNorm2d(BatchNorm1d):
    """Normalises each channel of (n, c, h, w); see BatchNorm1d."""


class BatchNorm3d(BatchNorm1d):
    """Normalises each channel of (n, c, d, h, w); see BatchNorm1d."""


class InstanceNorm1d(_Statistics):
    """Normalises each channel of each example of (n, c, l) (D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance
    Normalization", 2016).

    momentum: weight of a batch in the running statistics.
    affine: whether there are w and b.
    track_running_stats: whether there are running statistics, which inference mode uses."""

    def build(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
    ) -> None:
        self._create(num_features, affine, track_running_stats)
        self.eps = eps
        self.momentum = momentum

    def forward(self, x: Tensor) -> Tensor:
        if self.running_mean is not None:
            with meta.no_grad():
                wide, axes = x.cast(accumulation_dtype(x.dtype)), tuple(range(2, x.ndim))
                mean, var = meta.mean(wide, axes), meta.var(wide, axes)
                self._move(meta.mean(mean, 0), meta.mean(var, 0), self.momentum)
        return meta.instance_norm(x, self.w, self.b, self.eps)

    def forward_infer(self, x: Tensor) -> Tensor:
        return self.forward(x) if self.running_mean is None else self._normalised(x)


class InstanceNorm2d(InstanceNorm1d):
    """Normalises each channel of each example of (n, c, h, w); see InstanceNorm1d."""


class InstanceNorm3d(InstanceNorm1d):
    """Normalises each channel of each example of (n, c, d, h, w); see InstanceNorm1d."""


class GroupNorm(Model):
    """Normalises each group of channels of each example of (n, c, ...) (Y. Wu, K. He, "Group Normalization", 2018).

    affine: whether there are w and b, one for each channel. Raises ArgumentError for groups that do not divide the
    channels."""

    _input_size = ("num_channels", 1)
    weight, bias = Alias("w"), Alias("b")

    def build(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        if num_groups < 1 or num_channels % num_groups:
            problem = f"num_channels is {num_channels}, num_groups is {num_groups}"
            raise ArgumentError("GroupNorm", problem, "groups that divide num_channels")
        self.num_groups = num_groups
        self.eps = eps
        self.w = meta.ones((num_channels,)) if affine else None
        self.b = meta.zeros((num_channels,)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return meta.group_norm(x, self.num_groups, self.w, self.b, self.eps)


class _OverLastAxes(Model):
    """A normalisation over the last axes, whose shape is `normalized_shape`."""

    _input_size = ("normalized_shape", -1)
    weight = Alias("w")

    def _create(self, normalized_shape: int | Sequence[int], affine: bool) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        if not shape:
            raise ArgumentError(type(self).__name__, "normalized_shape is ()", "at least one axis")
        self.normalized_shape = shape
        self.axes = tuple(range(-len(shape), 0))
        self.w = meta.ones(shape) if affine else None

    def _check(self, x: Tensor) -> None:
        """The operators check the shape against w's shape; without w it is checked here."""
        if self.w is None and tuple(x.shape[-len(self.axes) :]) != self.normalized_shape:
            problem, name = f"'x' has shape {x.shape}", type(self).__name__
            raise ArgumentError(name, problem, f"last axes of shape {self.normalized_shape}, as normalized_shape")


class LayerNorm(_OverLastAxes):
    """Normalises over the last axes, then scales by w and shifts by b (J. Ba, J. Kiros, G. Hinton, "Layer
    Normalization", 2016).

    normalized_shape: sizes of the last axes.  elementwise_affine: whether there are w and b, of that shape.
    bias: whether there is b. Raises ArgumentError for an empty shape and for x of another one."""

    bias = Alias("b")

    def build(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        self._create(normalized_shape, elementwise_affine)
        self.b = meta.zeros(self.normalized_shape) if elementwise_affine and bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        return meta.layer_norm(x, self.w, self.b, self.axes, self.eps)


class RMSNorm(_OverLastAxes):
    """Divides by the root of the mean square over the last axes, then scales by w (B. Zhang, R. Sennrich, "Root Mean
    Square Layer Normalization", 2019).

    normalized_shape: sizes of the last axes.  elementwise_affine: whether there is w, of that shape.
    eps: added to the mean square; None for the distance from 1 to the next number of the dtype of x. Raises
    ArgumentError for an empty shape and for x of another one."""

    def build(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True
    ) -> None:
        self._create(normalized_shape, elementwise_affine)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        eps = _EPSILON[x.dtype] if self.eps is None else self.eps
        return meta.rms_norm(x, self.w, self.axes, eps)


class LocalResponseNorm(FunctionLayer, function="local_response_norm"):
    """x / (k + alpha * mean(x**2))**beta over `size` neighbouring channels of (n, c, ...) (A. Krizhevsky et al.,
    "ImageNet Classification with Deep Convolutional Neural Networks", 2012)."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0
