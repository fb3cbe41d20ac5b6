"""Activations as layers."""

from __future__ import annotations

from typing import Literal

import meta
from meta._generated.methods import Tensor
from meta.model.model import Model
from meta.model.names import Alias


class ReLU(Model):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.relu(x)


class ReLU6(Model):
    """min(max(x, 0), 6)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.relu6(x)


class LeakyReLU(Model):
    """x above 0, negative_slope * x below."""

    def build(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        return meta.leaky_relu(x, self.negative_slope)


class PReLU(Model):
    """x above 0, w * x below, with one learned slope, or one for each channel along axis 1 (K. He et al., 2015)."""

    weight = Alias("w")

    def build(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.w = meta.full((num_parameters,), init, "float32")

    def forward(self, x: Tensor) -> Tensor:
        return meta.prelu(x, self.w)


class ELU(Model):
    """x above 0, alpha * (exp(x) - 1) below (D.-A. Clevert et al., 2015)."""

    def build(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return meta.elu(x, self.alpha)


class SELU(Model):
    """ELU with the alpha and the scale that keep mean 0 and variance 1 (G. Klambauer et al., "Self-Normalizing Neural
    Networks", 2017)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.selu(x)


class CELU(Model):
    """x above 0, alpha * (exp(x / alpha) - 1) below (J. T. Barron, 2017)."""

    def build(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        return meta.celu(x, self.alpha)


class GELU(Model):
    """Gaussian error linear unit; approximate: "none" or "tanh"."""

    def build(self, approximate: Literal["none", "tanh"] = "none") -> None:
        self.approximate: Literal["none", "tanh"] = approximate

    def forward(self, x: Tensor) -> Tensor:
        return meta.gelu(x, self.approximate)


class SiLU(Model):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.silu(x)


class Mish(Model):
    """x * tanh(softplus(x)) (D. Misra, "Mish", 2019)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.mish(x)


class Sigmoid(Model):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.sigmoid(x)


class LogSigmoid(Model):
    """log(sigmoid(x)), computed without overflow."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.logsigmoid(x)


class Hardsigmoid(Model):
    """min(max(x + 3, 0), 6) / 6."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.hardsigmoid(x)


class Hardswish(Model):
    """x * min(max(x + 3, 0), 6) / 6 (A. Howard et al., "Searching for MobileNetV3", 2019)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.hardswish(x)


class Tanh(Model):
    """Hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.tanh(x)


class Hardtanh(Model):
    """min(max(x, min_val), max_val)."""

    def build(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Tensor) -> Tensor:
        return meta.hardtanh(x, self.min_val, self.max_val)


class Tanhshrink(Model):
    """x - tanh(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.tanhshrink(x)


class Softshrink(Model):
    """x moved towards 0 by lambd, 0 between -lambd and lambd."""

    def build(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: Tensor) -> Tensor:
        return meta.softshrink(x, self.lambd)


class Hardshrink(Model):
    """x, and 0 between -lambd and lambd."""

    def build(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: Tensor) -> Tensor:
        return meta.hardshrink(x, self.lambd)


class Softplus(Model):
    """log(1 + exp(beta * x)) / beta, without a threshold unless one is given."""

    def build(self, beta: float = 1.0, threshold: float | None = None) -> None:
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        return meta.softplus(x, self.beta, self.threshold)


class Softsign(Model):
    """x / (1 + abs(x))."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.softsign(x)


class Threshold(Model):
    """x above `threshold`, `value` elsewhere."""

    def build(self, threshold: float, value: float) -> None:
        self.threshold, self.value = threshold, value

    def forward(self, x: Tensor) -> Tensor:
        return meta.threshold(x, self.threshold, self.value)


class Softmax(Model):
    """exp(x) / sum(exp(x)) along the axis dim."""

    def build(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return meta.softmax(x, self.dim)


class Softmin(Model):
    """Softmax of -x along the axis dim."""

    def build(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return meta.softmin(x, self.dim)


class Softmax2d(Model):
    """Softmax over the channels of (n, c, h, w) or (c, h, w)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.softmax(x, -3)


class LogSoftmax(Model):
    """The logarithm of softmax along the axis dim."""

    def build(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return meta.log_softmax(x, self.dim)


class GLU(Model):
    """a * sigmoid(b), with x split into the halves a and b along the axis dim (Y. Dauphin et al., 2017)."""

    def build(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return meta.glu(x, self.dim)
