"""Layers equal torch's of the same names and arguments: results, gradients and running statistics, in both modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta

torch = pytest.importorskip("torch", reason="the layers are compared with torch's")

from tests.python.nn.pairs import (  # noqa: E402  # torch is needed first
    Row,
    assert_close,
    assert_equal_gradients,
    assert_equal_input_gradients,
    assert_equal_results,
    backward,
    inputs_of,
    pair,
    row,
)

POSITIONS = np.array([[0, 4, 2], [2, 4, 1]])
CLASSES = np.array([2, 0, -100, 1])
SEGMENTS = np.array([[0, 1], [2, 1], [1, 0]])
PARTS = np.random.default_rng(1).dirichlet(np.ones(3), 4).astype(np.float32)
WEIGHTS = (0.5, 1.0, 2.0)

LINEAR = [
    row("Linear", (6, 4), (3, 6)),
    row("Linear", (6, 4), (2, 3, 6), bias=False),
    row("Embedding", (5, 3), POSITIONS),
    row("Embedding", (5, 3), POSITIONS, padding_idx=-1),
    row("Embedding", (5, 3), POSITIONS, padding_idx=0, max_norm=0.5, scale_grad_by_freq=True),
]
CONVOLUTIONS = [
    row("Conv1d", (4, 6, 3), (2, 4, 9), stride=2, padding=1, groups=2),
    row("Conv1d", (2, 3, 4), (2, 2, 9), padding="same", dilation=2),
    row("Conv2d", (4, 6, 3), (2, 4, 7, 6), stride=2, padding=1, groups=2),
    row("Conv2d", (2, 3, (3, 2)), (2, 2, 5, 6), padding=(2, 1), padding_mode="reflect", bias=False),
    row("Conv2d", (2, 3, 3), (1, 2, 5, 4), padding=(1, 2), padding_mode="circular"),
    row("Conv2d", (2, 3, 3), (1, 2, 5, 4), padding="same", padding_mode="replicate"),
    row("Conv3d", (2, 4, (1, 3, 2)), (1, 2, 3, 5, 4), stride=(1, 2, 1), padding=(0, 1, 1)),
    row("ConvTranspose1d", (4, 6, 3), (2, 4, 5), stride=2, padding=1, output_padding=1, groups=2),
    row("ConvTranspose2d", (3, 2, 3), (2, 3, 4, 5), stride=(2, 1), dilation=(1, 2)),
    row("ConvTranspose3d", (2, 2, 2), (1, 2, 2, 3, 2), stride=2, bias=False),
    row("Conv2d", (2, 3, 3), (2, 5, 4), padding=1, padding_mode="reflect"),
    row("ConvTranspose1d", (3, 2, 3), (3, 4)),
]
NORMS = [
    row("BatchNorm1d", (4,), (5, 4)),
    row("BatchNorm1d", (4,), (3, 4, 5), momentum=None),
    row("BatchNorm2d", (4,), (3, 4, 5, 2), momentum=0.3, eps=1e-3),
    row("BatchNorm2d", (4,), (3, 4, 5, 2), affine=False, track_running_stats=False),
    row("BatchNorm3d", (2,), (3, 2, 2, 3, 2)),
    row("LayerNorm", (5,), (3, 2, 5)),
    row("LayerNorm", ((2, 5),), (3, 2, 5), bias=False),
    row("LayerNorm", (5,), (3, 5), elementwise_affine=False, eps=1e-3),
    row("RMSNorm", (5,), (3, 2, 5)),
    row("RMSNorm", ((2, 5),), (3, 2, 5), eps=1e-3, elementwise_affine=False),
    row("GroupNorm", (2, 6), (3, 6, 4)),
    row("GroupNorm", (3, 6), (2, 6, 4, 3), affine=False),
    row("InstanceNorm1d", (3,), (2, 3, 5)),
    row("InstanceNorm2d", (3,), (2, 3, 5, 4), affine=True, track_running_stats=True, momentum=0.4),
    row("InstanceNorm3d", (2,), (2, 2, 3, 2, 2), affine=True),
]
POOLS = [
    row("MaxPool1d", (3,), (2, 3, 8), stride=2, padding=1),
    row("MaxPool2d", (2,), (2, 3, 6, 4)),
    row("MaxPool2d", ((3, 2),), (2, 3, 7, 6), stride=2, ceil_mode=True, dilation=2, return_indices=True),
    row("MaxPool3d", (2,), (1, 2, 4, 4, 2)),
    row("AvgPool1d", (3,), (2, 3, 8), stride=2),
    row("AvgPool2d", (3, 2, 1), (2, 3, 6, 5)),
    row("AvgPool2d", (3, 2, 1), (2, 3, 6, 5), ceil_mode=True, count_include_pad=False),
    row("AvgPool3d", (2,), (1, 2, 4, 4, 2)),
    row("AdaptiveAvgPool1d", (3,), (2, 3, 8)),
    row("AdaptiveAvgPool2d", ((2, None),), (2, 3, 5, 4)),
    row("AdaptiveAvgPool3d", (2,), (1, 2, 4, 3, 2)),
    row("AdaptiveMaxPool1d", (3,), (2, 3, 8)),
    row("AdaptiveMaxPool2d", ((2, 3),), (2, 3, 5, 4), return_indices=True),
    row("AdaptiveMaxPool3d", (1,), (1, 2, 4, 3, 2)),
    row("MaxPool2d", (2,), (3, 6, 4), return_indices=True),
    row("AvgPool1d", (3,), (2, 8)),
    row("AvgPool3d", (2,), (2, 4, 4, 2), divisor_override=3),
    row("AdaptiveAvgPool2d", ((2, None),), (3, 5, 4)),
]
ACTIVATIONS = [
    *(row(name, (), (3, 5)) for name in (
        "ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Sigmoid", "LogSigmoid",
        "Hardsigmoid", "Hardswish", "Tanh", "Hardtanh", "Tanhshrink", "Softshrink", "Hardshrink", "Softplus",
        "Softsign", "Identity",
    )),
    row("LeakyReLU", (), (3, 5), negative_slope=0.2),
    row("PReLU", (4,), (3, 4, 2)),
    row("ELU", (), (3, 5), alpha=0.5),
    row("CELU", (), (3, 5), alpha=2.0),
    row("GELU", (), (3, 5), approximate="tanh"),
    row("Hardtanh", (), (3, 5), min_val=-0.5, max_val=0.25),
    row("Softplus", (), (3, 5), beta=2.0),
    row("Threshold", (0.1, 2.0), (3, 5)),
    row("Softmax", (), (3, 5), dim=0),
    row("LogSoftmax", (), (3, 5), dim=1),
    row("GLU", (), (3, 6)),
    row("GLU", (), (4, 3), dim=0),
]  # fmt: skip
SHAPES = [
    row("Flatten", (), (2, 3, 4)),
    row("Flatten", (0, 1), (2, 3, 4)),
    row("Unflatten", (1, (2, -1)), (3, 6)),
    row("Upsample", (), (2, 3, 4), scale_factor=2),
    row("Upsample", (), (2, 3, 4, 5), size=(7, 3)),
    row("Upsample", (), (2, 3, 4), size=7, mode="linear"),
    row("Upsample", (), (2, 3, 4, 3), scale_factor=(1.5, 2.0), mode="bilinear"),
    row("Upsample", (), (2, 3, 4, 3), scale_factor=2, mode="bilinear", align_corners=True),
    row("Upsample", (), (1, 2, 4, 3), size=(5, 6), mode="bicubic"),
    row("Upsample", (), (1, 2, 2, 3, 2), scale_factor=2, mode="trilinear"),
]
LOSSES = [
    row("MSELoss", (), (4, 3), (4, 3)),
    row("L1Loss", (), (4, 3), (4, 3), reduction="none"),
    row("SmoothL1Loss", (), (4, 3), (4, 3), beta=0.5, reduction="sum"),
    row("HuberLoss", (), (4, 3), (4, 3), delta=0.7),
    row("CrossEntropyLoss", (), (4, 3), CLASSES),
    row("CrossEntropyLoss", (), (3, 3, 2), SEGMENTS, label_smoothing=0.2, reduction="sum"),
    row("CrossEntropyLoss", (), (4, 3), PARTS, label_smoothing=0.1),
    row("CrossEntropyLoss", (), (3, 3, 2), np.moveaxis(np.stack([PARTS[:3], PARTS[1:]], 1), 2, 1).copy()),
    row("NLLLoss", (), (4, 3), abs(CLASSES) % 3, ignore_index=1, reduction="sum"),
    row("BCEWithLogitsLoss", (), (4, 3), PARTS),
    row("BCELoss", (), PARTS, PARTS[::-1].copy()),
    row("KLDivLoss", (), (4, 3), PARTS, reduction="batchmean"),
    row("KLDivLoss", (), (4, 3), (4, 3), log_target=True, reduction="sum"),
]
WEIGHTED = [
    ("CrossEntropyLoss", {"weight": WEIGHTS}, [(4, 3), CLASSES]),
    ("CrossEntropyLoss", {"weight": WEIGHTS, "label_smoothing": 0.3}, [(4, 3), PARTS]),
    ("NLLLoss", {"weight": WEIGHTS}, [(4, 3), CLASSES]),
    ("BCEWithLogitsLoss", {"weight": WEIGHTS, "pos_weight": (2.0, 1.0, 0.5)}, [(4, 3), PARTS]),
    ("BCELoss", {"weight": WEIGHTS}, [PARTS, PARTS[::-1].copy()]),
]
LOSSES += [
    Row(name, (), tuple(inputs), ours={k: np.float32(v) for k, v in options.items()},
        theirs={k: torch.tensor(v) if isinstance(v, tuple) else v for k, v in options.items()})
    for name, options, inputs in WEIGHTED
]  # fmt: skip
SIGNS = np.array([1, -1, 1, -1])
LABELS = np.array([[2, 0, -1], [1, -1, -1], [-1, 1, 2], [0, 1, 2]])
MARGINS = [
    row("SoftMarginLoss", (), (2, 4), np.stack([SIGNS, -SIGNS])),
    row("HingeEmbeddingLoss", (), (4,), SIGNS, margin=0.5, reduction="sum"),
    row("MarginRankingLoss", (), (4,), (4,), SIGNS, margin=0.2),
    row("CosineEmbeddingLoss", (), (4, 3), (4, 3), SIGNS, margin=0.1),
    row("GaussianNLLLoss", (), (4, 3), (4, 3), PARTS + 0.1, full=True),
    row("PoissonNLLLoss", (), (4, 3), PARTS * 3, full=True, reduction="sum"),
    row("MultiMarginLoss", (), (4, 3), abs(CLASSES) % 3, p=2, margin=0.7),
    row("MultiLabelMarginLoss", (), (4, 3), LABELS, reduction="none"),
    row("MultiLabelSoftMarginLoss", (), (4, 3), PARTS),
    row("TripletMarginLoss", (), (4, 3), (4, 3), (4, 3), swap=True, margin=0.5),
    row("TripletMarginWithDistanceLoss", (), (4, 3), (4, 3), PARTS),
    row("CTCLoss", (), (5, 4, 3), np.array([[1, 2], [2, 2], [1, 1], [1, 2]]), np.array([5, 4, 5, 3]),
        np.array([2, 2, 1, 2])),
    row("PairwiseDistance", (), (4, 3), PARTS, p=3, keepdim=True),
    row("CosineSimilarity", (), (4, 3), PARTS, dim=0),
]  # fmt: skip
PADS = [
    *(row(f"{kind}Pad{rank}d", (1,), (1, 2, *(3,) * rank)) for kind in ("Zero", "Circular", "Reflection", "Replication")
      for rank in (1, 2, 3)),
    *(row(f"ConstantPad{rank}d", ((-1, 2) * rank, 0.5), (2, *(3,) * rank)) for rank in (1, 2, 3)),
]  # fmt: skip
PATCHES = [
    row("PixelShuffle", (2,), (1, 8, 2, 3)),
    row("PixelUnshuffle", (2,), (2, 4, 6)),
    row("ChannelShuffle", (3,), (2, 6, 3)),
    row("Unfold", ((2, 3),), (1, 2, 4, 5), padding=(1, 0), stride=2),
    row("Fold", ((4, 5), 2), (2, 4, 12)),
    row("MaxUnpool1d", (2,), (1, 2, 2), np.array([[[0, 3], [1, 2]]])),
    row("MaxUnpool2d", (2,), (1, 1, 1, 2), np.array([[[[4, 3]]]])),
    row("MaxUnpool3d", (2,), (1, 1, 1, 1, 2), np.array([[[[[4, 15]]]]])),
    row("AvgPool2d", (3, 2, 1), (2, 3, 6, 5), ceil_mode=True, divisor_override=5),
    row("LocalResponseNorm", (3,), (2, 5, 3), alpha=0.5, k=1.2),
    row("Bilinear", (4, 5, 2), (2, 3, 4), (2, 3, 5)),
    row("EmbeddingBag", (5, 3), POSITIONS),
    row("EmbeddingBag", (5, 3), POSITIONS[0], np.array([0, 2]), mode="max", padding_idx=-1),
    row("EmbeddingBag", (5, 3), POSITIONS, mode="sum", max_norm=0.5, scale_grad_by_freq=True),
    row("Softmin", (), (3, 5), dim=0),
    row("Softmax2d", (), (2, 3, 2, 2)),
    row("Upsample", (), (1, 2, 4, 3), scale_factor=1.7, mode="bilinear"),
    row("UpsamplingNearest2d", (), (1, 2, 4, 3), scale_factor=2),
    row("UpsamplingBilinear2d", (), (1, 2, 4, 3), size=(5, 6)),
]
RECURRENT = [
    row("RNN", (3, 4), (5, 2, 3), nonlinearity="relu"),
    row("RNN", (3, 4, 2), (2, 5, 3), batch_first=True, bidirectional=True),
    row("LSTM", (3, 4), (5, 2, 3)),
    row("LSTM", (3, 4, 2), (2, 5, 3), batch_first=True, bidirectional=True),
    row("LSTM", (3, 4), (5, 3), bias=False),
    row("GRU", (3, 4, 2), (5, 2, 3)),
    row("GRU", (3, 4), (2, 5, 3), batch_first=True, bidirectional=True),
    row("GRU", (3, 4), (5, 2, 3), (1, 2, 4), bias=False),
    row("RNNCell", (3, 4), (2, 3), nonlinearity="relu"),
    row("LSTMCell", (3, 4), (2, 3)),
    row("LSTMCell", (3, 4), (3,), bias=False),
    row("GRUCell", (3, 4), (2, 3), (2, 4)),
]
ROWS = [*RECURRENT, *LINEAR, *CONVOLUTIONS, *NORMS, *POOLS, *ACTIVATIONS, *SHAPES, *LOSSES, *MARGINS, *PADS, *PATCHES]
COMPILED = [
    row("Conv1d", (2, 3, 4), (2, 2, 9), padding="same", dilation=2),
    row("Conv2d", (2, 3, 3), (1, 2, 5, 4), padding=(1, 2), padding_mode="circular"),
    row("BatchNorm1d", (4,), (3, 4, 5), momentum=None),
    row("BatchNorm2d", (4,), (3, 4, 5, 2), affine=False, track_running_stats=False),
    row("InstanceNorm2d", (3,), (2, 3, 5, 4), affine=True, track_running_stats=True, momentum=0.4),
    row("Embedding", (5, 3), POSITIONS, padding_idx=-1),
]


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_equals_torch(case: Row) -> None:
    ours, theirs = pair(case)
    xs, ts = inputs_of(case)
    for _ in range(2):  # statistics run on
        y, t = ours(*xs), theirs(*ts)
    assert_equal_results(y, t)
    backward(y)
    backward(t)
    assert_equal_gradients(ours, theirs, xs, ts)
    for name, buffer in ours.named_buffers():
        assert_close(buffer, dict(theirs.named_buffers())[name].to(torch.float32), name)
    check_inference(case, ours, theirs)


def check_inference(case: Row, ours: Any, theirs: Any) -> None:
    ours.infer_mode()
    theirs.eval()
    xs, ts = inputs_of(case)
    y, t = ours(*xs), theirs(*ts)
    assert_equal_results(y, t)
    if any(x.requires_grad for x in xs):
        backward(y)
        backward(t)
        assert_equal_input_gradients(xs, ts)


@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_compiled_equals_torch(case: Row) -> None:
    ours, theirs = pair(case)
    xs, ts = inputs_of(case)
    executor = meta.vm.compile(ours)
    for _ in range(2):
        y, t = executor(*xs), theirs(*ts)
    assert_equal_results(y, t)
    backward(y)
    backward(t)
    assert_equal_gradients(ours, theirs, xs, ts)
    assert_equal_results(meta.vm.compile(ours.infer_mode())(*xs), theirs.eval()(*ts))


def test_every_layer_has_a_row() -> None:
    tested = {case.name for case in ROWS}
    elsewhere = ("init", "Sequential", "Module", "Dropout", "AlphaDropout", "FeatureAlphaDropout", "FractionalMaxPool",
                 "MultiHeadAttention", "Transformer")  # fmt: skip
    assert {name for name in dir(meta.nn) if not name.startswith(elsewhere)} == tested
