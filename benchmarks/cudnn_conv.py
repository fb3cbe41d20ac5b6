"""`python -m benchmarks.cudnn_conv [--batch 64] [--exact]`: ResNet-50's convolutions and their gradients against torch.

Both libraries get contiguous tensors (batch, channels, height, width), and torch uses cudnn.benchmark. A CUDA graph
holds each call ten times, so that times exclude the host. The graphs take turns; results are medians of CUDA events.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import tvm_ffi

import meta
from meta.backend.cudnn import settings
from meta.device import device
from meta.ir.expr import CallInfo
from meta.op.dispatch import dialect, implementations
from meta.op.registry import as_type, get

LAYERS = (
    (3, 224, 64, 7, 2, 3),
    (64, 56, 64, 1, 1, 0),
    (64, 56, 64, 3, 1, 1),
    (64, 56, 256, 1, 1, 0),
    (256, 56, 64, 1, 1, 0),
    (256, 56, 128, 1, 1, 0),
    (128, 56, 128, 3, 2, 1),
    (128, 28, 512, 1, 1, 0),
    (256, 56, 512, 1, 2, 0),
    (512, 28, 128, 1, 1, 0),
    (128, 28, 128, 3, 1, 1),
    (512, 28, 256, 1, 1, 0),
    (256, 28, 256, 3, 2, 1),
    (256, 14, 1024, 1, 1, 0),
    (512, 28, 1024, 1, 2, 0),
    (1024, 14, 256, 1, 1, 0),
    (256, 14, 256, 3, 1, 1),
    (1024, 14, 512, 1, 1, 0),
    (512, 14, 512, 3, 2, 1),
    (512, 7, 2048, 1, 1, 0),
    (1024, 14, 2048, 1, 2, 0),
    (2048, 7, 512, 1, 1, 0),
    (512, 7, 512, 3, 1, 1),
)
"""(channels, size, out channels, kernel, stride, padding) of every convolution of ResNet-50 (K. He et al., 2015)."""
CALLS = 10
ROUNDS = 9
LIMIT = 1.05
Launch = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Result:
    """Microseconds of one call."""

    name: str
    ours: float
    torch: float

    @property
    def ratio(self) -> float:
        return self.ours / self.torch


def record_graph(launch: Launch) -> torch.cuda.CUDAGraph:
    """A CUDA graph of several calls, recorded after warm-up calls."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with tvm_ffi.use_torch_stream(torch.cuda.stream(stream)):
        for _ in range(3):
            launch()
    torch.cuda.synchronize()
    with tvm_ffi.use_torch_stream(torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed")):
        for _ in range(CALLS):
            launch()
    return graph


def measure(*graphs: torch.cuda.CUDAGraph) -> list[float]:
    """Median microseconds per call in each graph."""
    samples: list[list[float]] = [[] for _ in graphs]
    for graph in graphs:
        graph.replay()
    for _ in range(ROUNDS):
        for graph, sample in zip(graphs, samples, strict=True):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            sample.append(start.elapsed_time(end) * 1000 / CALLS)
    return [statistics.median(sample) for sample in samples]


def kernel(name: str, tensors: list[Any], attributes: tuple[Any, ...]) -> Launch:
    """A function that calls meta's cuDNN kernel on the memory of torch tensors; the last tensor is the result."""
    op = get(name)
    arrays = [meta.from_dlpack(t) for t in tensors]
    bound = op.schema.bind(name, (*arrays[:-1], *attributes), {})
    types = tuple(map(as_type, bound))
    call = CallInfo(op, types, op.declare(*types), device("cuda"))
    implementation = next(i for i in implementations(op) if i.dialect.name == "cudnn")
    refusal = implementation.refusal(call)
    if refusal:
        raise SystemExit(f"{name}: {refusal}")
    run = dialect("cudnn").kernel(implementation, call)
    raw = [a._data for a in arrays]
    return lambda: run(*raw)


def layer(batch: int, dtype: torch.dtype, sizes: tuple[int, ...]) -> Iterator[Result]:
    """Times of forward, dx and dw of one layer."""
    channels, size, out, window, stride, pad = sizes
    x = torch.randn(batch, channels, size, size, device="cuda", dtype=dtype)
    w = torch.randn(out, channels, window, window, device="cuda", dtype=dtype)
    y = torch.conv2d(x, w, None, stride, pad)
    dy, dx, dw = torch.randn_like(y), torch.empty_like(x), torch.empty_like(w)
    args = (stride, pad, 1, 1)
    backward = torch.ops.aten.convolution_backward

    def theirs(needs: list[bool]) -> Launch:
        common = ([stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, needs)
        return lambda: backward(dy, x, w, None, *common)

    pairs: list[tuple[str, Launch, Launch]] = [
        ("conv2d", kernel("conv2d", [x, w, y], args), lambda: torch.conv2d(x, w, None, stride, pad)),
        ("dx", kernel("conv2d_dx", [w, dy, dx], (tuple(x.shape), *args)), theirs([True, False, False])),
        ("dw", kernel("conv2d_dw", [x, dy, dw], (tuple(w.shape), *args)), theirs([False, True, False])),
    ]
    label = f"{channels}x{size}x{size} -> {out}, {window}x{window}/{stride}"
    for name, launch, torch_launch in pairs:
        ours, reference = measure(record_graph(launch), record_graph(torch_launch))
        yield Result(f"{label} {name}", ours, reference)


def print_report(title: str, results: list[Result]) -> None:
    print(f"\n{title}\n| layer | meta us | torch us | ratio |\n| --- | ---: | ---: | ---: |")
    for r in results:
        print(f"| {r.name} | {r.ours:.1f} | {r.torch:.1f} | {r.ratio:.2f}{'' if r.ratio <= LIMIT else ' *'} |")
    total = sum(r.ours for r in results) / sum(r.torch for r in results)
    median, over = statistics.median(r.ratio for r in results), sum(r.ratio > LIMIT for r in results)
    print(f"{title}: sum {total:.3f}, median {median:.3f}, over {LIMIT}: {over} of {len(results)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cudnn_conv", description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--exact", action="store_true", help="float32 without TF32 in both libraries")
    parser.add_argument("--layers", type=int, default=len(LAYERS), help="number of layers, from the first")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = not options.exact
    settings.allow_tf32(not options.exact)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    for dtype in (torch.bfloat16, torch.float32):
        results = [r for sizes in LAYERS[: options.layers] for r in layer(options.batch, dtype, sizes)]
        name = str(dtype).removeprefix("torch.")
        print_report(f"{name}{'' if dtype == torch.bfloat16 or options.exact else ' (TF32)'}", results)


if __name__ == "__main__":
    main()
