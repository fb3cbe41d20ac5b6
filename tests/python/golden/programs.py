"""The golden programs: training steps of several networks and optimizers, imported models, loops, open sizes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import meta
from benchmarks.bert import Bert, Sizes
from benchmarks.resnet import Block
from meta import nn, optim
from meta.cli.digits import DigitsNet
from meta.frontend.torch import compile_backend, load
from meta.vm.arguments import RecordSource
from tests.python.golden.case import Case, classes, normal, training

PROGRAMS: dict[str, Callable[[], Case]] = {}
"""Name -> a function that builds the program. The generators of random numbers are seeded before it is called."""

EPS = 0.01
"""Of optimizers that divide by the root of squares, which would magnify the rounding of small gradients."""
_RELAY = Path(__file__).parents[1] / "frontend" / "relay" / "data" / "control.relay"
_ONNX = """
<ir_version: 9, opset_import: ["" : 21]>
network (float[2, 3, 8, 8] x) => (float[2, 5] y) {
  a = Conv <pads = [1, 1, 1, 1]> (x, w, b)
  c = Relu (a)
  d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)
  e = GlobalAveragePool (d)
  f = Flatten (e)
  g = Gemm <transB = 1> (f, v, u)
  y = Softmax <axis = -1> (g)
}"""


def program(function: Callable[[], Case]) -> Callable[[], Case]:
    """Add a program to the table under the name of its function."""
    PROGRAMS[function.__name__] = function
    return function


# --- training --------------------------------------------------------------------------------------------------------


def _mlp(*sizes: int, activation: Callable[[], Any] = nn.ReLU) -> nn.Sequential:
    layers: list[Any] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


_DIGITS = (16, 64), 10
"""The shape of a batch of digits, and the number of classes."""


def _digits() -> tuple[meta.NDArray, meta.NDArray]:
    return normal(*_DIGITS[0]), classes(_DIGITS[0][0], count=_DIGITS[1])


@program
def mlp_sgd() -> Case:
    """A perceptron for digits, SGD with momentum."""
    model = _mlp(64, 32, 32, 10)
    return training(model, optim.SGD(model, 0.1, momentum=0.9), _digits())


@program
def convnet_tvm() -> Case:
    """The network of the demo with TVM's kernels only."""
    model = DigitsNet(channels=4, hidden=16)
    with meta.with_dialect(["tvm"]):
        return training(model, optim.SGD(model, 0.05, momentum=0.9), (normal(4, 1, 8, 8), classes(4, count=10)))


class _ResNet(meta.Model):
    """(n, 3, h, w) -> (n, 4) scores."""

    def build(self) -> None:
        self.blocks = nn.Sequential(Block(3, 8, 1), Block(8, 16, 2))
        self.out = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.out(self.blocks(x).mean((2, 3)))


@program
def resnet_sgd() -> Case:
    """Two residual blocks with batch norm, whose statistics the step writes; SGD with momentum and weight decay."""
    model = _ResNet()
    optimizer = optim.SGD(model, 0.1, momentum=0.9, weight_decay=0.01)
    return training(model, optimizer, (normal(2, 3, 8, 8), classes(2, count=4)), steps=2)


@program
def bert_adamw() -> Case:
    """A post-norm encoder with dropout, whose random numbers the step draws; AdamW."""
    model = Bert(Sizes(vocabulary=20, features=16, heads=2, hidden=32, layers=1, tokens=6, dropout=0.1))
    batch = classes(4, 6, count=20), classes(24, count=20, seed=2)
    return training(model, optim.AdamW(model, 0.01, eps=EPS), batch)


class _Gpt(meta.Model):
    """(n, length) tokens -> (n * length, vocabulary) scores of the next token."""

    def build(self, vocabulary: int, features: int, length: int) -> None:
        self.embedding, self.positions = nn.Embedding(vocabulary, features), nn.Embedding(length, features)
        self.layer = nn.TransformerEncoderLayer(features, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(features), nn.Linear(features, vocabulary, bias=False)

    def forward(self, x: Any) -> Any:
        h = self.embedding(x) + self.positions(meta.arange(x.shape[1]))
        return self.head(self.norm(self.layer(h, is_causal=True))).reshape(-1, self.head.w.shape[0])


@program
def gpt_lamb() -> Case:
    """A causal pre-norm encoder layer, LAMB."""
    model = _Gpt(20, 16, 8)
    batch = classes(2, 8, count=20), classes(16, count=20, seed=2)
    return training(model, optim.LAMB(model, 0.01, eps=EPS), batch)


class _Lstm(meta.Model):
    """(n, length, features) -> (n, 3) scores, with the steps of the LSTM written out."""

    def build(self, features: int, hidden: int) -> None:
        self.hidden = hidden
        self.input, self.state = nn.Linear(features, 4 * hidden), nn.Linear(hidden, 4 * hidden)
        self.out = nn.Linear(hidden, 3)

    def forward(self, x: Any) -> Any:
        h = c = meta.zeros((x.shape[0], self.hidden))
        projected = self.input(x)
        for i in range(x.shape[1]):
            write, forget, new, read = meta.split(projected[:, i] + self.state(h), 4, 1)
            c = meta.sigmoid(forget) * c + meta.sigmoid(write) * meta.tanh(new)
            h = meta.sigmoid(read) * meta.tanh(c)
        return self.out(h)


@program
def lstm_rmsprop() -> Case:
    """An LSTM of four steps, written out; RMSprop."""
    model = _Lstm(2, 8)
    return training(model, optim.RMSprop(model, 0.01, eps=EPS), (normal(4, 4, 2), classes(4, count=3)))


@program
def bfloat16() -> Case:
    """A perceptron in bfloat16 by `auto_cast`, with TVM's kernels only; AdamW."""
    model = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 10))
    with meta.with_dialect(["tvm"]):
        passes = meta.passes.auto_cast("bfloat16")
        return training(model, optim.AdamW(model, 0.01, eps=EPS), _digits(), passes=passes)


@program
def grad_scaler() -> Case:
    """A perceptron in float16, whose losses a GradScaler scales, with TVM's kernels only."""
    model = _mlp(64, 32, 10)

    def loss(x: Any, target: Any) -> Any:
        with meta.amp.autocast("float16"):
            return meta.cross_entropy(model(x), target)

    settings = {"scaler": meta.amp.GradScaler(scale=1024.0)}
    with meta.with_dialect(["tvm"]):
        return training(loss, optim.SGD(model, 0.1, momentum=0.9), _digits(), loss=None, settings=settings)


@program
def accumulate() -> Case:
    """An update for every two calls, with bounded gradients and a schedule; Adagrad."""
    model = _mlp(64, 16, 10, activation=nn.Tanh)
    optimizer = optim.Adagrad(model, 0.1)
    schedule = optim.ExponentialLR(optimizer, 0.9)
    return training(
        model, optimizer, _digits(), steps=4, settings={"accumulate": 2, "clip_norm": 1.0, "schedule": schedule}
    )


@program
def many_parameters() -> Case:
    """Forty-eight small parameters, Adam."""
    model = _mlp(*[8] * 25, activation=nn.Tanh)
    return training(model, optim.Adam(model, 0.01, eps=EPS), (normal(4, 8), classes(4, count=8)), steps=2)


@program
def memory_budget() -> Case:
    """Activations larger than the weights; a budget has some of them computed again."""
    model = _mlp(*[16] * 5, 10, activation=nn.GELU)
    batch = normal(128, 16), classes(128, count=10)
    return training(model, optim.SGD(model, 0.1, momentum=0.9), batch, memory_budget=BUDGET)


BUDGET = 80_000
"""Bytes of `memory_budget`; the program needs more without it."""


@program
def unfused() -> Case:
    """A perceptron with a kernel for each operator, SGD."""
    model = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 10))
    return training(model, optim.SGD(model, 0.1), _digits(), fuse=False)


@program
def data_parallel() -> Case:
    """A step of one of two ranks, with buckets of gradients in transit while kernels run; compiled but not run."""
    model = _mlp(32, 32, 32, 10, activation=nn.Tanh)
    step = optim.TrainStep(model, optim.AdamW(model, 0.1), loss=meta.cross_entropy)
    group = meta.distributed.Group("dp", 2)
    step = meta.distributed.data_parallel(group, bucket_bytes=4096, broadcast=False)(step)
    return Case(meta.vm.compile(step), [(normal(4, 32), classes(4, count=10))], runs=False, on_cuda=False)


# --- imported models -------------------------------------------------------------------------------------------------


@program
def onnx_convnet() -> Case:
    """A network in ONNX's text form with its weights as constants, without its gradients."""
    import onnx

    model = onnx.parser.parse_model(_ONNX)
    for name, shape in {"w": (16, 3, 3, 3), "b": (16,), "v": (5, 16), "u": (5,)}.items():
        value = 0.2 * np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return Case(meta.vm.compile(meta.frontend.onnx.from_onnx(model)), [(normal(2, 3, 8, 8),)])


@program
def torch_export() -> Case:
    """A convolution with batch norm that torch exported, trained with SGD."""
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.SiLU(), torch.nn.AvgPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(128, 5),
    )  # fmt: skip
    exported = torch.export.export(module.train(), (torch.zeros(2, 3, 8, 8),))
    model = load(exported)
    optimizer = optim.SGD(model, 0.1, momentum=0.9, nesterov=True)
    return training(model, optimizer, (normal(2, 3, 8, 8), classes(2, count=5)), steps=2)


@program
def torch_compile() -> Case:
    """A training step that torch captures as one graph, by the backend of `torch.compile`."""
    from meta.frontend.torch.dynamo import call

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4))

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        parameters = list(model.parameters())
        loss = torch.nn.functional.cross_entropy(model(x), target)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=0.1)
        return loss.detach()

    records: list[Any] = []
    compile_record = call.compile_record

    def recorded(converted: Any, *args: Any, **kwargs: Any) -> Any:
        records.append(converted.record)
        return compile_record(converted, *args, **kwargs)

    batch = [torch.from_dlpack(x) for x in (normal(6, 8), classes(6, count=4))]
    run = torch.compile(step, backend=compile_backend)
    with patch.object(call, "compile_record", recorded), torch._dynamo.config.patch(trace_autograd_ops=True):
        first = run(*batch)
    (record,) = records
    inputs = tuple(meta.zeros(x.shape, x.dtype) for x in (p.type for p in record.main.params))
    return Case(
        meta.vm.compile(RecordSource(record)),
        [inputs],
        lambda: [first, run(*batch), run(*batch), tuple(model.parameters())],
    )


@program
def relay_recursion() -> Case:
    """A Relay program with branches, a function that calls itself, and one that does so last, which is a loop."""
    module = meta.frontend.relay.from_relay(_RELAY.read_text())
    x = meta.array(np.array([0.5, 1.5], np.float32))
    calls = [(x, meta.array(first), meta.array(second)) for first, second in ((True, False), (False, True))]
    return Case(meta.vm.compile(module), calls)


# --- control flow and open sizes -------------------------------------------------------------------------------------


class _Scanned(meta.Model):
    """(length, n, features) -> (n, 3) scores, with a loop over the steps."""

    def build(self, features: int, hidden: int) -> None:
        self.hidden = hidden
        self.input, self.state, self.out = nn.Linear(features, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 3)

    def forward(self, x: Any) -> Any:
        def cell(h: Any, part: Any) -> Any:
            h = meta.tanh(part + self.state(h))
            return h, h.sum()

        return self.out(meta.scan(cell, meta.zeros((x.shape[1], self.hidden)), self.input(x))[0])


@program
def scan_adam() -> Case:
    """A recurrent network whose steps are a loop, forward and backward; Adam."""
    model = _Scanned(2, 8)
    return training(model, optim.Adam(model, 0.01, eps=EPS), (normal(5, 4, 2), classes(4, count=3)))


@program
def branches_and_loops() -> Case:
    """A conditional, a loop of unknown length, and their neighbours."""

    def function(x: Any, w: Any) -> Any:
        h = meta.cond((x @ w).sum() > 0.0, lambda a: meta.exp(a) * 2.0, lambda a: meta.sqrt(meta.abs(a)) + 1.0, x)
        y = meta.while_loop(lambda y: y.sum() < 100.0, lambda y: y * 1.5 + meta.tanh(y @ w), meta.abs(h))
        return y, y.mean()

    return Case(meta.vm.compile(meta.trace(function)), [(normal(2, 3), normal(3, 3)), (-normal(2, 3), normal(3, 3))])


@program
def dynamic_batch() -> Case:
    """A training step for any number of rows, called with three."""
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    case = training(model, optim.SGD(model, 0.1, momentum=0.9), (), dynamic={"args.0": {0: "n"}, "args.1": {0: "n"}})
    return Case(case.executor, [(normal(rows, 6), classes(rows, count=3)) for rows in (3, 7, 2)])
