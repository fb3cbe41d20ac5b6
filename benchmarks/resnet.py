"""ResNet-18 for 32x32 images (K. He, X. Zhang, S. Ren and J. Sun, "Deep Residual Learning for Image Recognition",
2015; a 3x3 stem without pooling), in meta and in torch."""

from __future__ import annotations

from typing import Any

import torch

import meta

WIDTHS = (64, 128, 256, 512)


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


class ResNet18(meta.Model):
    """(n, 3, 32, 32) -> (n, 10) scores."""

    def build(self) -> None:
        self.conv = meta.nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.norm = meta.nn.BatchNorm2d(64)
        pairs = zip((64, *WIDTHS[:-1]), WIDTHS, strict=True)
        blocks = [b for i, (a, w) in enumerate(pairs) for b in (Block(a, w, 1 + (i > 0)), Block(w, w, 1))]
        self.blocks = meta.nn.Sequential(*blocks)
        self.last = meta.nn.Linear(512, 10)

    def forward(self, x: Any) -> Any:
        h = self.blocks(meta.relu(self.norm(self.conv(x))))
        return self.last(meta.mean(h, (2, 3)))


class _TorchBlock(torch.nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(outputs)
        self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(outputs)
        self.shortcut = torch.nn.Sequential()
        if stride != 1 or inputs != outputs:
            conv = torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = torch.nn.Sequential(conv, torch.nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(h)) + self.shortcut(x))


def torch_resnet18() -> torch.nn.Module:
    """The same network in torch."""
    pairs = zip((64, *WIDTHS[:-1]), WIDTHS, strict=True)
    blocks = [b for i, (a, w) in enumerate(pairs) for b in (_TorchBlock(a, w, 1 + (i > 0)), _TorchBlock(w, w, 1))]
    stem = [torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU()]
    head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 10)]
    return torch.nn.Sequential(*stem, *blocks, *head)
