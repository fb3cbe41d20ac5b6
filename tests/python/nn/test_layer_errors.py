"""Arguments that layers refuse, with the text of each error."""

from __future__ import annotations

from typing import Any

import pytest

import meta
from meta import nn
from meta.errors import ArgumentError, MetaError


def x(*shape: int) -> meta.NDArray:
    return meta.ones(shape)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda: nn.Conv2d(4, 6, 3, groups=4), r"\[Conv2d\] out_channels is 6, groups is 4; expected groups that"),
        (lambda: nn.Conv1d(3, 6, 3, groups=2), r"\[Conv1d\] in_channels is 3, groups is 2"),
        (lambda: nn.Conv2d(4, 6, (3, 3, 3)), r"kernel_size is \(3, 3, 3\); expected an int, or 2 ints"),
        (lambda: nn.Conv2d(4, 6, 3, stride=2, padding="same"), r'padding is "same", stride is \(2, 2\); expected'),
        (lambda: nn.Conv2d(4, 6, 3, padding="full"), "padding is 'full'; expected an int, a sequence of ints, "),  # type: ignore[arg-type]
        (lambda: nn.Conv2d(4, 6, 3, padding_mode="edge"), 'padding_mode is \'edge\'; expected "zeros", "reflect"'),  # type: ignore[arg-type]
        (lambda: nn.ConvTranspose1d(2, 2, 2, stride=3)(x(1, 2, 3), (12,)),
         r"\[ConvTranspose1d\] output_size is \(12,\); expected sizes from \(8,\) to \(10,\)"),
        (lambda: nn.GroupNorm(4, 6), r"\[GroupNorm\] num_channels is 6, num_groups is 4; expected groups that divide"),
        (lambda: nn.LayerNorm(()), r"\[LayerNorm\] normalized_shape is \(\); expected at least one axis"),
        (lambda: nn.RMSNorm(4, elementwise_affine=False)(x(2, 3)),
         r"\[RMSNorm\] 'x' has shape \(2, 3\); expected last axes of shape \(4,\), as normalized_shape"),
        (lambda: nn.Embedding(4, 3, padding_idx=4), r"\[Embedding\] padding_idx is 4; expected -4 to 3, a row of the"),
        (lambda: nn.Dropout2d(1.5), r"\[Dropout2d\] p is 1.5; expected a probability from 0 to 1"),
        (lambda: nn.AdaptiveAvgPool2d((1, 2, 3)), r"output_size is \(1, 2, 3\); expected an int, or 2 of them"),
        (lambda: nn.Flatten(0, 3)(x(2, 3)), r"\[Flatten\] 'x' has shape \(2, 3\), start_dim is 0, end_dim is 3"),
        (lambda: nn.Upsample(), r"\[Upsample\] size is None, scale_factor is None; expected one of the two"),
        (lambda: nn.Upsample(2, mode="area"), "mode is 'area'; expected \"nearest\", \"linear\""),  # type: ignore[arg-type]
        (lambda: nn.Upsample(2, mode="linear")(x(1, 1, 2, 2)), r"mode is 'linear', 'x' has shape \(1, 1, 2, 2\)"),
        (lambda: nn.Upsample(scale_factor=0.2)(x(1, 1, 3)), r"the result would have sizes \(0,\); expected at least"),
        (lambda: nn.AvgPool2d(2, divisor_override=0), r"\[AvgPool2d\] divisor_override is 0; expected another number"),
        (lambda: nn.ZeroPad2d((1, 2, 3)), r"\[ZeroPad2d\] padding is \(1, 2, 3\); expected an int, or 4 of them"),
        (lambda: nn.CircularPad1d(1)(x(2)), r"\[CircularPad1d\] 'x' has shape \(2,\); expected rank 3, or 2 without"),
        (lambda: nn.FractionalMaxPool2d(2), r"output_size is None, output_ratio is None; expected one of the two"),
        (lambda: nn.EmbeddingBag(4, 3, padding_idx=-5), r"\[Embedding\] padding_idx is -5; expected -4 to 3, a row"),
        (lambda: nn.CTCLoss(reduction="avg"), r"\[CTCLoss\] reduction is 'avg'"),  # type: ignore[arg-type]
        (lambda: nn.MSELoss("avg"), r"\[MSELoss\] reduction is 'avg'; expected \"mean\", \"sum\" or \"none\""),  # type: ignore[arg-type]
        (lambda: nn.HuberLoss(delta=0.0), r"\[HuberLoss\] delta is 0.0; expected a positive number"),
    ],
)  # fmt: skip
def test_refuses(use: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        use()


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (nn.Conv2d(3, 4, 3), 1), (nn.ConvTranspose2d(3, 4, 3), 1), (nn.Linear(3, 4), 1), (nn.MaxPool2d(2), 1),
        (nn.AdaptiveAvgPool2d(2), 1), (nn.LSTM(3, 4), 1), (nn.RNNCell(3, 4), 1), (nn.MultiHeadAttention(4, 2), 3),
        (nn.Flatten(), 1), (nn.Dropout(0.5), 1), (nn.RMSNorm(3), 1), (nn.ZeroPad2d(1), 1), (nn.CrossEntropyLoss(), 2),
        (nn.Upsample(2), 1), (nn.Embedding(3, 4), 1), (nn.TransformerEncoderLayer(4, 2), 1), (nn.CTCLoss(), 4),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_layers_refuse_inputs_that_are_no_tensors(layer: meta.Model, inputs: int) -> None:
    for value in (None, "text", object()):
        with pytest.raises(MetaError, match="expected") as raised:
            layer(*[value] * inputs)
        assert "test_layer_errors.py" in str(raised.value)


def test_models_of_users_keep_their_own_errors() -> None:
    class Reader(meta.Model):
        def forward(self, options: Any) -> Any:
            return options.missing

    with pytest.raises(AttributeError, match="'int' object has no attribute 'missing'"):
        Reader()(3)
