"""Programs that are compiled to C, and the inputs of their calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import meta
from meta import nn
from meta.schema import Arg, Schema, Tensor

Arrays = tuple[np.ndarray[Any, Any], ...]


@dataclass(frozen=True)
class Case:
    """what: makes what is compiled.  calls: the inputs of each call.  tolerance: of results on other machines, relative
    to the largest element."""

    what: Callable[[], Any]
    calls: Sequence[Arrays]
    dynamic: Any = None
    tolerance: float = 1e-6
    options: dict[str, Any] = field(default_factory=dict[str, Any])


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def mlp() -> Any:
    meta.random.seed(1)
    return nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 5)).infer_mode()


class LeNet(meta.Model):
    def build(self) -> None:
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.dense1, self.dense2, self.dense3 = nn.Linear(256, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    @meta.trace
    def forward(self, x: Any) -> Any:
        x = meta.max_pool2d(meta.relu(self.conv1(x)), 2)
        x = meta.max_pool2d(meta.relu(self.conv2(x)), 2)
        x = meta.relu(self.dense1(x.reshape((x.shape[0], 256))))
        return self.dense3(meta.relu(self.dense2(x)))


def lenet_step() -> Any:
    """A training step with momentum."""
    meta.random.seed(2)
    model = LeNet().train_mode()
    optimizer = meta.optim.SGD(model.parameters(), learning_rate=0.05, momentum=0.9)
    return meta.optim.TrainStep(model, optimizer, meta.cross_entropy)


class Normalised(meta.Model):
    def build(self) -> None:
        self.conv, self.norm, self.out = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)

    @meta.trace
    def forward(self, x: Any) -> Any:
        return self.out(meta.relu(self.norm(self.conv(x))).mean((2, 3)))


def batch_norm_step() -> Any:
    """A training step that also updates running statistics."""
    meta.random.seed(3)
    model = Normalised().train_mode()
    optimizer = meta.optim.AdamW(model.parameters(), learning_rate=0.01)
    return meta.optim.TrainStep(model, optimizer, meta.cross_entropy)


class Recurrent(meta.Model):
    def build(self) -> None:
        self.lstm, self.out = nn.LSTM(6, 12), nn.Linear(12, 3)

    @meta.trace
    def forward(self, x: Any) -> Any:
        states, _ = self.lstm(x)
        return self.out(states), states


def lstm() -> Any:
    meta.random.seed(4)
    return Recurrent().infer_mode()


def branches() -> Any:
    return meta.trace(lambda x: meta.cond(x.sum() > 0, lambda: (x * 2, x), lambda: (x - 1.0, x + 3.0)))


class Generator(meta.Model):
    """Greedy generation: repeats the last token's most probable follower until there are `length` tokens."""

    def build(self) -> None:
        self.embedding, self.out = nn.Embedding(11, 16), nn.Linear(16, 11)

    @meta.trace
    def forward(self, token: Any, length: Any) -> Any:
        places = meta.arange(12)

        def step(state: Any) -> Any:
            token, tokens, count = state
            scores = self.out(meta.tanh(self.embedding(token)))
            following = meta.argmax(scores, -1).cast("int64")
            return following, meta.where(places == count, following, tokens), count + 1

        first = (token, meta.zeros((12,), "int64"), meta.zeros((), "int64"))
        return meta.while_loop(lambda state: state[2] < length, step, first)


def generator() -> Any:
    meta.random.seed(5)
    return Generator().infer_mode()


class Dropped(meta.Model):
    def build(self) -> None:
        self.hidden, self.drop, self.out = nn.Linear(8, 32), nn.Dropout(0.5), nn.Linear(32, 4)

    @meta.trace
    def forward(self, x: Any) -> Any:
        return self.out(self.drop(meta.relu(self.hidden(x))))


def dropout() -> Any:
    meta.random.seed(6)
    return Dropped().train_mode()


def stacked() -> Any:
    """Open sizes of two inputs, in a loop and in shapes."""

    def run(xs: Any, h: Any, y: Any) -> Any:
        last, items = meta.scan(lambda c, x: (meta.tanh(c + x), c * 2.0), h, xs, reverse=True)
        return last, items, (meta.concat([h, y], 0) * 2.0).reshape((-1,))

    return meta.trace(run)


def _softsign(x: Any) -> Any:
    from tvm import te

    return te.compute(x.shape, lambda *i: x(*i) / (1.0 + te.abs(x(*i))), "softsign")


def own_operator() -> Any:
    """An operator that is defined here; tests remove it (remove_operators)."""
    schema = Schema("softsign", Arg("x", Tensor, doc="Any numbers."))
    gradient = {"x": "dy / (1.0 + abs(x)) ** 2"}
    softsign: Any = meta.define(
        "deployed::softsign", schema, pattern="elemwise", tvm=_softsign, gradient=gradient, override=True
    )(lambda x: x)
    return meta.trace(lambda x: softsign(x) * 2.0)


def nested() -> Any:
    """A branch in a loop, which keeps a value that it does not change."""

    def run(x: Any) -> Any:
        def step(state: Any) -> Any:
            value, bias, count = state
            changed = meta.cond(value.sum() > 0, lambda: value - bias, lambda: value * 0.5 + bias)
            return changed, bias, count + 1.0

        return meta.while_loop(lambda state: state[2] < 20.0, step, (x, x * 0.25, meta.zeros(())))

    return meta.trace(run)


def products() -> Any:
    """Parallel loops and kernels with workspaces."""
    return meta.trace(lambda x, y: (meta.matmul(x, y), meta.sort(x), meta.cumsum(y, 0)))


_IMAGES = [(normal(4, 1, 28, 28, seed=i), np.arange(4, dtype="int64") + i) for i in range(5)]

CASES = {
    "mlp": Case(mlp, [(normal(3, 20),)]),
    "lenet": Case(lenet_step, _IMAGES),
    "batch_norm": Case(batch_norm_step, [(normal(4, 3, 8, 8, seed=i), np.arange(4) % 4) for i in range(5)]),
    "lstm": Case(lstm, [(normal(2, 7, 6),)]),
    "branches": Case(branches, [(np.abs(normal(3, 4)),), (-np.abs(normal(3, 4)),)]),
    "generator": Case(generator, [(np.array(3), np.array(n)) for n in (12, 0, 5)]),
    "dropout": Case(dropout, [(normal(3, 8),)] * 3),
    "open_batch": Case(mlp, [(normal(n, 20, seed=n),) for n in (3, 1, 17)], {"x": {0: "n"}}),
    "stacked": Case(
        stacked, [(normal(5, 3, 4), normal(3, 4), normal(2, 4)), (normal(2, 6, 4), normal(6, 4), normal(1, 4))],
        {"xs": {0: "n", 1: "b"}, "h": {0: "b"}, "y": {0: "m"}},
    ),
    "own_operator": Case(own_operator, [(normal(3, 5),)]),
    "nested": Case(nested, [(normal(3, 4),)]),
    "products": Case(products, [(normal(130, 140), normal(140, 90))]),
}  # fmt: skip
