"""ResNet-18 and ResNet-50 in meta and in torch (K. He, X. Zhang, S. Ren and J. Sun, "Deep Residual Learning for Image
Recognition", 2015). ResNet-18 takes 32x32 images with a 3x3 stem and no pooling, ResNet-50 takes 224x224 images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import meta

WIDTHS = (64, 128, 256, 512)
REPEATS = (3, 4, 6, 3)
"""Blocks of ResNet-50 of each width; ResNet-18 has two."""


class Block(meta.Model):
    """Two 3x3 convolutions with batch norm, and a shortcut around them."""

    def build(self, inputs: int, outputs: int, stride: int) -> None:
        self.conv1 = meta.nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = meta.nn.BatchNorm2d(outputs)
        self.conv2 = meta.nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = meta.nn.BatchNorm2d(outputs)
        self.project = stride != 1 or inputs != outputs
        if self.project:
            self.conv3 = meta.nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.norm3 = meta.nn.BatchNorm2d(outputs)

    def forward(self, x: Any) -> Any:
        h = meta.relu(self.norm1(self.conv1(x)))
        h = self.norm2(self.conv2(h))
        return meta.relu(h + (self.norm3(self.conv3(x)) if self.project else x))


class Bottleneck(meta.Model):
    """1x1, 3x3 and 1x1 convolutions with batch norm, and a shortcut; the result has 4 * width channels."""

    def build(self, inputs: int, width: int, stride: int) -> None:
        self.conv1 = meta.nn.Conv2d(inputs, width, 1, bias=False)
        self.norm1 = meta.nn.BatchNorm2d(width)
        self.conv2 = meta.nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = meta.nn.BatchNorm2d(width)
        self.conv3 = meta.nn.Conv2d(width, 4 * width, 1, bias=False)
        self.norm3 = meta.nn.BatchNorm2d(4 * width)
        self.project = stride != 1 or inputs != 4 * width
        if self.project:
            self.conv4 = meta.nn.Conv2d(inputs, 4 * width, 1, stride=stride, bias=False)
            self.norm4 = meta.nn.BatchNorm2d(4 * width)

    def forward(self, x: Any) -> Any:
        h = meta.relu(self.norm1(self.conv1(x)))
        h = meta.relu(self.norm2(self.conv2(h)))
        h = self.norm3(self.conv3(h))
        return meta.relu(h + (self.norm4(self.conv4(x)) if self.project else x))


class ResNet18(meta.Model):
    """(n, 3, 32, 32) -> (n, 10) scores."""

    def build(self) -> None:
        self.conv = meta.nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.norm = meta.nn.BatchNorm2d(64)
        self.blocks = meta.nn.Sequential(*(Block(*sizes) for sizes in _basic_sizes()))
        self.last = meta.nn.Linear(512, 10)

    def forward(self, x: Any) -> Any:
        h = self.blocks(meta.relu(self.norm(self.conv(x))))
        return self.last(meta.mean(h, (2, 3)))


class ResNet50(meta.Model):
    """(n, 3, 224, 224) -> (n, 1000) scores."""

    def build(self) -> None:
        self.conv = meta.nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.norm = meta.nn.BatchNorm2d(64)
        self.blocks = meta.nn.Sequential(*(Bottleneck(*sizes) for sizes in _bottleneck_sizes()))
        self.last = meta.nn.Linear(2048, 1000)

    def forward(self, x: Any) -> Any:
        h = meta.max_pool2d(meta.relu(self.norm(self.conv(x))), 3, 2, 1)
        return self.last(meta.mean(self.blocks(h), (2, 3)))


def _basic_sizes() -> Iterator[tuple[int, int, int]]:
    """(input channels, output channels, stride) of the blocks of ResNet-18."""
    for inputs, width in zip((64, *WIDTHS[:-1]), WIDTHS, strict=True):
        yield inputs, width, 1 if inputs == width else 2
        yield width, width, 1


def _bottleneck_sizes() -> Iterator[tuple[int, int, int]]:
    """(input channels, width, stride) of the blocks of ResNet-50."""
    inputs = 64
    for width, repeats in zip(WIDTHS, REPEATS, strict=True):
        for i in range(repeats):
            yield inputs, width, 2 if i == 0 and width > 64 else 1
            inputs = 4 * width


def _conv_norm(inputs: int, outputs: int, window: int, stride: int = 1) -> list[torch.nn.Module]:
    conv = torch.nn.Conv2d(inputs, outputs, window, stride, window // 2, bias=False)
    return [conv, torch.nn.BatchNorm2d(outputs)]


class _TorchResidual(torch.nn.Module):
    """relu(path(x) + shortcut(x)); the shortcut projects where the sizes differ."""

    def __init__(self, path: list[torch.nn.Module], inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = torch.nn.Sequential(*path)
        project = stride != 1 or inputs != outputs
        self.shortcut = torch.nn.Sequential(*(_conv_norm(inputs, outputs, 1, stride) if project else []))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.path(x) + self.shortcut(x))


def _torch_block(inputs: int, outputs: int, stride: int) -> torch.nn.Module:
    first, second = _conv_norm(inputs, outputs, 3, stride), _conv_norm(outputs, outputs, 3)
    return _TorchResidual([*first, torch.nn.ReLU(), *second], inputs, outputs, stride)


def _torch_bottleneck(inputs: int, width: int, stride: int) -> torch.nn.Module:
    layers = [*_conv_norm(inputs, width, 1), torch.nn.ReLU(), *_conv_norm(width, width, 3, stride), torch.nn.ReLU()]
    return _TorchResidual([*layers, *_conv_norm(width, 4 * width, 1)], inputs, 4 * width, stride)


def torch_resnet18() -> torch.nn.Module:
    """ResNet18 in torch."""
    blocks = [_torch_block(*sizes) for sizes in _basic_sizes()]
    return torch.nn.Sequential(*_conv_norm(3, 64, 3), torch.nn.ReLU(), *blocks, *_torch_head(512, 10))


def torch_resnet50() -> torch.nn.Module:
    """ResNet50 in torch."""
    stem = [*_conv_norm(3, 64, 7, 2), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1)]
    return torch.nn.Sequential(*stem, *(_torch_bottleneck(*sizes) for sizes in _bottleneck_sizes()),
                               *_torch_head(2048, 1000))  # fmt: skip


def _torch_head(features: int, classes: int) -> list[torch.nn.Module]:
    return [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(features, classes)]
