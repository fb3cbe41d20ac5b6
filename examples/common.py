"""Shared by the scripts: options, batches from torch's DataLoader, the training loop, a comparison with torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

import meta
from meta.pictures import curves

TOLERANCE = 1e-3
"""Largest difference of the losses of meta and torch, relative to losses above 1."""
COMPARED = 20
"""The number of steps that are compared."""
Options = argparse.Namespace


@dataclass(frozen=True, slots=True)
class Example:
    """A model with its data.

    model, twin: make the model in meta and in torch, with the same names.  data: the arrays of the dataset, each with
    the samples along its first axis.  loss, torch_loss: the loss, from the model and a batch of each array.
    rate: the learning rate.  optimizer: "SGD" or "AdamW", of meta.optim and torch.optim.  settings: its arguments.
    configure: adds options."""

    description: str
    model: Callable[[Options], meta.Model]
    twin: Callable[[Options], torch.nn.Module]
    data: Callable[[Options], Sequence[np.ndarray[Any, Any]]]
    loss: Callable[..., Any]
    torch_loss: Callable[..., Any]
    rate: float = 0.05
    optimizer: str = "SGD"
    settings: Mapping[str, Any] = field(default_factory=lambda: {"momentum": 0.9})
    configure: Callable[[argparse.ArgumentParser], None] = lambda parser: None

    def main(self, argv: Sequence[str] | None = None) -> list[float]:
        """`run`; returns the losses."""
        return run(self, argv)[1]


def run(example: Example, argv: Sequence[str] | None = None) -> tuple[meta.Model, list[float]]:
    """Train, print the losses, and compare with torch if asked to. Returns the trained model and the loss of each step.

    Raises SystemExit if the losses differ from torch's."""
    options = parsed(example, argv)
    meta.random.seed(options.seed)
    torch.manual_seed(options.seed)
    model = example.model(options)
    twin = example.twin(options) if options.compare_torch else None
    if twin is not None:
        model.load_torch_state_dict(twin.state_dict())
    model = model.to(options.device, options.dtype)
    step = training_step(example, model, options)
    data = example.data(options)
    losses = [step(*on_device(batch, options.device)).item() for batch in batches(data, options)]
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f} after {len(losses)} steps")
    if options.plot:
        title = " ".join(example.description.split()).partition(":")[0].partition(" (")[0]
        curves(title, {"training loss": losses}).save(options.plot)
        print(f"losses are drawn in {options.plot}")
    if twin is not None:
        compare(example, twin, data, losses, options)
    return model, losses


def parsed(example: Example, argv: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(description=example.description)
    parser.add_argument("--steps", type=int, default=200, help="training steps (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="samples of a step (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=example.rate, help="learning rate (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help='"cpu" or "cuda"')
    parser.add_argument("--eager", action="store_true", help="run operator by operator, without compilation")
    parser.add_argument("--amp", choices=["bfloat16"], help="mixed precision")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32", help="of parameters and data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", default="", metavar="FILE", help="SVG of the losses (default: %(default)s)")
    parser.add_argument(
        "--compare-torch", action="store_true", help="train the same model in torch, and compare losses"
    )
    example.configure(parser)
    return parser.parse_args(argv)


def training_step(example: Example, model: meta.Model, options: Options) -> Callable[..., Any]:
    """Forward, backward and update as one callable: compiled, or eager with `--eager`."""
    optimizer = getattr(meta.optim, example.optimizer)(model, options.rate, **example.settings)

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        with meta.amp.autocast(options.amp or "bfloat16", enabled=options.amp is not None):
            loss = example.loss(model, *batch)
        loss.backward()
        optimizer.step()
        return loss

    return step if options.eager else meta.vm.compile(meta.trace(step), device=options.device)


def batches(data: Sequence[np.ndarray[Any, Any]], options: Options) -> Iterator[list[torch.Tensor]]:
    """`--steps` batches of torch's DataLoader in an order that the seed decides, with a progress bar of tqdm."""
    typed = (part.astype(options.dtype) if part.dtype.kind == "f" else part for part in data)
    dataset = torch.utils.data.TensorDataset(*map(torch.from_numpy, typed))
    order = torch.Generator().manual_seed(options.seed)
    loader = torch.utils.data.DataLoader(dataset, options.batch, shuffle=True, drop_last=True, generator=order)
    endless = (batch for _ in iter(int, 1) for batch in loader)
    for _, batch in zip(progress(range(options.steps)), endless, strict=False):
        yield batch


def progress(steps: range) -> Iterable[int]:
    """The steps with a progress bar, if tqdm is installed (the extra `demo`) and there is a terminal."""
    if find_spec("tqdm") is None:
        return steps
    from tqdm import tqdm

    return tqdm(steps, unit="step", disable=None)


def on_device(batch: Sequence[torch.Tensor], device: str) -> list[meta.NDArray]:
    """Torch tensors as arrays: through DLPack, without a copy on their device."""
    return [meta.from_dlpack(t.to(device)) for t in batch]


def compare(
    example: Example, twin: torch.nn.Module, data: Sequence[np.ndarray[Any, Any]], losses: list[float], options: Options
) -> None:
    """Train `twin` on the same batches and print how far its losses are. Raises SystemExit if that is too far."""
    twin = twin.to(options.device, getattr(torch, options.dtype))
    optimizer = getattr(torch.optim, example.optimizer)(twin.parameters(), options.rate, **example.settings)
    largest = 0.0
    count = min(COMPARED, len(losses))
    for ours, batch in zip(losses[:count], batches(data, options), strict=False):
        optimizer.zero_grad()
        loss = example.torch_loss(twin, *(t.to(options.device) for t in batch))
        loss.backward()
        optimizer.step()
        largest = max(largest, abs(ours - loss.item()) / max(1.0, abs(loss.item())))
    print(f"losses of {count} steps differ from torch's by at most {largest:.1e}")
    if not largest <= TOLERANCE:
        raise SystemExit(f"expected at most {TOLERANCE:g}")


def add_transformer(
    model: Any, nn: Any, tokens: int, features: int, heads: int, layers: int, length: int, *, norm_first: bool
) -> None:
    """Add the layers of a transformer, of meta.nn or torch.nn, to a model: embeddings of tokens and positions, encoder
    layers, and the linear layer that scores tokens."""
    model.embed, model.positions = nn.Embedding(tokens, features), nn.Embedding(length, features)
    model.layers = nn.ModuleList([
        nn.TransformerEncoderLayer(
            features, heads, 4 * features, 0.0, "gelu", batch_first=True, norm_first=norm_first
        )
        for _ in range(layers)
    ])  # fmt: skip
    model.out = nn.Linear(features, tokens)


def classify(model: Any, x: Any, labels: Any) -> Any:
    return meta.cross_entropy(model(x), labels)


def torch_classify(model: Any, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(x), labels)


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """1797 images of handwritten digits, (n, 1, 8, 8) in [0, 1], and labels: scikit-learn's copy of UCI's data."""
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    return (digits.images[:, None] / 16).astype(np.float32), digits.target.astype(np.int64)


def colours(classes: int, size: int, samples: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Noisy (3, size, size) images of stripes, whose direction, width and colour give the class."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, classes, samples)
    angle = labels[:, None, None] * np.pi / classes
    rows, columns = np.mgrid[:size, :size] / size
    waves = np.sin(2 * np.pi * (2 + labels[:, None, None] % 3) * (np.cos(angle) * columns + np.sin(angle) * rows))
    tint = np.stack([np.cos(angle[:, 0, 0] + phase) for phase in (0.0, 2.0, 4.0)], 1)
    images = waves[:, None] * tint[:, :, None, None] + 0.3 * generator.standard_normal((samples, 3, size, size))
    return images.astype(np.float32), labels.astype(np.int64)
