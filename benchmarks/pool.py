"""`python -m benchmarks.pool [--device cuda]`: max pooling, max pooling with indices and the gradient, against torch.

One thread on a CPU; on a GPU the time of the device. Both get contiguous tensors (batch, channels, height, width).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import meta
from benchmarks.cuda import gpu_times
from benchmarks.timing import medians

CASES: dict[str, tuple[tuple[int, ...], tuple[int, int, int]]] = {
    "ResNet, 3x3/2": ((64, 112, 112), (3, 2, 1)),
    "2x2/2": ((64, 112, 112), (2, 2, 0)),
    "3x3/1": ((64, 56, 56), (3, 1, 1)),
    "3x3/1, 30 wide": ((64, 30, 30), (3, 1, 1)),
    "5x5/1": ((64, 28, 28), (5, 1, 2)),
    "global 7x7": ((512, 7, 7), (7, 7, 0)),
    "global 56x56": ((64, 56, 56), (56, 56, 0)),
}
"""Name -> shape of one image; kernel, stride and padding."""


def times(shape: tuple[int, ...], window: tuple[int, int, int], device: str) -> list[tuple[str, float, float]]:
    """(what, microseconds, microseconds of torch)."""
    host = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x, t = meta.array(host, device=device), torch.from_numpy(host).to(device)
    y, indices = meta.max_pool2d_with_indices(x, *window)
    pooled = torch.ops.aten.max_pool2d_with_indices
    dt, places = pooled(t, *([n, n] for n in window))
    kernel, stride, padding = ([n, n] for n in window)
    works: dict[str, tuple[Any, Any]] = {
        "forward": (lambda: meta.max_pool2d(x, *window), lambda: pooled(t, kernel, stride, padding)),
        "with indices": (
            lambda: meta.max_pool2d_with_indices(x, *window),
            lambda: pooled(t, kernel, stride, padding),
        ),
        "gradient": (
            lambda: meta.max_pool2d_dx(y, indices, shape, *window),
            lambda: torch.ops.aten.max_pool2d_with_indices_backward(
                dt, t, kernel, stride, padding, [1, 1], False, places
            ),
        ),
    }
    out: list[tuple[str, float, float]] = []
    for what, pair in works.items():
        ours, theirs = gpu_times(*pair) if device == "cuda" else (s * 1e6 for s in medians(*pair, seconds=0.3))
        out.append((what, ours, theirs))
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line per case and function."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool", description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, help="images; by default 1 on a CPU, 64 on a GPU")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    batch = options.batch or (64 if options.device == "cuda" else 1)
    for name, (image, window) in CASES.items():
        for what, ours, theirs in times((batch, *image), window, options.device):
            print(f"{name:14} {what:14}{ours:9.1f} us{theirs:9.1f} torch{ours / theirs:7.2f}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
