"""`python -m benchmarks.distributed [--device cuda] [--processes 2] [--only PART]`: the speed of several processes.

Training steps of data parallelism and ZeRO against the step of one process, with a batch of the same size on each, and
against torch's DistributedDataParallel (compiled on CUDA) and FSDP2; and the planned memory of ZeRO 3. On a GPU, steps
compute in bfloat16 by AMP. `NCCL_NVLS_ENABLE=0` turns NVLink multicast off, where it is not available. On the CPU the
processes share the cores, and small networks show that everything runs; the times mean little."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.train import RESULT, against, brief, machine, print_heading, print_row

STEPS = {
    "cpu": {"mlp": "MLP 64x784-256-256-10", "bert-mini": "BERT-like, 8x64 tokens"},
    "cuda": {"bert-base": "BERT-base, 32x128 tokens", "resnet50": "ResNet-50, 64x3x224x224"},
}
"""Device -> name of a network in benchmarks.training_steps -> its title, with the batch of each process."""
CONTENDERS = {
    "one": "one process", "data_parallel": "data_parallel", "zero1": "zero(1)", "zero2": "zero(2)",
    "zero3": "zero(3)", "ddp": "torch DDP", "fsdp": "torch FSDP2",
}  # fmt: skip
COUNTERPARTS = {"data_parallel": "ddp", "zero3": "fsdp"}
ONE_LIMIT, TORCH_LIMIT, MEMORY_LIMIT = 1.06, 1.0, 0.55
"""Targets of data parallelism: its time over that of one process, and over torch's. That of the memory of parameters,
gradients and state of ZeRO 3 on two ranks over that of one process."""
HEADING = ["training step", "ms", "to one process", "to torch's", "parameters and state, MiB", "first step, s"]
MEMORY_HEADING = ["zero(3), AdamW", "MiB of a rank", "to one process's parameters, gradients and state"]


def processes(
    network: str, device: str, count: int, contenders: Sequence[str], seconds: float, limit: float
) -> dict[str, Any]:
    """The results of `benchmarks.distributed_steps` in several processes, or {"error": ...}.

    limit: seconds after which they are ended."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.distributed_steps", network, device, ",".join(contenders)]
    command += ["--seconds", str(seconds)]
    environment = {"OMP_NUM_THREADS": "1", "META_PROGRESS": "0", **os.environ, "WORLD_SIZE": str(count)}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with tempfile.TemporaryDirectory(prefix="meta-bench-") as folder:
        logs, started = [Path(folder, f"{rank}.txt") for rank in range(count)], list[Any]()
        for rank, log in enumerate(logs):
            own = environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            with log.open("w") as file:
                started.append(subprocess.Popen(command, env=own, stdout=file, stderr=subprocess.STDOUT))
        deadline = time.monotonic() + limit
        try:
            ended = [process.wait(max(deadline - time.monotonic(), 0.1)) for process in started]
        except subprocess.TimeoutExpired:
            ended = [f"no result after {limit:.0f} s"]
        finally:
            for process in started:
                process.kill()
                process.wait()
        text = logs[0].read_text()
    results = [line for line in text.splitlines() if line.startswith(RESULT)]
    if results:
        return json.loads(results[-1].removeprefix(RESULT))
    return {"error": f"the processes ended with {ended}: {text.strip()[-400:]}"}


def step_rows(title: str, results: Mapping[str, Any], count: int, limits: bool) -> Iterator[list[str]]:
    """A row of each contender. limits: whether the ratios have targets, as on GPUs."""
    if "error" in results:
        yield [title, f"failed: {brief(results['error'])}", *[""] * 4]
        return
    for name, result in results.items():
        label = f"{title}: {CONTENDERS[name]}" + (f", {count} processes" if name != "one" else "")
        if "error" in result:
            yield [label, f"failed: {brief(result['error'])}", *[""] * 4]
            continue
        one, rival = (results.get(key, {}).get("ms") for key in ("one", COUNTERPARTS.get(name, "")))
        one_limit = ONE_LIMIT if limits and name == "data_parallel" else None
        to_one = "" if name == "one" else _ratio(result["ms"], one, one_limit)
        to_torch = _ratio(result["ms"], rival, TORCH_LIMIT if limits else None)
        sizes = f"{result['state'] / 2**20:.1f}", f"{result['first']:.1f}"
        yield [label, f"{result['ms']:.2f}", to_one, to_torch, *sizes]


def _ratio(value: float, reference: float | None, limit: float | None) -> str:
    """A ratio, with its target if it has one."""
    if limit is not None:
        return against(value, reference, limit)
    return "" if reference is None else f"{value / reference:.2f}"


def memory_row(network: str, title: str, count: int, limits: bool) -> list[str]:
    """The memory that a rank of ZeRO 3 needs, with all that a step computes on the way for one row of a batch, planned
    for the CPU in float32, against the parameters, gradients and state of one process."""
    import meta
    from benchmarks.training_steps import NETWORKS
    from meta import distributed
    from meta.ir.type import tensor_type

    case = NETWORKS[network]
    model, (x, y) = case.ours(), case.data()
    whole = sum(p.nbytes for p in model.parameters())
    step = meta.optim.TrainStep(model, meta.optim.AdamW(model, 1e-4), loss=meta.cross_entropy)
    group = distributed.Group("dp", count)
    step = distributed.zero(3, group, broadcast=False)(step)
    shapes = (1, *x.shape[1:]), (len(y) // len(x),)
    types = (tensor_type(shape, str(part.dtype)) for shape, part in zip(shapes, (x, y), strict=True))
    plan = distributed.plan(step, *types)
    needed = plan.held + plan.intermediates
    share = _ratio(needed, 4 * whole, MEMORY_LIMIT if limits and count == 2 else None)
    return [f"{title.partition(',')[0]}, {count} ranks", f"{needed / 2**20:.1f}", share]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed", description=__doc__)
    parser.add_argument("--device", choices=sorted(STEPS), default="cpu")
    parser.add_argument("--processes", type=int, default=2, help="one for each GPU (default: 2)")
    parser.add_argument("--only", action="append", metavar="PART",
                        help="run this part; may be repeated: memory; " + "; ".join(
                            f"{device}: {', '.join(names)}" for device, names in STEPS.items()))  # fmt: skip
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="with commas (default: all)")
    parser.add_argument("--seconds", type=float, default=8.0, help="time of the interleaved steps of a network")
    parser.add_argument("--limit", type=float, default=280.0, help="seconds of a network, compilation included")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 0 even if a row misses its target or fails, 2 for an unknown part or contender."""
    options = _parser().parse_args(argv)
    networks, contenders = STEPS[options.device], options.contenders.split(",")
    parts = options.only or [*networks, "memory"]
    for kind, names, expected in (("part", parts, [*networks, "memory"]), ("contender", contenders, list(CONTENDERS))):
        unknown = [name for name in names if name not in expected]
        if unknown:
            print(f"there is no {kind} {', '.join(unknown)} on {options.device}; expected {', '.join(expected)}",
                  file=sys.stderr)  # fmt: skip
            return 2
    limits = options.device == "cuda"
    print(machine(options.device), flush=True)
    if any(part in networks for part in parts):
        print_heading(f"Training steps on {options.processes} processes, medians of the slowest rank", HEADING)
    for name, title in networks.items():
        if name in parts:
            results = processes(name, options.device, options.processes, contenders, options.seconds, options.limit)
            for row in step_rows(title, results, options.processes, limits):
                print_row(row)
    if "memory" in parts:
        print_heading("Planned for the CPU in float32, one row of a batch", MEMORY_HEADING)
        for name, title in networks.items():
            print_row(memory_row(name, title, options.processes, limits))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
