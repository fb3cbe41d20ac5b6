"""`python -m benchmarks.wasm [NAME ...] [--rounds 21]`: programs in WebAssembly under Node against native code.

Both are compiled from the same program, with vectors of 128 bits and without fused products: native code for
x86-64-v2 (SSE4.2), which the executor of this process runs, in one thread. The two take turns. A row has the medians of
the processor's time of a call, and the median of their ratio. Returns 1 if a ratio is above 1.5, or if a module has
more than 300 KB.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

import meta
from meta import nn

LIMIT: Final = 1.5
"""The largest ratio of the times."""
BYTES: Final = 300_000
"""The largest module."""
SECONDS: Final = 0.05
"""Of the calls of a round."""
SCRIPT: Final = Path(__file__).with_suffix(".mjs")
Inputs = tuple[np.ndarray[Any, Any], ...]


def lenet_step() -> tuple[Any, Inputs]:
    """LeNet-5 in training, for 32 images."""
    from examples import lenet

    model = nn.Sequential(*lenet.layers(nn))
    step = meta.optim.TrainStep(model, meta.optim.SGD(model, 0.05, momentum=0.9), meta.cross_entropy)
    return step, (np.zeros((32, 1, 28, 28), "float32"), np.zeros((32,), "int64"))


def lenet() -> tuple[Any, Inputs]:
    """LeNet-5 for one image."""
    from examples import lenet

    return nn.Sequential(*lenet.layers(nn)).infer_mode(), (np.zeros((1, 1, 28, 28), "float32"),)


def mlp() -> tuple[Any, Inputs]:
    """A perceptron with two hidden layers, for 64 samples."""
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers).infer_mode(), (np.zeros((64, 784), "float32"),)


def encoder() -> tuple[Any, Inputs]:
    """Two layers of BERT-mini, for 64 tokens."""
    layers = [nn.TransformerEncoderLayer(256, 4, 1024, 0.0, "gelu", batch_first=True) for _ in range(2)]
    return nn.Sequential(*layers).infer_mode(), (np.zeros((1, 64, 256), "float32"),)


def convolutions() -> tuple[Any, Inputs]:
    """Three convolutions of 32 channels with batch normalisation, for an image of 32x32."""
    layers = [layer for _ in range(3) for layer in (nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())]
    return nn.Sequential(*layers).infer_mode(), (np.zeros((1, 32, 32, 32), "float32"),)


NETWORKS: Final[Mapping[str, Callable[[], tuple[Any, Inputs]]]] = {
    "lenet-step": lenet_step, "lenet": lenet, "mlp": mlp, "encoder": encoder,
    "convolutions": convolutions,
}  # fmt: skip


class NodeProgram:
    """A program in a process of Node."""

    def __init__(self, folder: Path) -> None:
        command = ["node", "--no-warnings", str(SCRIPT), str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self, count: int) -> float:
        """The processor's time of a call in ms, from so many calls."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(count, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate()


def compiled(name: str, target: str, cpu: str | None) -> tuple[Any, list[Any]]:
    """The executor of a network for a machine, and arrays for its calls."""
    meta.random.seed(0)
    what, inputs = NETWORKS[name]()
    with meta.with_dialect("tvm"):
        executor = meta.vm.compile(what, target=target, cpu=cpu)
        arrays = [meta.array(x) for x in inputs]
        executor.program(*arrays)
    return executor, arrays


def native_time(executor: Any, arrays: Sequence[Any], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        executor(*arrays)
    return 1e3 * (time.process_time() - start) / count


def row(name: str, rounds: int) -> tuple[float, float, float, int]:
    """The median times under Node and of native code in ms, the median of their ratio, and the bytes of the module."""
    native, arrays = compiled(name, "x86_64-linux-gnu", "x86-64-v2")
    with TemporaryDirectory() as folder:
        compiled(name, "wasm32", None)[0].save(folder, format="web")
        size = Path(folder, "program.wasm").stat().st_size
        program = NodeProgram(Path(folder))
        try:
            program.time(200)  # compiles it at all levels
            count = max(3, int(1e3 * SECONDS / native_time(native, arrays, 5)))
            pairs = [(program.time(count), native_time(native, arrays, count)) for _ in range(rounds)]
        finally:
            program.close()
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(a / b for a, b in pairs), size


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wasm", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NETWORKS))
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args(argv)
    misses = 0
    for name in options.names or NETWORKS:
        wasm, native, ratio, size = row(name, options.rounds)
        misses += ratio > LIMIT or size > BYTES
        print(f"{name:13} {wasm:8.3f} ms  native {native:8.3f} ms  ratio {ratio:.2f}  {size:,} bytes", flush=True)
    return int(misses > 0)


if __name__ == "__main__":
    raise SystemExit(main())
