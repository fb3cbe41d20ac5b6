"""Programs that are compiled to C, and the inputs of their calls, beside the networks of `benchmarks.deploy`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from benchmarks.deploy.machines import Machine
from benchmarks.deploy.networks import NETWORKS, Case, normal
from meta import nn


def require(machine: Machine) -> None:
    """Skip the test where a compiler or an emulator is missing."""
    if machine.missing:
        pytest.skip(machine.missing)


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


def branches() -> Any:
    return meta.trace(lambda x: meta.cond(x.sum() > 0, lambda: (x * 2, x), lambda: (x - 1.0, x + 3.0)))


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


def nested() -> Any:
    """A branch in a loop, which keeps a value that it does not change."""

    def run(x: Any) -> Any:
        def step(state: Any) -> Any:
            value, bias, count = state
            changed = meta.cond(value.sum() > 0, lambda: value - bias, lambda: value * 0.5 + bias)
            return changed, bias, count + 1.0

        return meta.while_loop(lambda state: state[2] < 20.0, step, (x, x * 0.25, meta.zeros(())))

    return meta.trace(run)


_RECURSION = """#[version = "0.0.5"]
def @power(%i: int32, %n: int32, %x: Tensor[(2), float32]) -> Tensor[(2), float32] {
  if (less(%i, %n)) { @power(add(%i, 1), %n, add(%x, %x)) } else { %x }
}
def @main(%x: Tensor[(2), float32], %c: bool, %d: bool) -> Tensor[(2), float32] {
  let %a = exp(%x);
  %1 = if (%c) { %a } else if (%d) { let %t = negative(%a); multiply(%t, %x) } else { %x };
  @power(0, 5, %1)
}
"""


def recursion() -> Any:
    """A function that calls itself last, with constants, and branches in a branch."""
    return meta.frontend.relay.from_relay(_RECURSION)


def products() -> Any:
    """Parallel loops and kernels with workspaces."""
    return meta.trace(lambda x, y: (meta.matmul(x, y), meta.sort(x), meta.cumsum(y, 0)))


def operators_with_halves(x: Any, w: Any, d: Any, i: Any, j: Any, image: Any, kernel: Any) -> dict[str, Any]:
    """`operators`, and some on float16."""
    half = meta.cast(x, "float16")
    return operators(x, w, d, i, j, image, kernel) | {
        "half_product": half * 2, "half_exp": meta.exp(half), "half_sum": meta.sum(half, 1),
        "half_matmul": meta.matmul(half, meta.cast(w, "float16")),
    }  # fmt: skip


def operators(x: Any, w: Any, d: Any, i: Any, j: Any, image: Any, kernel: Any) -> dict[str, Any]:
    """Operators of many kinds and dtypes, by name. x, w: float32 (33, 40), (40, 24).  d: float64 (33, 40).
    i: int64 (33, 40).  j: int32 (8,), rows of x.  image, kernel: (2, 3, 12, 12), (8, 3, 3, 3)."""
    brain, byte = meta.cast(x, "bfloat16"), meta.cast(i, "uint8")
    exact = {
        "floor_divide": meta.floor_divide(i, 7),
        "remainder": meta.remainder(i, -5),
        "shift": meta.bitwise_xor(i, i * 3),
        "less": x < 0.25,
        "where": meta.where(x > 0, x, -x),
        "bytes": byte + byte,
        "int8": meta.cast(i, "int8") * 2,
        "argmax": meta.argmax(x, 1),
        "max": meta.max(d, 0),
        "sort": meta.sort(x, -1),
        "argsort": meta.argsort(d, 0),
        "take": meta.take(x, j, 0),
        "gather": meta.gather(x, 1, i % 40),
        "concatenate": meta.concatenate([x, x * 2], 1),
        "cast_down": meta.cast(d, "bfloat16"),
        "from_int64": meta.cast(i, "float32") + meta.cast(i * 3, "float64"),
        "to_int64": meta.cast(x * 100, "int64") + meta.cast(d * 1000, "int64"),
        "uniform": meta.random.uniform((16, 16)),
        "randint": meta.random.randint((16,), 0, 1000),
    }
    near = {
        "tanh": meta.tanh(x), "erf": meta.erf(x), "exp": meta.exp(x), "gelu": meta.gelu(x), "sigmoid": meta.sigmoid(x),
        "log1p": meta.log1p(x * x), "sin": meta.sin(x), "power": meta.power(meta.abs(x), 1.7), "erf64": meta.erf(d),
        "exp64": meta.exp(d), "sin64": meta.sin(d * 10), "sqrt64": meta.sqrt(d * d + 1),
        "bfloat_tanh": meta.tanh(brain), "bfloat_matmul": meta.matmul(brain, meta.cast(w, "bfloat16")),
        "bfloat_softmax": meta.softmax(brain, -1), "bfloat_int": meta.cast(brain * 10, "int32"),
        "matmul": meta.matmul(x, w),
        "matmul64": meta.matmul(d, meta.transpose(d, (1, 0))),
        "conv2d": meta.conv2d(image, kernel, padding=1), "max_pool2d": meta.max_pool2d(image, 2),
        "mean": meta.mean(image, (2, 3)), "sum64": meta.sum(d, 0),
        "softmax": meta.softmax(x, -1), "log_softmax": meta.log_softmax(d, 0), "cumsum": meta.cumsum(x, 0),
        "normal": meta.random.normal((16, 16)),
    }  # fmt: skip
    return exact | near


def operator_inputs() -> tuple[Any, ...]:
    random = np.random.default_rng(3)
    x, d = random.normal(size=(2, 33, 40))
    floats = [x, random.normal(size=(40, 24)), random.normal(size=(2, 3, 12, 12)), random.normal(size=(8, 3, 3, 3))]
    x, w, image, kernel = [each.astype("float32") for each in floats]
    i, j = random.integers(-90, 90, (33, 40)), random.integers(0, 33, 8).astype("int32")
    return x, w, d, i, j, image, kernel


CASES = {
    "batch_norm": Case(batch_norm_step, [(normal(4, 3, 8, 8, seed=i), np.arange(4) % 4) for i in range(5)]),
    "branches": Case(branches, [(np.abs(normal(3, 4)),), (-np.abs(normal(3, 4)),)]),
    "dropout": Case(dropout, [(normal(3, 8),)] * 3),
    "open_batch": Case(
        NETWORKS["mlp"].case("inference").what, [(normal(n, 20, seed=n),) for n in (3, 1, 17)], {"x": {0: "n"}}
    ),
    "stacked": Case(
        stacked, [(normal(n, b, 4), normal(b, 4), normal(m, 4)) for n, b, m in ((5, 3, 2), (2, 6, 1), (2, 0, 3))],
        {"xs": {0: "n", 1: "b"}, "h": {0: "b"}, "y": {0: "m"}},
    ),
    "nested": Case(nested, [(normal(3, 4),)]),
    "recursion": Case(recursion, [(normal(2), np.array(c), np.array(not c)) for c in (True, False)]),
    "products": Case(products, [(normal(130, 140), normal(140, 90))]),
}  # fmt: skip
