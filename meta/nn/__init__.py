"""Neural-network layers: models with the usual parameters and initialisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.nn.attention import MultiHeadAttention as MultiHeadAttention
    from meta.nn.attention import TransformerEncoderLayer as TransformerEncoderLayer
    from meta.nn.layers import GELU as GELU
    from meta.nn.layers import AvgPool2d as AvgPool2d
    from meta.nn.layers import BatchNorm2d as BatchNorm2d
    from meta.nn.layers import Conv2d as Conv2d
    from meta.nn.layers import Dropout as Dropout
    from meta.nn.layers import Embedding as Embedding
    from meta.nn.layers import Flatten as Flatten
    from meta.nn.layers import LayerNorm as LayerNorm
    from meta.nn.layers import Linear as Linear
    from meta.nn.layers import MaxPool2d as MaxPool2d
    from meta.nn.layers import ReLU as ReLU
    from meta.nn.layers import Sequential as Sequential
    from meta.nn.layers import Tanh as Tanh
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.nn.attention": ("MultiHeadAttention", "TransformerEncoderLayer"),
        "meta.nn.layers": (
            "AvgPool2d", "BatchNorm2d", "Conv2d", "Dropout", "Embedding", "Flatten", "GELU", "LayerNorm", "Linear",
            "MaxPool2d", "ReLU", "Sequential", "Tanh",
        ),
    })  # fmt: skip
