"""A small U-Net that removes noise, trained to predict the noise as in a diffusion model (J. Ho, A. Jain and P.
Abbeel, "Denoising Diffusion Probabilistic Models", 2020): `python -m examples.unet`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

import meta
from examples import common

LEVELS = 50
"""The number of noise levels."""


def block(nn: Any, inputs: int, outputs: int) -> Any:
    """A convolution, group norm and SiLU, of meta.nn or torch.nn."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU())


def add_parts(model: Any, nn: Any, width: int) -> None:
    """Give a model the parts of the network, of meta.nn or torch.nn."""
    model.level = nn.Embedding(LEVELS, 2 * width)
    model.first, model.down = block(nn, 1, width), nn.Conv2d(width, width, 3, stride=2, padding=1)
    model.middle, model.up = block(nn, width, 2 * width), nn.ConvTranspose2d(2 * width, width, 2, stride=2)
    model.last, model.out = block(nn, 2 * width, width), nn.Conv2d(width, 1, 1)


class UNet(meta.Model):
    """(n, 1, 8, 8) images and their noise levels (n,) -> the noise."""

    def build(self, width: int) -> None:
        add_parts(self, meta.nn, width)

    def forward(self, x, level):
        fine = self.first(x)
        embedded = self.level(level)
        coarse = self.middle(self.down(fine)) + embedded.reshape((*embedded.shape, 1, 1))
        return self.out(self.last(meta.concatenate([fine, self.up(coarse)], 1)))


class TorchUNet(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        add_parts(self, torch.nn, width)

    def forward(self, x, level):
        fine = self.first(x)
        coarse = self.middle(self.down(fine)) + self.level(level)[:, :, None, None]
        return self.out(self.last(torch.cat([fine, self.up(coarse)], 1)))


def data() -> tuple[np.ndarray[Any, Any], ...]:
    """Noisy digits, their noise levels, and the noise."""
    images, _ = common.digits()
    generator = np.random.default_rng(0)
    level = generator.integers(0, LEVELS, len(images))
    noise = generator.standard_normal(images.shape).astype(np.float32)
    signal = np.cos(0.5 * np.pi * (level + 1) / (LEVELS + 1)).astype(np.float32)[:, None, None, None]
    return signal * (2 * images - 1) + np.sqrt(1 - signal * signal) * noise, level, noise


def loss(model, noisy, level, noise):
    return meta.mse_loss(model(noisy, level).cast("float32"), noise)


def torch_loss(model, noisy, level, noise):
    return torch.nn.functional.mse_loss(model(noisy, level), noise)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--width", type=int, default=16, help="channels (default: 16)")


EXAMPLE = common.Example(
    __doc__, lambda o: UNet(o.width), lambda o: TorchUNet(o.width), lambda o: data(), loss, torch_loss, rate=0.05,
    configure=configure,
)  # fmt: skip
main = EXAMPLE.main


if __name__ == "__main__":
    main()
