"""Layers. Parameters are initialised as in torch.nn, so that results are comparable."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import meta
from meta import random
from meta.eager.ndarray import NDArray
from meta.model.model import Model


def _uniform(shape: tuple[int, ...], bound: float) -> NDArray:
    return random.uniform(shape, -bound, bound)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


class Linear(Model):
    """y = x @ w^T + b; x: (..., in_features), w: (out_features, in_features), b: (out_features,).

    w and b are initialised uniformly in +-1/sqrt(in_features)."""

    def build(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = 1 / math.sqrt(in_features)
        self.w = _uniform((out_features, in_features), bound)
        self.b = _uniform((out_features,), bound) if bias else None

    def forward(self, x: Any) -> Any:
        return meta.dense(x, self.w, self.b)


class Conv2d(Model):
    """2-d convolution; x: (n, in_channels, h, w), w: (out_channels, in_channels / groups, kh, kw).

    w and b are initialised uniformly in +-1/sqrt(fan in)."""

    def build(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        kernel = _pair(kernel_size)
        bound = 1 / math.sqrt(in_channels // groups * kernel[0] * kernel[1])
        self.w = _uniform((out_channels, in_channels // groups, *kernel), bound)
        self.b = _uniform((out_channels, 1, 1), bound) if bias else None
        self.options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

    def forward(self, x: Any) -> Any:
        y = meta.conv2d(x, self.w, **self.options)
        return y if self.b is None else y + self.b


class BatchNorm2d(Model):
    """Normalises each channel of (n, c, h, w): by batch statistics in train mode, by running ones in inference mode."""

    def build(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        self.w = meta.ones((num_features,))
        self.b = meta.zeros((num_features,))
        self.running_mean: NDArray
        self.running_var: NDArray
        self.buffer("running_mean", meta.zeros((num_features,)))
        self.buffer("running_var", meta.ones((num_features,)))
        self.eps = eps
        self.momentum = momentum

    def forward(self, x: Any) -> Any:
        return meta.batch_norm_train(x, self.running_mean, self.running_var, self.w, self.b, self.momentum, self.eps)[0]

    def forward_infer(self, x: Any) -> Any:
        return meta.batch_norm_infer(x, self.running_mean, self.running_var, self.w, self.b, self.eps)


class LayerNorm(Model):
    """Normalises over the last axis, then scales and shifts."""

    def build(self, features: int, eps: float = 1e-5) -> None:
        self.w = meta.ones((features,))
        self.b = meta.zeros((features,))
        self.eps = eps

    def forward(self, x: Any) -> Any:
        return meta.layer_norm(x, self.w, self.b, eps=self.eps)


class Embedding(Model):
    """Looks up rows of a (num_embeddings, features) table, initialised from the standard normal distribution."""

    def build(self, num_embeddings: int, features: int) -> None:
        self.w = random.normal((num_embeddings, features))

    def forward(self, indices: Any) -> Any:
        return meta.embedding(self.w, indices)


class Dropout(Model):
    """Zeroes each element with probability p in train mode and scales the others by 1 / (1 - p)."""

    def build(self, p: float = 0.5) -> None:
        self.p = p

    def forward(self, x: Any) -> Any:
        return meta.dropout(x, random.next_key(x.device), self.p)[0]

    def forward_infer(self, x: Any) -> Any:
        return x


class Sequential(Model):
    """Applies layers (or functions) one after the other."""

    def build(self, *layers: Callable[[Any], Any]) -> None:
        self.layers = list(layers)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class ReLU(Model):
    """max(x, 0)."""

    def forward(self, x: Any) -> Any:
        return meta.relu(x)


class GELU(Model):
    """Gaussian error linear unit; approximate: "none" or "tanh"."""

    def build(self, approximate: Literal["none", "tanh"] = "none") -> None:
        self.approximate: Literal["none", "tanh"] = approximate

    def forward(self, x: Any) -> Any:
        return meta.gelu(x, self.approximate)


class Tanh(Model):
    """Hyperbolic tangent."""

    def forward(self, x: Any) -> Any:
        return meta.tanh(x)


class Flatten(Model):
    """Merges all axes but the first."""

    def forward(self, x: Any) -> Any:
        return meta.reshape(x, (x.shape[0], -1))


class MaxPool2d(Model):
    """Maximum over windows of (n, c, h, w); stride defaults to the kernel size."""

    def build(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        self.options = {"kernel": kernel_size, "stride": kernel_size if stride is None else stride, "padding": padding}

    def forward(self, x: Any) -> Any:
        return meta.max_pool2d(x, **self.options)


class AvgPool2d(Model):
    """Mean over windows of (n, c, h, w); stride defaults to the kernel size."""

    def build(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        self.options = {"kernel": kernel_size, "stride": kernel_size if stride is None else stride, "padding": padding}

    def forward(self, x: Any) -> Any:
        return meta.avg_pool2d(x, **self.options)
