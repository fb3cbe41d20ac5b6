"""`python -m benchmarks.cuda [--only GROUP] [--json FILE]`: the table of docs/gpu.md, against torch on the same GPU.

Times are medians of CUDA events, of the host's clock where the row is about the host.
"""

from __future__ import annotations

import argparse
import json
import statistics
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


def gpu_times(*works: Work, rounds: int = 31) -> list[float]:
    """Median microseconds of the device for one call of each; they take turns."""
    for work in works:
        for _ in range(5):
            work()
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, sample in zip(works, samples, strict=True):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            work()
            end.record()
            end.synchronize()
            sample.append(start.elapsed_time(end) * 1e3)
    return [statistics.median(sample) for sample in samples]


def host_times(*works: Work, rounds: int = 31, count: int = 100) -> list[float]:
    """Median microseconds of the host for giving one call of each to the device."""
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 3):
        for work, sample in zip(works, samples, strict=True):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(count):
                work()
            sample.append((time.perf_counter() - start) / count * 1e6)
    return [statistics.median(sample[3:]) for sample in samples]


def randoms(*shape: int, dtype: str = "float32") -> tuple[Any, torch.Tensor]:
    """Equal arrays of meta and torch, in memory of their own."""
    host = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x = meta.array(host, device="cuda").cast(dtype)
    return x, torch.from_numpy(host).cuda().to(getattr(torch, dtype))


def bandwidth() -> Iterator[Row]:
    """Operators that do nothing but move memory: time against that of a copy of as many bytes, at most 1 / 0.9."""
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
        mine, copy = gpu_times(work, lambda: target.copy_(t))
        yield Row(f"{name} {SIZE}x{SIZE} against a copy", mine, copy * arrays / 2, "us", 1 / 0.9)


def host() -> Iterator[Row]:
    """Time of the host for a small operator."""
    (x, t), (y, u) = randoms(8, 8), randoms(8, 8)
    with torch.no_grad():
        for name, ours, theirs in (
            ("add", lambda: meta.add(x, y), lambda: torch.add(t, u)),
            ("softmax", lambda: meta.softmax(x), lambda: torch.softmax(t, -1)),
            ("tanh", lambda: meta.tanh(x), lambda: torch.tanh(t)),
            ("matmul", lambda: meta.matmul(x, y), lambda: torch.matmul(t, u)),
        ):
            mine, reference = host_times(ours, theirs)
            yield Row(f"host time of {name} 8x8", mine, reference, "us", 1.0)


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

    mine, other = gpu_times(lambda: step(images, ours), torch_step)
    return Row(f"{name} training step, batch {shape[0]} (VM)", mine, other, "us", 0.8)


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


CONVOLUTIONS = (
    # channels in, channels out, kernel, stride, size: the distinct ones of ResNet-50
    (3, 64, 7, 2, 224), (64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (256, 64, 1, 1, 56),
    (256, 128, 1, 1, 56), (128, 128, 3, 2, 56), (128, 512, 1, 1, 28), (256, 512, 1, 2, 56), (512, 128, 1, 1, 28),
    (128, 128, 3, 1, 28), (512, 256, 1, 1, 28), (256, 256, 3, 2, 28), (256, 1024, 1, 1, 14), (512, 1024, 1, 2, 28),
    (1024, 256, 1, 1, 14), (256, 256, 3, 1, 14), (1024, 512, 1, 1, 14), (512, 512, 3, 2, 14), (512, 2048, 1, 1, 7),
    (1024, 2048, 1, 2, 14), (2048, 512, 1, 1, 7), (512, 512, 3, 1, 7),
)  # fmt: skip


def convolutions() -> Iterator[Row]:
    """ResNet-50's convolutions and their gradients, batch 64; torch with cudnn.benchmark; float32 with TF32 in both."""
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, True
    for dtype in ("bfloat16", "float32"):
        sums = {"conv2d": [0.0, 0.0], "conv2d_dx": [0.0, 0.0], "conv2d_dw": [0.0, 0.0]}
        for inputs, outputs, kernel, stride, size in CONVOLUTIONS:
            for name, pair in _convolution(dtype, inputs, outputs, kernel, stride, size).items():
                sums[name][0] += pair[0]
                sums[name][1] += pair[1]
                yield Row(f"{name} {dtype} {inputs}->{outputs} {kernel}x{kernel}/{stride} {size}", *pair, "us", 1.05)
        for name, (mine, theirs) in sums.items():
            yield Row(f"{name} {dtype}, all layers", mine, theirs, "us", 1.05)


def _convolution(
    dtype: str, inputs: int, outputs: int, kernel: int, stride: int, size: int
) -> dict[str, tuple[float, float]]:
    pad = kernel // 2
    (x, t), (w, u) = randoms(64, inputs, size, size, dtype=dtype), randoms(outputs, inputs, kernel, kernel, dtype=dtype)
    dy, v = randoms(*meta.conv2d(x, w, stride, pad).shape, dtype=dtype)

    def backward(dx: bool) -> Any:
        aten = torch.ops.aten.convolution_backward
        options = ([stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, [dx, not dx, False])
        return aten(v, t, u, None, *options)

    ours: dict[str, tuple[Work, Work]] = {
        "conv2d": (lambda: meta.conv2d(x, w, stride, pad),
                   lambda: torch.conv2d(t, u, None, stride, pad)),
        "conv2d_dx": (lambda: meta.conv2d_dx(w, dy, x.shape, stride, pad), lambda: backward(True)),
        "conv2d_dw": (lambda: meta.conv2d_dw(x, dy, w.shape, stride, pad), lambda: backward(False)),
    }  # fmt: skip
    found: dict[str, tuple[float, float]] = {}
    for name, works in ours.items():
        mine, theirs = gpu_times(*works, rounds=11)
        found[name] = mine, theirs
    return found


GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "bandwidth": bandwidth, "host": host, "steps": steps, "convolutions": convolutions,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; a group that fails says so and the others go on."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda", description=__doc__)
    parser.add_argument("--only", choices=sorted(GROUPS), action="append", help="these groups of rows")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    options = parser.parse_args(argv)
    rows: list[Row] = []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, meta {meta.__version__}")
    for name in options.only or GROUPS:
        try:
            for row in GROUPS[name]():
                rows.append(row)
                verdict = "holds" if row.holds else "MISSES"
                print(f"{row.name:64} {row.value:9.2f} {row.reference or 0:9.2f} us  {row.measured:6.3f} x "
                      f"(at most {row.limit:.3f}) {verdict}", flush=True)  # fmt: skip
        except (MetaError, RuntimeError, ValueError) as error:
            print(f"{name} stopped: {type(error).__name__}: {error}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
