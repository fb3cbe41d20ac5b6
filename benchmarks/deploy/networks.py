"""Networks whose inference and training steps are compiled to C."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import meta
from examples import bert, gpt, relay, resnet, unet
from meta import nn
from meta.schema import Arg, Schema, Tensor

Arrays = tuple[np.ndarray[Any, Any], ...]
KINDS: Final = ("inference", "step")
BATCHES: Final = 5
"""The batches that steps take in turn."""


@dataclass(frozen=True)
class Case:
    """what: makes what is compiled.  calls: the inputs of each call.  dynamic: of `meta.vm.compile`."""

    what: Callable[[], Any]
    calls: Sequence[Arrays]
    dynamic: Any = None


@dataclass(frozen=True)
class Network:
    """model: makes it.  loss: of the model and a batch.  batch: arrays, from a seed.  inputs: how many arrays of a
    batch the model takes.  rate: the learning rate, with a momentum of 0.9.  runs: makes what inference compiles from
    the model.  prompts: the calls of that, by default the inputs of two batches."""

    model: Callable[[], Any]
    loss: Callable[..., Any]
    batch: Callable[[int], Arrays]
    inputs: int = 1
    rate: float = 0.01
    runs: Callable[[Any], Any] = lambda model: model
    prompts: Sequence[Arrays] = ()

    def case(self, kind: str, steps: int = BATCHES) -> Case:
        """Inference or a training step. steps: the calls of a step."""
        if kind == "inference":
            calls = self.prompts or [self.batch(seed)[: self.inputs] for seed in range(2)]
            return Case(lambda: self.runs(_seeded(self.model)).infer_mode(), calls)
        batches = [self.batch(seed) for seed in range(BATCHES)]
        return Case(self.step, [batches[i % BATCHES] for i in range(steps)])

    def step(self) -> Any:
        """A training step of a new model."""
        model = _seeded(self.model).train_mode()
        optimizer = meta.optim.SGD(model.parameters(), learning_rate=self.rate, momentum=0.9)
        loss: Any = self.loss
        if self.inputs == 1:
            return meta.optim.TrainStep(lambda x, target: loss(model, x, target), optimizer)
        return meta.optim.TrainStep(lambda x, y, target: loss(model, x, y, target), optimizer)


def _seeded(model: Callable[[], Any]) -> Any:
    meta.random.seed(1)
    return model()


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def classes(count: int, limit: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, limit, count)


def classify(model: Any, x: Any, labels: Any) -> Any:
    return meta.cross_entropy(model(x), labels)


def features(*shape: int, labels: int) -> Callable[[int], Arrays]:
    """Batches of normal numbers with labels."""
    return lambda seed: (normal(*shape, seed=seed), classes(shape[0], labels, seed))


# --- networks ---------------------------------------------------------------------------------------------------------


def mlp() -> Any:
    return nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 5))


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


class Recurrent(meta.Model):
    def build(self) -> None:
        self.lstm, self.out = nn.LSTM(6, 12), nn.Linear(12, 3)

    @meta.trace
    def forward(self, x: Any) -> Any:
        states, _ = self.lstm(x)
        return self.out(states)


class Writer(meta.Model):
    """Greedy generation with the scores of the last token: the first `start` of (1, LENGTH) tokens
    are known, and afterwards the first `end`."""

    LENGTH, LETTERS = 16, 32

    def build(self, model: Any) -> None:
        self.model = model

    @meta.trace
    def forward(self, tokens: Any, start: Any, end: Any) -> Any:
        places = meta.arange(self.LENGTH)

        def step(state: Any) -> Any:
            tokens, _, count = state
            here = (places == count - 1).cast("float32")
            scores = (self.model(tokens)[0] * here.reshape((self.LENGTH, 1))).sum(0)
            following = meta.where(places == count, meta.argmax(scores, -1).cast("int64"), tokens[0])
            return following.reshape((1, self.LENGTH)), scores, count + 1

        first = (tokens, meta.zeros((self.LETTERS,)), start)
        return meta.while_loop(lambda state: state[2] < end, step, first)[:2]


def _letters(seed: int) -> Arrays:
    rows = np.random.default_rng(seed).integers(0, Writer.LETTERS, (4, Writer.LENGTH + 1))
    return rows[:, :-1].copy(), rows[:, 1:].copy()


def _predict(model: Any, x: Any, following: Any) -> Any:
    scores = model(x)
    return meta.cross_entropy(scores.reshape((-1, scores.shape[-1])), following.reshape((-1,)))


def _with_paths(model: Any) -> Any:
    """A ResNet whose blocks are more than their shortcuts, which they start as."""
    with meta.no_grad():
        for _, block in model.models():
            if isinstance(block, resnet.Block):
                scale: Any = list(block.path)[-1].weight
                scale.update(meta.full(scale.shape, 0.5))
    return model


def onnx_bytes() -> bytes:
    """A convolutional network as an ONNX model."""
    import onnx
    from onnx import helper, numpy_helper

    shapes = {"w1": (6, 1, 3, 3), "b1": (6,), "w2": (216, 10), "b2": (10,)}
    weights = [numpy_helper.from_array(normal(*s, seed=i) / np.sqrt(np.float32(s[0])), name)
               for i, (name, s) in enumerate(shapes.items())]  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["c"], ["d"]), helper.make_node("Gemm", ["d", "w2", "b2"], ["y"]),
    ]  # fmt: skip
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, 1, 12, 12])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 10])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def _softsign(x: Any) -> Any:
    from tvm import te

    return te.compute(x.shape, lambda *i: x(*i) / (1.0 + te.abs(x(*i))), "softsign")


def own_operator() -> Any:
    """A network with an operator that is defined here; tests remove it (remove_operators)."""
    schema = Schema("softsign", Arg("x", Tensor, doc="Any numbers."))
    gradient = {"x": "dy / (1.0 + abs(x)) ** 2"}
    softsign: Any = meta.define(
        "deployed::softsign", schema, pattern="elemwise", tvm=_softsign, gradient=gradient, override=True
    )(lambda x: x)

    class Squashed(meta.Model):
        def build(self) -> None:
            self.hidden, self.out = nn.Linear(20, 32), nn.Linear(32, 5)

        @meta.trace
        def forward(self, x: Any) -> Any:
            return self.out(softsign(self.hidden(x)))

    return Squashed()


NETWORKS: Final = {
    "mlp": Network(mlp, classify, features(4, 20, labels=5)),
    "lenet": Network(LeNet, classify, features(4, 1, 28, 28, labels=10), rate=0.05),
    "resnet18": Network(
        lambda: resnet.resnet(nn, resnet.Block, Namespace(depth=18, width=64)), classify,
        features(4, 3, 32, 32, labels=10), rate=0.005, runs=_with_paths,
    ),
    "bert": Network(
        lambda: bert.Bert(64, 4, 2, 64, 16), bert.loss,
        lambda seed: (classes(64, 64, seed).reshape(4, 16), classes(64, 64, seed + 9).reshape(4, 16)),
    ),
    "lstm": Network(
        Recurrent, lambda model, x, target: meta.mse_loss(model(x), target),
        lambda seed: (normal(2, 7, 6, seed=seed), normal(2, 7, 3, seed=seed + 9)),
    ),
    "gpt": Network(
        lambda: gpt.GPT(Writer.LETTERS, 32, 2, Writer.LENGTH), _predict, _letters, runs=Writer,
        prompts=[(_letters(0)[0][:1], np.array(3), np.array(n)) for n in (16, 3, 5)],
    ),
    "unet": Network(
        lambda: unet.UNet(16), unet.loss,
        lambda seed: (normal(4, 1, 8, 8, seed=seed), classes(4, unet.LEVELS, seed), normal(4, 1, 8, 8, seed=seed + 9)),
        inputs=2,
    ),
    "relay": Network(
        lambda: meta.frontend.relay.load(relay.PROGRAM.replace("BATCH", "4"), relay.parameters()), classify,
        features(4, 64, labels=10),
    ),
    "onnx": Network(lambda: meta.frontend.onnx.load(onnx_bytes()), classify, features(4, 1, 12, 12, labels=10)),
    "own_operator": Network(own_operator, classify, features(4, 20, labels=5)),
}  # fmt: skip
FIVE: Final = ("mlp", "lenet", "lstm", "gpt", "own_operator")
"""Networks that also run on small machines."""
