"""Whole training steps (forward, backward, SGD with momentum) of meta's VM, torch eager and torch.compile."""

from __future__ import annotations

import gc
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import meta
from benchmarks.bert import BASE, MINI, Bert, Sizes, TorchBert
from benchmarks.resnet import ResNet18, ResNet50, torch_resnet18, torch_resnet50
from benchmarks.timing import processor_seconds
from benchmarks.vm import MLP
from meta.optim.sgd import with_sgd
from meta.progress import timed_stages

Work = Callable[[], Any]
Data = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
RATE, MOMENTUM = 0.01, 0.9
WARM_UP = 4
"""Untimed steps; torch.compile records its CUDA graphs in the second and third."""


@dataclass(frozen=True, slots=True)
class Network:
    """A model in both libraries and its batch. channels_last: the layout that is torch's best on CUDA.
    budgets: `memory_budget` of meta's step, by device and dtype."""

    ours: Callable[[], meta.Model]
    theirs: Callable[[], torch.nn.Module]
    data: Callable[[], Data]
    channels_last: bool = False
    budgets: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])


def _images(batch: int, size: int, classes: int) -> Callable[[], Data]:
    def draw() -> Data:
        generator = np.random.default_rng(0)
        x = generator.standard_normal((batch, 3, size, size)).astype(np.float32)
        return x, generator.integers(0, classes, batch)

    return draw


def _tokens(batch: int, sizes: Sizes) -> Callable[[], Data]:
    def draw() -> Data:
        generator = np.random.default_rng(0)
        shape = batch, sizes.tokens
        return generator.integers(0, sizes.vocabulary, shape), generator.integers(0, sizes.vocabulary, shape).ravel()

    return draw


def _rows() -> Data:
    generator = np.random.default_rng(0)
    return generator.standard_normal((64, 784)).astype(np.float32), generator.integers(0, 10, 64)


def _torch_mlp() -> torch.nn.Module:
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    return torch.nn.Sequential(linear(784, 256), relu(), linear(256, 256), relu(), linear(256, 10))


NETWORKS = {
    "mlp": Network(MLP, _torch_mlp, _rows),
    "resnet18": Network(ResNet18, torch_resnet18, _images(8, 32, 10), True, {("cpu", "float32"): "168 MiB"}),
    "bert-mini": Network(lambda: Bert(MINI), lambda: TorchBert(MINI), _tokens(8, MINI)),
    "resnet50": Network(
        ResNet50, torch_resnet50, _images(64, 224, 1000), True,
        {("cuda", "float32"): "5320 MiB", ("cuda", "bfloat16"): "2800 MiB"},
    ),
    "bert-base": Network(
        lambda: Bert(BASE), lambda: TorchBert(BASE), _tokens(32, BASE), False,
        {("cuda", "float32"): "3900 MiB", ("cuda", "bfloat16"): "2815 MiB"},
    ),
}  # fmt: skip
"""The budgets are a little below what torch needs: eagerly on the CPU, compiled on CUDA."""


@dataclass(slots=True)
class Contender:
    """A prepared training step. run: one step, which returns the loss.  first: seconds of the first step, compilation
    included; first_processor: of processors, those of compilers included.  peak: bytes that live at one time during a
    step, None if unknown.  stages: seconds of the stages of meta's first step."""

    name: str
    run: Work
    first: float
    first_processor: float
    peak: int | None
    loss: float
    stages: Mapping[str, float] = field(default_factory=dict[str, float])


def measure(
    network: str, device: str, half: bool, seconds: float, contenders: Sequence[str] = ("meta", "eager", "compile")
) -> dict[str, Any]:
    """Milliseconds per step, peak bytes, seconds of the first step and loss of each contender, or its error.

    contenders: of "meta", "eager", "compile" (torch.compile), "through" (torch.compile with meta as its backend) and
        "whole" (the same, with gradients and update in the compiled function)."""
    _configure(device)
    case, results = NETWORKS[network], dict[str, Any]()
    data = case.data()
    makers: dict[str, Callable[[], Contender]] = {
        "meta": lambda: _ours(case, data, device, half),
        **{name: partial(_theirs, case, data, device, half, name) for name in ("eager", "compile", "through", "whole")},
    }
    makers = {name: makers[name] for name in contenders}
    missing = _no_compiler(device)
    if missing and makers.pop("compile", None):
        results["compile"] = {"error": missing}
    ready: list[Contender] = []
    for name, make in makers.items():
        try:
            ready.append(make())
        except Exception as error:  # noqa: BLE001 - a contender that fails must not hide the others
            results[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
    times = interleaved([c.run for c in ready], device, seconds)
    for contender, milliseconds in zip(ready, times, strict=True):
        results[contender.name] = {
            "ms": milliseconds, "first": contender.first, "first_processor": contender.first_processor,
            "peak": contender.peak, "loss": contender.loss, "stages": contender.stages,
        }  # fmt: skip
    return results


def first_step(network: str, device: str, half: bool) -> float:
    """Seconds of only meta's first step, for a process that finds compiled kernels on disk."""
    _configure(device)
    case = NETWORKS[network]
    return _ours(case, case.data(), device, half).first


def allow_fast_kernels() -> None:
    """Let torch choose convolutions by measurement, and multiply float32 as TF32."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True


def _configure(device: str) -> None:
    allow_fast_kernels()
    if device == "cuda":
        torch.zeros(1, device="cuda")  # first steps are timed without the creation of the context
        meta.zeros((1,), device="cuda")


def _no_compiler(device: str) -> str:
    """Why torch.compile cannot run; "" if it can."""
    if device == "cpu" and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        return "inductor needs a C++ compiler on CPUs, and there is none"
    return ""


def interleaved(works: Sequence[Work], device: str, seconds: float) -> list[float]:
    """Median milliseconds per step. The contenders take turns, so that a slow phase of the machine slows all."""
    wait = synchronizer(device)
    counts: list[int] = []
    for work in works:
        for _ in range(WARM_UP):
            work()
        once = _turn(work, 2, wait)
        counts.append(max(1, int(0.02 / once)))
    rounds = 1
    if works:
        turn = sum(_turn(work, count, wait) * count for work, count in zip(works, counts, strict=True))
        rounds = min(60, max(7, int(seconds / turn)))
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, count, sample in zip(works, counts, samples, strict=True):
            sample.append(_turn(work, count, wait))
    return [statistics.median(sample) * 1e3 for sample in samples]


def synchronizer(device: str) -> Work:
    """A function that waits for the device."""
    return torch.cuda.synchronize if device == "cuda" else lambda: None


def _turn(work: Work, count: int, wait: Work) -> float:
    wait()
    start = time.perf_counter()
    for _ in range(count):
        work()
    wait()
    return (time.perf_counter() - start) / count


def _ours(case: Network, data: Data, device: str, half: bool) -> Contender:
    meta.random.seed(0)
    model = case.ours().to(device)
    passes = meta.passes.auto_cast("bfloat16") if half else None
    step = meta.vm.compile(
        with_sgd(RATE, MOMENTUM)(model, loss=meta.cross_entropy), device=device, passes=passes,
        memory_budget=case.budgets.get((device, "bfloat16" if half else "float32")),
    )  # fmt: skip
    x, y = (meta.array(part, device=device) for part in data)
    with timed_stages() as stages:
        loss, first, processor = _first(lambda: step(x, y), lambda: None)
    return Contender("meta", lambda: step(x, y), first, processor, step.memory(x, y).total, loss, stages)


def _first(step: Work, wait: Work) -> tuple[float, float, float]:
    """The loss of a first step, and its seconds: by the clock, and of processors."""
    processor, start = processor_seconds(), time.perf_counter()
    loss = float(step().item())
    wait()
    return loss, time.perf_counter() - start, processor_seconds() - processor


def _theirs(case: Network, data: Data, device: str, half: bool, name: str) -> Contender:
    gc.collect()
    torch.compiler.reset()
    torch.manual_seed(0)
    before = _begin_peak(device)
    model = case.theirs().to(device)
    x, y = (torch.from_numpy(part).to(device) for part in data)
    if case.channels_last and device == "cuda":
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    options = {"fused": True} if device == "cuda" else {}
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, **options)

    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=half):
            scores = model(x)
        return torch.nn.functional.cross_entropy(scores.float(), y)

    function = _compiled(forward, name, device)
    one_graph = _one_graph(forward, model) if name == "whole" else None

    def step() -> torch.Tensor:
        if one_graph is not None:
            return one_graph(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss = function(x, y)
        loss.backward()
        optimizer.step()
        return loss

    wait = synchronizer(device)
    loss, first, processor = _first(step, wait)
    for _ in range(WARM_UP):
        step()
    wait()
    peak = torch.cuda.max_memory_allocated() - before if device == "cuda" else _cpu_peak(step, model, optimizer, x, y)
    return Contender(name, step, first, processor, peak, loss)


def _compiled(function: Callable[..., Any], name: str, device: str) -> Callable[..., Any]:
    """A function as a contender of this name runs it."""
    if name == "through":
        return torch.compile(function, backend=meta.frontend.torch.compile_backend)
    mode = "reduce-overhead" if device == "cuda" else "default"
    return torch.compile(function, mode=mode) if name == "compile" else function


def _one_graph(forward: Callable[..., Any], model: torch.nn.Module) -> Callable[..., Any]:
    """A training step that torch.compile captures as one graph, for meta as its backend."""
    torch._dynamo.config.trace_autograd_ops = True
    velocities = [torch.zeros_like(p) for p in model.parameters()]

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        parameters = list(model.parameters())  # inside: Dynamo would check in each call that an outer list has them
        loss = forward(x, y)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient, velocity in zip(parameters, gradients, velocities, strict=True):
                velocity.mul_(MOMENTUM).add_(gradient)
                parameter.sub_(velocity, alpha=RATE)
        return loss.detach()

    return torch.compile(step, backend=meta.frontend.torch.compile_backend)


def _begin_peak(device: str) -> int:
    """Start a new maximum of torch's allocations; returns the bytes that live now."""
    if device != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _cpu_peak(step: Work, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *inputs: torch.Tensor) -> int:
    """Peak bytes of torch's tensors on the CPU during a step: those that live before it, and the largest sum of the
    allocations and releases that torch's profiler records."""
    state = [v for slots in optimizer.state.values() for v in slots.values() if isinstance(v, torch.Tensor)]
    parameters = list(model.parameters())
    gradients = [p.grad for p in parameters if p.grad is not None]
    living = [*parameters, *gradients, *model.buffers(), *state, *inputs]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]")
    total = largest = 0
    for _, change in changes:
        total += change
        largest = max(largest, total)
    return sum(t.nbytes for t in living) + largest
