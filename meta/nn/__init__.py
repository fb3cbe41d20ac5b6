"""Neural-network layers: models with the usual parameters and initialisation, named as in torch.nn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.nn import init as init
    from meta.nn.activation import CELU as CELU
    from meta.nn.activation import ELU as ELU
    from meta.nn.activation import GELU as GELU
    from meta.nn.activation import GLU as GLU
    from meta.nn.activation import SELU as SELU
    from meta.nn.activation import Hardshrink as Hardshrink
    from meta.nn.activation import Hardsigmoid as Hardsigmoid
    from meta.nn.activation import Hardswish as Hardswish
    from meta.nn.activation import Hardtanh as Hardtanh
    from meta.nn.activation import LeakyReLU as LeakyReLU
    from meta.nn.activation import LogSigmoid as LogSigmoid
    from meta.nn.activation import LogSoftmax as LogSoftmax
    from meta.nn.activation import Mish as Mish
    from meta.nn.activation import PReLU as PReLU
    from meta.nn.activation import ReLU as ReLU
    from meta.nn.activation import ReLU6 as ReLU6
    from meta.nn.activation import Sigmoid as Sigmoid
    from meta.nn.activation import SiLU as SiLU
    from meta.nn.activation import Softmax as Softmax
    from meta.nn.activation import Softmax2d as Softmax2d
    from meta.nn.activation import Softmin as Softmin
    from meta.nn.activation import Softplus as Softplus
    from meta.nn.activation import Softshrink as Softshrink
    from meta.nn.activation import Softsign as Softsign
    from meta.nn.activation import Tanh as Tanh
    from meta.nn.activation import Tanhshrink as Tanhshrink
    from meta.nn.activation import Threshold as Threshold
    from meta.nn.attention import MultiHeadAttention as MultiHeadAttention
    from meta.nn.container import ModuleDict as ModuleDict
    from meta.nn.container import ModuleList as ModuleList
    from meta.nn.container import Sequential as Sequential
    from meta.nn.conv import Conv1d as Conv1d
    from meta.nn.conv import Conv2d as Conv2d
    from meta.nn.conv import Conv3d as Conv3d
    from meta.nn.conv import ConvTranspose1d as ConvTranspose1d
    from meta.nn.conv import ConvTranspose2d as ConvTranspose2d
    from meta.nn.conv import ConvTranspose3d as ConvTranspose3d
    from meta.nn.dropout import AlphaDropout as AlphaDropout
    from meta.nn.dropout import Dropout as Dropout
    from meta.nn.dropout import Dropout1d as Dropout1d
    from meta.nn.dropout import Dropout2d as Dropout2d
    from meta.nn.dropout import Dropout3d as Dropout3d
    from meta.nn.dropout import FeatureAlphaDropout as FeatureAlphaDropout
    from meta.nn.linear import Bilinear as Bilinear
    from meta.nn.linear import Embedding as Embedding
    from meta.nn.linear import EmbeddingBag as EmbeddingBag
    from meta.nn.linear import Linear as Linear
    from meta.nn.loss import BCELoss as BCELoss
    from meta.nn.loss import BCEWithLogitsLoss as BCEWithLogitsLoss
    from meta.nn.loss import CrossEntropyLoss as CrossEntropyLoss
    from meta.nn.loss import HuberLoss as HuberLoss
    from meta.nn.loss import KLDivLoss as KLDivLoss
    from meta.nn.loss import L1Loss as L1Loss
    from meta.nn.loss import MSELoss as MSELoss
    from meta.nn.loss import NLLLoss as NLLLoss
    from meta.nn.loss import SmoothL1Loss as SmoothL1Loss
    from meta.nn.margin import CosineEmbeddingLoss as CosineEmbeddingLoss
    from meta.nn.margin import CosineSimilarity as CosineSimilarity
    from meta.nn.margin import CTCLoss as CTCLoss
    from meta.nn.margin import GaussianNLLLoss as GaussianNLLLoss
    from meta.nn.margin import HingeEmbeddingLoss as HingeEmbeddingLoss
    from meta.nn.margin import MarginRankingLoss as MarginRankingLoss
    from meta.nn.margin import MultiLabelMarginLoss as MultiLabelMarginLoss
    from meta.nn.margin import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
    from meta.nn.margin import MultiMarginLoss as MultiMarginLoss
    from meta.nn.margin import PairwiseDistance as PairwiseDistance
    from meta.nn.margin import PoissonNLLLoss as PoissonNLLLoss
    from meta.nn.margin import SoftMarginLoss as SoftMarginLoss
    from meta.nn.margin import TripletMarginLoss as TripletMarginLoss
    from meta.nn.margin import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
    from meta.nn.norm import BatchNorm1d as BatchNorm1d
    from meta.nn.norm import BatchNorm2d as BatchNorm2d
    from meta.nn.norm import BatchNorm3d as BatchNorm3d
    from meta.nn.norm import GroupNorm as GroupNorm
    from meta.nn.norm import InstanceNorm1d as InstanceNorm1d
    from meta.nn.norm import InstanceNorm2d as InstanceNorm2d
    from meta.nn.norm import InstanceNorm3d as InstanceNorm3d
    from meta.nn.norm import LayerNorm as LayerNorm
    from meta.nn.norm import LocalResponseNorm as LocalResponseNorm
    from meta.nn.norm import RMSNorm as RMSNorm
    from meta.nn.padding import CircularPad1d as CircularPad1d
    from meta.nn.padding import CircularPad2d as CircularPad2d
    from meta.nn.padding import CircularPad3d as CircularPad3d
    from meta.nn.padding import ConstantPad1d as ConstantPad1d
    from meta.nn.padding import ConstantPad2d as ConstantPad2d
    from meta.nn.padding import ConstantPad3d as ConstantPad3d
    from meta.nn.padding import ReflectionPad1d as ReflectionPad1d
    from meta.nn.padding import ReflectionPad2d as ReflectionPad2d
    from meta.nn.padding import ReflectionPad3d as ReflectionPad3d
    from meta.nn.padding import ReplicationPad1d as ReplicationPad1d
    from meta.nn.padding import ReplicationPad2d as ReplicationPad2d
    from meta.nn.padding import ReplicationPad3d as ReplicationPad3d
    from meta.nn.padding import ZeroPad1d as ZeroPad1d
    from meta.nn.padding import ZeroPad2d as ZeroPad2d
    from meta.nn.padding import ZeroPad3d as ZeroPad3d
    from meta.nn.patches import ChannelShuffle as ChannelShuffle
    from meta.nn.patches import Fold as Fold
    from meta.nn.patches import FractionalMaxPool2d as FractionalMaxPool2d
    from meta.nn.patches import FractionalMaxPool3d as FractionalMaxPool3d
    from meta.nn.patches import MaxUnpool1d as MaxUnpool1d
    from meta.nn.patches import MaxUnpool2d as MaxUnpool2d
    from meta.nn.patches import MaxUnpool3d as MaxUnpool3d
    from meta.nn.patches import PixelShuffle as PixelShuffle
    from meta.nn.patches import PixelUnshuffle as PixelUnshuffle
    from meta.nn.patches import Unfold as Unfold
    from meta.nn.pool import AdaptiveAvgPool1d as AdaptiveAvgPool1d
    from meta.nn.pool import AdaptiveAvgPool2d as AdaptiveAvgPool2d
    from meta.nn.pool import AdaptiveAvgPool3d as AdaptiveAvgPool3d
    from meta.nn.pool import AdaptiveMaxPool1d as AdaptiveMaxPool1d
    from meta.nn.pool import AdaptiveMaxPool2d as AdaptiveMaxPool2d
    from meta.nn.pool import AdaptiveMaxPool3d as AdaptiveMaxPool3d
    from meta.nn.pool import AvgPool1d as AvgPool1d
    from meta.nn.pool import AvgPool2d as AvgPool2d
    from meta.nn.pool import AvgPool3d as AvgPool3d
    from meta.nn.pool import MaxPool1d as MaxPool1d
    from meta.nn.pool import MaxPool2d as MaxPool2d
    from meta.nn.pool import MaxPool3d as MaxPool3d
    from meta.nn.recurrent import GRU as GRU
    from meta.nn.recurrent import LSTM as LSTM
    from meta.nn.recurrent import RNN as RNN
    from meta.nn.recurrent import GRUCell as GRUCell
    from meta.nn.recurrent import LSTMCell as LSTMCell
    from meta.nn.recurrent import RNNCell as RNNCell
    from meta.nn.shape import Flatten as Flatten
    from meta.nn.shape import Identity as Identity
    from meta.nn.shape import Unflatten as Unflatten
    from meta.nn.shape import Upsample as Upsample
    from meta.nn.shape import UpsamplingBilinear2d as UpsamplingBilinear2d
    from meta.nn.shape import UpsamplingNearest2d as UpsamplingNearest2d
    from meta.nn.transformer import TransformerDecoder as TransformerDecoder
    from meta.nn.transformer import TransformerDecoderLayer as TransformerDecoderLayer
    from meta.nn.transformer import TransformerEncoder as TransformerEncoder
    from meta.nn.transformer import TransformerEncoderLayer as TransformerEncoderLayer
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.nn": ("init",),
        "meta.nn.activation": (
            "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
            "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax",
            "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
        ),
        "meta.nn.attention": ("MultiHeadAttention",),
        "meta.nn.container": ("ModuleDict", "ModuleList", "Sequential"),
        "meta.nn.conv": ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
        "meta.nn.dropout": ("AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"),
        "meta.nn.linear": ("Bilinear", "Embedding", "EmbeddingBag", "Linear"),
        "meta.nn.loss": (
            "BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
            "NLLLoss", "SmoothL1Loss",
        ),
        "meta.nn.margin": (
            "CTCLoss", "CosineEmbeddingLoss", "CosineSimilarity", "GaussianNLLLoss", "HingeEmbeddingLoss",
            "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
            "PairwiseDistance", "PoissonNLLLoss", "SoftMarginLoss", "TripletMarginLoss",
            "TripletMarginWithDistanceLoss",
        ),
        "meta.nn.norm": (
            "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
            "InstanceNorm3d", "LayerNorm", "LocalResponseNorm", "RMSNorm",
        ),
        "meta.nn.padding": (
            "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
            "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
            "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
        ),
        "meta.nn.patches": (
            "ChannelShuffle", "Fold", "FractionalMaxPool2d", "FractionalMaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
            "MaxUnpool3d", "PixelShuffle", "PixelUnshuffle", "Unfold",
        ),
        "meta.nn.pool": (
            "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
            "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d",
        ),
        "meta.nn.recurrent": ("GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"),
        "meta.nn.shape": (
            "Flatten", "Identity", "Unflatten", "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d",
        ),
        "meta.nn.transformer": (
            "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
        ),
    })  # fmt: skip
