"""Linear layers and convolutions whose inputs and weights are rounded to 8-bit integers.

    Calibrated       computes as before, and keeps the range of its inputs
    FakeQuantized    rounds inputs and weights to values of integers, and trains the weights through the rounding
    QuantizedLayer   keeps the weights as integers

Parameters have the names that the layer gives them in torch, and here with `layer.` in front.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import meta
from meta._generated.methods import Tensor
from meta.eager.ndarray import NDArray
from meta.model.model import Model
from meta.quantize.ranges import LEVELS, Range, weight_scale


class Calibrated(Model):
    """A layer that computes as before, and keeps the range of its inputs."""

    _torch_names: ClassVar[Mapping[str, str]] = {"layer": ""}

    def build(self, layer: Any, range_: Range) -> None:
        self.layer, self.range = layer, range_
        self.training = layer.training

    def forward(self, x: Tensor) -> Tensor:
        self.range(x)
        return self.layer(x)

    def converted(self) -> QuantizedLayer:
        """The layer with integer weights, which no longer train."""
        scale, zero_point = self.range.step()
        w = self.layer.w.detach()
        factor = weight_scale(w)
        self.layer.w = meta.quantize_linear(w, factor).detach()
        for x in self.layer.parameters():
            x.requires_grad = False
        return QuantizedLayer(self.layer, scale, zero_point.cast("uint8"), factor)


class FakeQuantized(Calibrated):
    """A layer whose inputs and weights are rounded to the values of integers; gradients pass straight through.

    In train mode it keeps the range of its inputs, in inference mode it uses this range."""

    def forward(self, x: Tensor) -> Tensor:
        self.range(x)
        return self.forward_infer(x)

    def forward_infer(self, x: Tensor) -> Tensor:
        scale, zero_point = self.range.step()
        w = self.layer.w
        rounded = meta.fake_quantize(w, weight_scale(w), 0, -127, 127)
        return self.layer.with_weight(meta.fake_quantize(x, scale, zero_point, 0, LEVELS), rounded)


class QuantizedLayer(Model):
    """A layer with weights in int8, a scale for each output channel, and inputs that are rounded to uint8.

    Programs compute the product with integers; results are equal up to the rounding of sums."""

    _torch_names: ClassVar[Mapping[str, str]] = {"layer": ""}
    scale: NDArray
    zero_point: NDArray
    weight_scale: NDArray

    def build(self, layer: Any, scale: NDArray, zero_point: NDArray, weight_scale: NDArray) -> None:
        self.layer = layer
        for name, value in (("scale", scale), ("zero_point", zero_point), ("weight_scale", weight_scale)):
            self.buffer(name, value)
        self.training = layer.training

    def forward(self, x: Tensor) -> Tensor:
        integers = meta.quantize_linear(x, self.scale, self.zero_point, "uint8")
        rounded = meta.dequantize_linear(integers, self.scale, self.zero_point)
        return self.layer.with_weight(rounded, meta.dequantize_linear(self.layer.w, self.weight_scale))
