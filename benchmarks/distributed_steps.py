"""The processes of `python -m benchmarks.distributed`: training steps of a network, with a batch on each rank."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

import meta
from benchmarks.train import RESULT
from benchmarks.training_steps import (
    MOMENTUM,
    NETWORKS,
    RATE,
    WARM_UP,
    Network,
    Work,
    allow_fast_kernels,
    synchronizer,
)
from meta import distributed
from meta.optim.sgd import with_sgd


def measure(network: str, device: str, contenders: Sequence[str], seconds: float) -> dict[str, Any]:
    """Milliseconds per step of the slowest rank, seconds of the first step, loss, and bytes of state on this rank of
    each contender, or its error. Every rank has a batch of the network's size; with bfloat16 by AMP on CUDA.

    contenders: of "one" (a step that does not communicate, on all ranks at once), "data_parallel", "zero1" to "zero3",
        "ddp" and "fsdp", which are torch's DistributedDataParallel and FSDP2, compiled on CUDA."""
    allow_fast_kernels()
    case, results, ready = NETWORKS[network], dict[str, Any](), dict[str, Work]()
    for name in contenders:
        try:
            run, results[name] = (_theirs if name in ("ddp", "fsdp") else _ours)(name, case, device)
        except Exception as error:  # noqa: BLE001 - a contender that fails must not hide the others
            run, results[name] = None, {"error": f"{type(error).__name__}: {error}"[:500]}
        failed = _slowest(run is None)
        if run is not None and not failed:
            ready[name] = run
        elif run is not None:
            results[name] = {"error": "another rank failed"}
    for name, milliseconds in zip(ready, _times(list(ready.values()), device, seconds), strict=True):
        results[name]["ms"] = milliseconds
    return results


def _slowest(value: float) -> float:
    """The largest of the ranks' numbers."""
    numbers = torch.tensor([float(value)], dtype=torch.float64)
    dist.all_reduce(numbers, dist.ReduceOp.MAX)
    return float(numbers.item())


def _times(works: Sequence[Work], device: str, seconds: float) -> list[float]:
    """Median milliseconds per step. The contenders take turns, and all ranks begin a turn together."""
    wait = synchronizer(device)
    once = [_turn(work, 1, wait) for work in works]
    counts = [max(1, int(0.05 / each)) for each in once]
    turns = sum(each * count for each, count in zip(once, counts, strict=True))
    rounds = min(60, max(3, int(seconds / turns))) if works else 0
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, count, sample in zip(works, counts, samples, strict=True):
            sample.append(_turn(work, count, wait))
    return [statistics.median(sample) * 1e3 for sample in samples]


def _turn(work: Work, count: int, wait: Work) -> float:
    """Seconds of a step on the slowest rank."""
    wait()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(count):
        work()
    wait()
    return _slowest((time.perf_counter() - start) / count)


def _place(device: str) -> str:
    return f"cuda({distributed.local_rank()})" if device == "cuda" else device


def _warmed(step: Callable[[], float], wait: Work) -> tuple[float, float]:
    """Seconds of the first step and its loss; further steps follow."""
    start = time.perf_counter()
    loss = step()
    first = time.perf_counter() - start
    for _ in range(WARM_UP):
        step()
    wait()
    return first, loss


def _ours(name: str, case: Network, device: str) -> tuple[Work, dict[str, Any]]:
    wraps: dict[str, Callable[[Any], Any]] = {
        "one": lambda step: step, "data_parallel": distributed.data_parallel(),
        **{f"zero{stage}": distributed.zero(stage) for stage in (1, 2, 3)},
    }  # fmt: skip
    meta.random.seed(0)
    model = case.ours().to(_place(device))
    step = wraps[name](with_sgd(RATE, MOMENTUM)(model, loss=meta.cross_entropy))
    passes = meta.passes.auto_cast("bfloat16") if device == "cuda" else None
    run = meta.vm.compile(step, device=_place(device), passes=passes)
    x, y = (meta.array(part, device=_place(device)) for part in case.data())
    first, loss = _warmed(lambda: run(x, y).item(), synchronizer(device))
    state = sum(array.nbytes for _, array in step.named_state())
    return lambda: run(x, y), {"first": first, "loss": loss, "state": state}


def _theirs(name: str, case: Network, device: str) -> tuple[Work, dict[str, Any]]:
    place = _place(device).replace("(", ":").removesuffix(")")
    torch.manual_seed(0)
    torch.compiler.reset()
    model = case.theirs().to(place)
    x, y = (torch.from_numpy(part).to(place) for part in case.data())
    if case.channels_last and device == "cuda":
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    # FSDP2 casts parameters before it gathers them. Convolutions need autocast, which keeps batch norm in float32.
    casts = device == "cuda" and not (name == "fsdp" and not case.channels_last)
    module = _replicated(model, device) if name == "ddp" else _sharded(model, device, not casts)
    options = {"fused": True} if device == "cuda" else {}
    optimizer = torch.optim.SGD(module.parameters(), RATE, MOMENTUM, **options)

    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=casts):
            scores = module(x)
        return torch.nn.functional.cross_entropy(scores.float(), y)

    function = torch.compile(forward) if device == "cuda" and name == "ddp" else forward

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = function(x, y)
        loss.backward()
        optimizer.step()
        return loss

    first, loss = _warmed(lambda: step().item(), synchronizer(device))
    state = sum(_local_bytes(p) for p in module.parameters()) + sum(
        _local_bytes(v) for slots in optimizer.state.values() for v in slots.values() if isinstance(v, torch.Tensor)
    )
    return step, {"first": first, "loss": loss, "state": state}


def _local_bytes(tensor: Any) -> int:
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).nbytes


def _replicated(model: torch.nn.Module, device: str) -> torch.nn.Module:
    from torch.nn.parallel import DistributedDataParallel

    ids = [distributed.local_rank()] if device == "cuda" else None
    return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)


def _sharded(model: torch.nn.Module, device: str, half: bool) -> torch.nn.Module:
    """FSDP2 of each layer and of the rest. half: gather parameters in bfloat16 on CUDA."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device, (distributed.world_size(),))
    policy = MixedPrecisionPolicy()
    if half and device == "cuda":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in _layers(model):
        if device == "cuda":
            layer.compile()
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def _layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers of a transformer, or the blocks of a sequence, that have parameters."""
    children = list(getattr(model, "layers", None) or model.children())
    flat = [c for child in children for c in (child.children() if type(child) is torch.nn.Sequential else [child])]
    return [child for child in flat if any(True for _ in child.parameters())]


def main(argv: Sequence[str] | None = None) -> None:
    """Run as one process of several; rank 0 prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", choices=sorted(NETWORKS))
    parser.add_argument("device", choices=["cpu", "cuda"])
    parser.add_argument("contenders", help="their names, with commas")
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args(argv)
    distributed.init(timeout=300)
    results = measure(options.network, options.device, options.contenders.split(","), options.seconds)
    if distributed.rank() == 0:
        print(RESULT + json.dumps(results), flush=True)
    distributed.shutdown()


if __name__ == "__main__":
    main()
