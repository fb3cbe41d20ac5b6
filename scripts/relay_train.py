"""Train an imported network on random labels: `python -m scripts.relay_train NETWORK.relay PARAMS [--steps 20]`.

It shows that parameters stay trainable after import: the loss on one batch goes down, on the VM, in one program of
forward, backward and update. The network has one input, and its result is a table of probabilities or logits, a row an
example.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import meta
from meta.frontend import relay
from meta.ir.type import TensorType


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train an imported network on random labels.")
    parser.add_argument("network", type=Path)
    parser.add_argument("params", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    options = parser.parse_args(argv)
    network = relay.load(options.network, options.params)
    name = network.inputs[0]
    shape: Any = (options.batch, *_input(network, name).shape[1:])
    model = relay.load(options.network, options.params, shapes={name: shape})
    optimizer = meta.optim.SGD(model.parameters(), learning_rate=options.learning_rate, momentum=0.9)
    rng = np.random.RandomState(0)
    classes = int(model.module.main.body.type.shape[-1])  # type: ignore[union-attr]
    x = meta.array(rng.randn(*shape).astype("float32"))
    target = meta.array(np.asarray(rng.randint(0, classes, options.batch), "int64"))

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = meta.cross_entropy(meta.log(model(x) + 1e-8) if _ends_in_softmax(model) else model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    compiled = meta.vm.compile(meta.trace(step))
    start = time.perf_counter()
    losses = [float(compiled(x, target).item()) for _ in range(options.steps)]
    print(f"{options.network.name}: {options.steps} steps in {time.perf_counter() - start:.1f} s (compiling included)")
    print("loss " + " ".join(f"{loss:.3f}" for loss in losses))
    return 0 if losses[-1] < losses[0] else 1


def _input(model: relay.RelayModel, name: str) -> TensorType:
    kind = next(p.type for p in model.module.main.params if p.name == name)
    assert isinstance(kind, TensorType)
    return kind


def _ends_in_softmax(model: relay.RelayModel) -> bool:
    return getattr(model.module.main.body.bindings[-1].value, "op_name", "") == "softmax"


if __name__ == "__main__":
    sys.exit(main())
