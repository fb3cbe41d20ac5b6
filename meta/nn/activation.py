"""Activations as layers."""

from __future__ import annotations

from typing import Literal

import meta
from meta._generated.methods import Tensor
from meta.model.model import Model
from meta.model.names import Alias
from meta.nn.function import FunctionLayer


class ReLU(FunctionLayer):
    """max(x, 0)."""


class ReLU6(FunctionLayer):
    """min(max(x, 0), 6)."""


class LeakyReLU(FunctionLayer, function="leaky_relu"):
    """x above 0, negative_slope * x below."""

    negative_slope: float = 0.01


class PReLU(Model):
    """x above 0, w * x below, with one learned slope, or one for each channel along axis 1 (K. He et al., 2015)."""

    weight = Alias("w")

    def build(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.w = meta.full((num_parameters,), init, "float32")

    def forward(self, x: Tensor) -> Tensor:
        return meta.prelu(x, self.w)


class ELU(FunctionLayer):
    """x above 0, alpha * (exp(x) - 1) below (D.-A. Clevert et al., 2015)."""

    alpha: float = 1.0


class SELU(FunctionLayer):
    """ELU with the alpha and the scale that keep mean 0 and variance 1 (G. Klambauer et al., "Self-Normalizing Neural
    Networks", 2017)."""


class CELU(FunctionLayer):
    """x above 0, alpha * (exp(x / alpha) - 1) below (J. T. Barron, 2017)."""

    alpha: float = 1.0


class GELU(FunctionLayer):
    """Gaussian error linear unit; approximate: "none" or "tanh"."""

    approximate: Literal["none", "tanh"] = "none"


class SiLU(FunctionLayer):
    """x * sigmoid(x)."""


class Mish(FunctionLayer):
    """x * tanh(softplus(x)) (D. Misra, "Mish", 2019)."""


class Sigmoid(FunctionLayer):
    """1 / (1 + exp(-x))."""


class LogSigmoid(FunctionLayer):
    """log(sigmoid(x)), computed without overflow."""


class Hardsigmoid(FunctionLayer):
    """min(max(x + 3, 0), 6) / 6."""


class Hardswish(FunctionLayer):
    """x * min(max(x + 3, 0), 6) / 6 (A. Howard et al., "Searching for MobileNetV3", 2019)."""


class Tanh(FunctionLayer):
    """Hyperbolic tangent."""


class Hardtanh(FunctionLayer):
    """min(max(x, min_val), max_val)."""

    min_val: float = -1.0
    max_val: float = 1.0


class Tanhshrink(FunctionLayer):
    """x - tanh(x)."""


class Softshrink(FunctionLayer):
    """x moved towards 0 by lambd, 0 between -lambd and lambd."""

    lambd: float = 0.5


class Hardshrink(FunctionLayer):
    """x, and 0 between -lambd and lambd."""

    lambd: float = 0.5


class Softplus(FunctionLayer):
    """log(1 + exp(beta * x)) / beta, without a threshold unless one is given."""

    beta: float = 1.0
    threshold: float | None = None


class Softsign(FunctionLayer):
    """x / (1 + abs(x))."""


class Threshold(FunctionLayer):
    """x above `threshold`, `value` elsewhere."""

    threshold: float
    value: float


class Softmax(FunctionLayer):
    """exp(x) / sum(exp(x)) along the axis dim."""

    dim: int = -1


class Softmin(FunctionLayer):
    """Softmax of -x along the axis dim."""

    dim: int = -1


class Softmax2d(Model):
    """Softmax over the channels of (n, c, h, w) or (c, h, w)."""

    def forward(self, x: Tensor) -> Tensor:
        return meta.softmax(x, -3)


class LogSoftmax(FunctionLayer, function="log_softmax"):
    """The logarithm of softmax along the axis dim."""

    dim: int = -1


class GLU(FunctionLayer):
    """a * sigmoid(b), with x split into the halves a and b along the axis dim (Y. Dauphin et al., 2017)."""

    dim: int = -1
