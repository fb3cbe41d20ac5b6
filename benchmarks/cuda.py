"""`python -m benchmarks.cuda [--only GROUP] [--json FILE]`: the table of docs/measurements/gpu.md, against torch.

Times are medians of CUDA events; host times use the host's clock.
Convolutions have their own benchmark, `python -m benchmarks.cudnn_conv`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import meta
from benchmarks.resnet import ResNet18, torch_resnet18
from benchmarks.timing import Row
from meta.errors import MetaError
from meta.optim.sgd import with_sgd

Work = Callable[[], Any]
SIZE = 8192
_WAIT = 1_000_000
"""Cycles of the GPU, half a millisecond."""


def gpu_times(*works: Work, rounds: int = 31) -> list[float]:
    """Median device microseconds per call of each function; the functions take turns.

    Before each call the GPU waits, until the host has queued the call: launches take no part."""
    for work in works:
        for _ in range(5):
            work()
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, sample in zip(works, samples, strict=True):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(_WAIT)
            start.record()
            work()
            end.record()
            end.synchronize()
            sample.append(start.elapsed_time(end) * 1e3)
    return [statistics.median(sample) for sample in samples]


def host_times(*works: Work, rounds: int = 31, count: int = 100) -> list[float]:
    """Median host microseconds per call of each function, until the call has queued its work."""
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 3):
        for work, sample in zip(works, samples, strict=True):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(count):
                work()
            sample.append((time.perf_counter() - start) / count * 1e6)
    return [statistics.median(sample[3:]) for sample in samples]


def randoms(*shape: int) -> tuple[Any, torch.Tensor]:
    """A meta array and a torch tensor with equal values in separate memory."""
    host = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return meta.array(host, device="cuda"), torch.from_numpy(host).cuda()


def bandwidth() -> Iterator[Row]:
    """Memory-bound operators: time against that of a copy of as many bytes, at most 1 / 0.9."""
    x, t = randoms(SIZE, SIZE)
    dy, _ = randoms(SIZE, SIZE)
    scale, bias = (meta.array(np.ones(SIZE, np.float32), device="cuda") for _ in range(2))
    target = torch.empty_like(t)
    y = meta.softmax(x)
    chain = meta.vm.compile(meta.trace(lambda x: ((x * 2.0 + 1.0) * 0.5 + 3.0) * x), device="cuda", graphs=False)
    works: dict[str, tuple[Work, int]] = {
        "softmax": (lambda: meta.softmax(x), 2),
        "softmax_dx": (lambda: meta.softmax_dx(y, dy), 3),
        "layer_norm": (lambda: meta.layer_norm(x, scale, bias), 2),
        "gelu": (lambda: meta.gelu(x), 2),
        "gelu_dx": (lambda: meta.gelu_dx(x, dy), 3),
        "add-mul chain (VM)": (lambda: chain(x), 2),
    }
    for name, (work, arrays) in works.items():
        measured, copy = gpu_times(work, lambda: target.copy_(t))
        yield Row(f"{name} {SIZE}x{SIZE} against a copy", measured, copy * arrays / 2, "us", 1 / 0.9)


def host() -> Iterator[Row]:
    """Host time of calls of small operators."""
    (x, t), (y, u) = randoms(8, 8), randoms(8, 8)
    with torch.no_grad():
        for name, ours, theirs in (
            ("add", lambda: meta.add(x, y), lambda: torch.add(t, u)),
            ("softmax", lambda: meta.softmax(x), lambda: torch.softmax(t, -1)),
            ("tanh", lambda: meta.tanh(x), lambda: torch.tanh(t)),
            ("matmul", lambda: meta.matmul(x, y), lambda: torch.matmul(t, u)),
        ):
            measured, reference = host_times(ours, theirs)
            yield Row(f"host time of {name} 8x8", measured, reference, "us", 1.0)


_FIRST_CALL = """
import time
import numpy as np
import meta
key = meta.array(np.array([1, 2]), device="cuda")
(key + key).numpy()
start = time.perf_counter()
meta.normal(key, (1 << 20,)).numpy()
print(time.perf_counter() - start)
"""


def random() -> Iterator[Row]:
    """Random numbers: device time against torch's, and the first call of `normal` in a process without a cache."""
    for dtype in ("float32", "bfloat16"):
        for shape in ((SIZE, SIZE), (SIZE, 1024)):
            for name, works in _random_works(shape, dtype).items():
                measured, reference = gpu_times(*works)
                yield Row(f"{name} {shape[0]}x{shape[1]} {dtype}", measured, reference, "us", 1.1)
    command, environment = [sys.executable, "-c", _FIRST_CALL], os.environ | {"META_CACHE": "0"}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    yield Row("first call of normal, no cache", float(output), None, "s", 0.5)


def _random_works(shape: tuple[int, ...], dtype: str) -> dict[str, tuple[Work, Work]]:
    """Calls of meta and of torch by name."""
    key = meta.array(np.array([1, 2]), device="cuda")
    x, t = meta.ones(shape, dtype, "cuda"), torch.ones(shape, dtype=getattr(torch, dtype), device="cuda")
    works: dict[str, tuple[Work, Work]] = {
        "dropout": (lambda: meta.dropout(x, key, 0.1), lambda: torch.native_dropout(t, 0.1, True)),
        "uniform": (lambda: meta.uniform(key, shape, dtype=dtype), lambda: torch.rand_like(t)),
        "normal": (lambda: meta.normal(key, shape, dtype=dtype), lambda: torch.randn_like(t)),
        "bernoulli": (lambda: meta.bernoulli(key, shape, 0.5, dtype), lambda: torch.empty_like(t).bernoulli_(0.5)),
    }
    if dtype == "float32":
        works["poisson"] = lambda: meta.poisson(key, x), lambda: torch.poisson(t)
        works["standard_gamma"] = lambda: meta.standard_gamma(key, x), lambda: torch._standard_gamma(t)
    return works


def sorts() -> Iterator[Row]:
    """Sorting by TVM's kernels, which do without torch: at most twice torch's time."""
    tables = [(1024, 4096), (1_000_000,), (10_000_000,), (100_000, 32)]
    works: list[tuple[str, tuple[int, ...], Callable[[Any], Any], Callable[[torch.Tensor], Any]]] = [
        *(("sort", shape, meta.sort, lambda t: torch.sort(t, stable=True)) for shape in tables),
        ("argsort", tables[0], meta.argsort, lambda t: torch.sort(t, stable=True)),
        *(("topk 10", shape, lambda x: meta.topk(x, 10), lambda t: torch.topk(t, 10)) for shape in tables[:2]),
    ]
    with meta.with_dialect("tvm"):
        for name, shape, ours, theirs in works:
            x, t = randoms(*shape)
            measured, reference = gpu_times(lambda x=x, f=ours: f(x), lambda t=t, f=theirs: f(t))
            yield Row(f"{name} {'x'.join(map(str, shape))} (TVM)", measured, reference, "us", 2.0)


def _step(name: str, model: Any, reference: torch.nn.Module, shape: tuple[int, ...]) -> Row:
    images, t_images = randoms(*shape)
    labels = np.random.default_rng(1).integers(0, 10, shape[0])
    ours, theirs = meta.array(labels, device="cuda"), torch.from_numpy(labels).cuda()
    step = meta.vm.compile(with_sgd(0.01, 0.9)(model.to("cuda"), loss=meta.cross_entropy), device="cuda")
    reference = reference.cuda()
    optimizer = torch.optim.SGD(reference.parameters(), 0.01, 0.9)

    def torch_step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(reference(t_images), theirs).backward()
        optimizer.step()

    measured, torch_time = gpu_times(lambda: step(images, ours), torch_step)
    return Row(f"{name} training step, batch {shape[0]} (VM)", measured, torch_time, "us", 0.8)


def steps() -> Iterator[Row]:
    """Whole training steps as VM programs, against torch eager."""
    from meta.cli.digits import DigitsNet

    digits = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, 1, 1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, 1, 1), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(512, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10),
    )  # fmt: skip
    yield _step("digits CNN", DigitsNet(), digits, (64, 1, 8, 8))
    torch.backends.cudnn.benchmark = True
    yield _step("ResNet-18", ResNet18(), torch_resnet18(), (64, 3, 32, 32))


GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "bandwidth": bandwidth,
    "host": host,
    "random": random,
    "sorts": sorts,
    "steps": steps,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. A group that fails prints its error, and the other groups still run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda", description=__doc__)
    parser.add_argument(
        "--only", choices=sorted(GROUPS), action="append", help="run this group of rows; may be repeated"
    )
    parser.add_argument("--json", type=Path, help="output file")
    options = parser.parse_args(argv)
    rows: list[Row] = []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, meta {meta.__version__}")
    for name in options.only or GROUPS:
        try:
            for row in GROUPS[name]():
                rows.append(row)
                verdict = "holds" if row.holds else "MISSES"
                print(f"{row.name:64} {row.value:9.2f} {row.reference or 0:9.2f} {row.unit:2}  {row.measured:6.3f} "
                      f"(at most {row.limit:.3f}) {verdict}", flush=True)  # fmt: skip
        except (MetaError, RuntimeError, ValueError) as error:
            print(f"{name} stopped: {type(error).__name__}: {error}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
