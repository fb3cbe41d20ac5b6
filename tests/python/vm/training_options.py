"""Options of training, the choices that cover all pairs of them, and the models that are trained."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import torch

import meta

CLASSES, TOKENS, LENGTH = 3, 10, 3

# Layers before a norm or a softmax have no bias that cancels: its gradient is rounding, which LAMB would scale up.
# --- models ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A model of meta and of torch: `layers(model, nn, width)` adds its layers, `forward(model, ops, x)` calls them.
    shape: of one example; None for tokens."""

    layers: Callable[[Any, Any, int], None]
    forward: Callable[[Any, Any, Any], Any]
    shape: Callable[[int], tuple[int, ...]]
    tokens: bool = False


def _mlp_layers(m: Any, nn: Any, width: int) -> None:
    m.first, m.last = nn.Linear(4, width), nn.Linear(width, CLASSES)


def _mlp(m: Any, ops: Any, x: Any) -> Any:
    return m.last(ops.tanh(m.first(x)))


def _conv_layers(m: Any, nn: Any, width: int) -> None:
    m.conv, m.norm = nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
    m.last = nn.Linear(width, CLASSES)


def _conv(m: Any, ops: Any, x: Any) -> Any:
    return m.last(ops.sigmoid(m.norm(m.conv(x))).mean((2, 3)))


def _siamese_layers(m: Any, nn: Any, width: int) -> None:
    m.first, m.norm, m.last = nn.Linear(4, width, bias=False), nn.BatchNorm1d(width), nn.Linear(width, CLASSES)


def _siamese(m: Any, ops: Any, x: Any) -> Any:
    a, b = (ops.tanh(m.norm(m.first(part).swapaxes(1, 2))).mean(2) for part in (x, x * 0.5 + 1.0))
    return m.last(a * b)


def _branch(m: Any, ops: Any, x: Any) -> Any:
    h = m.first(x)
    if ops is torch:
        return m.last(torch.tanh(h) if x.sum() > 0 else h * 0.5)
    return m.last(meta.cond(x.sum() > 0.0, lambda: meta.tanh(h), lambda: h * 0.5))


def _block_layers(m: Any, nn: Any, width: int) -> None:
    m.q, m.k, m.v = (nn.Linear(width, width, bias=letter == "v") for letter in "qkv")
    m.norm, m.last = nn.LayerNorm(width), nn.Linear(width, CLASSES)


def _block(m: Any, ops: Any, x: Any) -> Any:
    scores = ops.softmax(m.q(x) @ m.k(x).swapaxes(1, 2) * 0.3, -1)
    return m.last(m.norm(x + scores @ m.v(x)).mean(1))


def _embedding_layers(m: Any, nn: Any, width: int) -> None:
    m.embed, m.last = nn.Embedding(TOKENS, width), nn.Linear(width, CLASSES)


def _embedding(m: Any, ops: Any, x: Any) -> Any:
    return m.last(ops.tanh(m.embed(x)).mean(1))


MODELS: Mapping[str, Kind] = {
    "mlp": Kind(_mlp_layers, _mlp, lambda width: (4,)),
    "conv": Kind(_conv_layers, _conv, lambda width: (1, 4, 4)),
    "siamese": Kind(_siamese_layers, _siamese, lambda width: (LENGTH, 4)),
    "cond": Kind(_mlp_layers, _branch, lambda width: (4,)),
    "block": Kind(_block_layers, _block, lambda width: (LENGTH, width)),
    "embedding": Kind(_embedding_layers, _embedding, lambda width: (LENGTH,), tokens=True),
}


class Network(meta.Model):
    """A model with its loss, the mean squared error, under autocast if asked for."""

    def build(self, kind: Kind, width: int, autocast: str | None) -> None:
        self.kind, self.autocast = kind, autocast
        kind.layers(self, meta.nn, width)

    def forward(self, x: Any, y: Any) -> Any:
        with meta.amp.autocast(self.autocast or "bfloat16", enabled=self.autocast is not None):
            return meta.mse_loss(self.kind.forward(self, meta, x), y)


class TorchNetwork(torch.nn.Module):
    def __init__(self, kind: Kind, width: int) -> None:
        super().__init__()
        self.kind = kind
        kind.layers(self, torch.nn, width)

    def forward(self, x: Any, y: Any) -> Any:
        return torch.nn.functional.mse_loss(self.kind.forward(self, torch, x), y)


def batch(case: Case, call: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Inputs and targets of one call."""
    rng, kind = np.random.default_rng(call), MODELS[case.model]
    shape, dtype = (case.batch, *kind.shape(case.width)), case.dtype if case.dtype == "float64" else "float32"
    x = rng.integers(0, TOKENS, shape) if kind.tokens else rng.standard_normal(shape).astype(dtype)
    return x, rng.standard_normal((case.batch, CLASSES)).astype(dtype)


# --- options ---------------------------------------------------------------------------------------------------------

OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9, "weight_decay": 0.01}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "dampening": ("SGD", {"momentum": 0.9, "dampening": 0.5}),
    "adam": ("Adam", {"eps": 1e-3}),
    "amsgrad": ("Adam", {"eps": 1e-3, "amsgrad": True, "weight_decay": 0.1}),
    "adamw": ("AdamW", {"eps": 1e-3, "weight_decay": 0.1}),
    "rmsprop": ("RMSprop", {"eps": 1e-2}),
    "rmsprop_momentum": ("RMSprop", {"eps": 1e-2, "momentum": 0.9, "weight_decay": 0.1}),
    "centered": ("RMSprop", {"eps": 0.1, "momentum": 0.5, "centered": True, "alpha": 0.9}),
    "adagrad": ("Adagrad", {"eps": 1e-3, "weight_decay": 0.01}),
    "lamb": ("LAMB", {"eps": 1e-2}),
    "lans": ("LANS", {"eps": 1e-2}),
}  # fmt: skip
OPTIONS: Mapping[str, Sequence[Any]] = {
    "optimizer": tuple(OPTIMIZERS),
    "model": tuple(MODELS),
    "dtype": ("float32", "float64", "bfloat16", "bfloat16 of float32"),
    "accumulate": (1, 2, 3),
    "clip": (None, "norm", "value"),
    "autocast": (None, "bfloat16", "float16"),
    "scaler": (False, True),
    "schedule": (False, True),
    "budget": (False, True),
    "fuse": (True, False),
    "batch": (1, 8),
    "width": (6, 33),
    "resume": (False, True),
}


@dataclass(frozen=True)
class Case:
    """One choice of every option. budget: four fifths of the memory, or the least; resume: half of the calls are made
    by new objects that load the state of the first ones."""

    optimizer: str
    model: str
    dtype: str
    accumulate: int
    clip: str | None
    autocast: str | None
    scaler: bool
    schedule: bool
    budget: bool
    fuse: bool
    batch: int
    width: int
    resume: bool

    @property
    def master_weights(self) -> bool:
        return self.dtype == "bfloat16 of float32"

    @property
    def in_torch(self) -> bool:
        """Whether torch trains the same way."""
        return self.optimizer not in ("lamb", "lans") and self.dtype.startswith("float") and self.autocast is None

    def __str__(self) -> str:
        flags = [name for name in ("scaler", "schedule", "budget", "resume") if getattr(self, name)]
        words = [self.optimizer, self.model, self.dtype.replace(" ", "-"), f"accumulate{self.accumulate}"]
        words += [f"clip_{self.clip}"] * (self.clip is not None) + [f"autocast_{self.autocast}"] * bool(self.autocast)
        return "-".join([*words, *flags, "fused" if self.fuse else "unfused", f"{self.batch}x{self.width}"])


def allowed(choice: Mapping[str, Any]) -> bool:
    """Whether options go together, as far as they are chosen."""
    if choice.get("autocast") and choice.get("dtype", "float32") != "float32":
        return False
    return not (choice.get("budget") and choice.get("model") == "cond")  # a budget needs a straight-line program


def covering(size: int, seed: int = 0) -> list[Case]:
    """Cases in which every choice of `size` options that go together occurs."""
    rng = random.Random(seed)
    left: dict[frozenset[tuple[str, Any]], None] = {}
    for names in combinations(OPTIONS, size):
        for values in product(*(OPTIONS[n] for n in names)):
            if allowed(dict(zip(names, values, strict=True))):
                left[frozenset(zip(names, values, strict=True))] = None
    cases: list[Case] = []
    while left:
        best = max((_extended(next(iter(left)), left, size, rng) for _ in range(12)), key=lambda choice: choice[1])[0]
        for part in _parts(best, size):
            left.pop(part, None)
        cases.append(Case(**best))
    return cases


def _parts(choice: Mapping[str, Any], size: int) -> Iterator[frozenset[tuple[str, Any]]]:
    return (frozenset(part) for part in combinations(choice.items(), size))


def _extended(
    start: frozenset[tuple[str, Any]], left: Mapping[frozenset[tuple[str, Any]], None], size: int, rng: random.Random
) -> tuple[dict[str, Any], int]:
    """A choice of all options with the choices of `start`, and the number of combinations left that it has."""
    choice = dict(start)
    names = [name for name in OPTIONS if name not in choice]
    rng.shuffle(names)
    for name in names:

        def gain(value: Any, name: str = name) -> tuple[int, float]:
            others = combinations(choice.items(), size - 1)
            return sum(frozenset((*part, (name, value))) in left for part in others), rng.random()

        choice[name] = max((v for v in OPTIONS[name] if allowed({**choice, name: v})), key=gain)
    return {name: choice[name] for name in OPTIONS}, sum(part in left for part in _parts(choice, size))
