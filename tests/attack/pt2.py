"""Mutated `.pt2` files. The outcome may only be a model whose program verifies, or an error of meta, within bounded
time and memory. The mutations are those of `scripts/fuzz_pt2.py`."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from meta.errors import ArgumentError, FileError, MetaError
from meta.frontend.torch import TorchProgramError
from meta.ir.verifier import verify
from meta.passes.standard import standard
from scripts import fuzz_pt2
from tests.attack.files import bounded, wrong_error


@cache
def archives() -> list[bytes]:
    """The examples of `fuzz_pt2`, and networks with most kinds of operators."""
    return [*fuzz_pt2.examples(), *(_saved(*build()) for build in (_images, _sequences, _indices))]


def case(seed: int, index: int) -> str:
    """One mutated file."""
    rng = random.Random(f"pt2/{seed}/{index}")
    changed = fuzz_pt2.mutated(rng.choice(archives()), rng)
    return bounded(lambda: _read(changed, rng))


def _read(data: bytes, rng: random.Random) -> str:
    try:
        model = fuzz_pt2.read(data)
        if rng.random() < 0.1:
            verify(standard()(model.module))
    except ArgumentError as error:  # a number among the inputs was exported as dynamic: there is no program without it
        return "" if "was exported as dynamic" in str(error) else str(error)
    except MetaError as error:
        return wrong_error(error, FileError if isinstance(error, FileError) else TorchProgramError)
    return ""


def _saved(module: Any, *inputs: Any) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(module.eval(), inputs), buffer)
    return buffer.getvalue()


def _images() -> tuple[Any, ...]:
    nn = torch.nn
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.SiLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, groups=2), nn.GroupNorm(2, 4), nn.AvgPool2d(2), nn.ConvTranspose2d(4, 2, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3), nn.LogSoftmax(-1),
    )  # fmt: skip
    return network, torch.ones(2, 3, 12, 12)


def _sequences() -> tuple[Any, ...]:
    return torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.ones(2, 5, 8)


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.ones(7, 4))

    def forward(self, *inputs: Any) -> Any:
        return self.function(self.weight, *inputs)


def _indices() -> tuple[Any, ...]:
    def function(weight: Any, places: Any, x: Any) -> Any:
        rows = torch.nn.functional.embedding(places, weight)
        best, where = rows.topk(2, -1)
        masked = torch.where(x > 0, x, -1e9).masked_fill(places[..., None] == 2, 0.0)
        moved = torch.cat([masked, rows.roll(1, 0)], 1).gather(1, where.clamp(0, 3))
        moved = moved.scatter_add(1, where % 2, best).index_select(0, places[:, 0] % 3)
        parts = torch.einsum("bij,bik->bjk", rows, moved), rows.cumsum(1).flip(0)[:, ::2], rows.to(torch.int32) >> 1
        return *parts, torch.arange(4)[None] + places, rows.std(1), torch.nn.functional.pad(x, (1, 2), value=3.0)

    return _Function(function), torch.tensor([[0, 1, 2, 3], [4, 5, 6, 0], [1, 1, 2, 2]]), torch.ones(3, 4, 4)
