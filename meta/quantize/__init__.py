"""Models in 8-bit integers: calibration after training, training with rounded values, and layers of integers.

    small = meta.quantize.ptq(model, batches)                # after training: ranges of inputs from a few batches
    model = meta.quantize.qat(model)                         # train the rounded model, as any other one, then
    small = meta.quantize.convert(model)

Linear layers and convolutions compute with 8-bit integers: weights with a scale for each output channel, inputs with
one scale and zero point (R. Krishnamoorthi, "Quantizing deep convolutional networks for efficient inference", 2018).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.quantize.api import convert as convert
    from meta.quantize.api import ptq as ptq
    from meta.quantize.api import qat as qat
    from meta.quantize.layers import Calibrated as Calibrated
    from meta.quantize.layers import FakeQuantized as FakeQuantized
    from meta.quantize.layers import QuantizedLayer as QuantizedLayer
    from meta.quantize.ranges import Range as Range
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.quantize.api": ("convert", "ptq", "qat"),
        "meta.quantize.layers": ("Calibrated", "FakeQuantized", "QuantizedLayer"),
        "meta.quantize.ranges": ("Range",),
    })  # fmt: skip
