"""`python -m benchmarks.train [--device cuda] [--only PART]`: the tables of docs/measurements/training.md.

Training steps on meta's VM against torch eager and torch.compile; on the CPU also inference of networks imported from
Relay, compile times of deeper and deeper programs, and a program of 10,000 operators. Every row runs in a new process
with empty caches of compiled kernels; its contenders take turns in that process. Rows are printed as they come.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

STEPS = {
    "cpu": {"mlp": "MLP 64x784-256-256-10", "resnet18": "ResNet-18, 8x3x32x32", "bert-mini": "BERT-like, 8x64 tokens"},
    "cuda": {"resnet50": "ResNet-50, 64x3x224x224", "bert-base": "BERT-base, 32x128 tokens"},
}
"""Device -> name of a network in benchmarks.training_steps -> its title."""
STEP_LIMIT = {"cpu": 0.9, "cuda": 0.95}
"""Target of meta's time over that of the faster of torch eager and torch.compile."""
COLD_LIMIT, WARM_LIMIT = 15.0, 3.0
"""Targets of the first step, in seconds."""
RELAY = {"resnet8_cifar": 0.69, "resnet50": 0.59, "mobilenet_full": 0.5}
"""Networks of the corpus, and the target of meta's time over torch eager's."""
WITHOUT_TORCH_LIMIT = 1.2
DEPTH_LIMIT, LONG_LIMIT = 2.2, 30.0
"""Targets: seconds of a program over those of one of half its depth; seconds of the program of 10,000 operators."""
CHAIN_LIMIT, JOIN_LIMIT = 5.0, 3.0
"""Targets: seconds of chains of 64 links that use values several times; seconds of joining 500 arrays."""
CACHES = {"META_CACHE_DIR": "meta", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
"""Environment variable that names a directory of compiled kernels -> folder."""
RESULT = "RESULT "
"""Starts the line with a job's result."""


@dataclass(slots=True)
class Run:
    """The options of a run, and its measurements."""

    device: str
    seconds: float
    corpus: Path
    threads: Sequence[int]
    deadline: float
    results: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def job(self, what: str, cache: Path, threads: int | None, **arguments: Any) -> dict[str, Any]:
        """The result of a job in a new process, or {"error": ...}. cache: where it keeps compiled kernels."""
        seconds_left = self.deadline - time.monotonic()
        if seconds_left < 5:
            return {"error": "no time left"}
        environment = {**os.environ, "META_PROGRESS": "0"}
        for variable, folder in CACHES.items():
            environment[variable] = str(cache / folder)
        if threads is not None:
            names = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"
            environment.update(dict.fromkeys(names, str(threads)))
        command = [sys.executable, "-m", "benchmarks.train", "--job", json.dumps({"what": what, **arguments})]
        # Files and not pipes: processes that the job leaves behind would keep those open.
        out, err = cache / "out.txt", cache / "err.txt"
        with out.open("w") as stdout, err.open("w") as stderr:
            try:
                status = subprocess.run(
                    command, env=environment, stdout=stdout, stderr=stderr, timeout=seconds_left
                ).returncode
            except subprocess.TimeoutExpired:
                return {"error": f"no result after {seconds_left:.0f} s"}
        lines = [line for line in out.read_text().splitlines() if line.startswith(RESULT)]
        if not lines:
            return {"error": f"the process ended with {status}: {err.read_text().strip()[-400:]}"}
        result: dict[str, Any] = json.loads(lines[-1].removeprefix(RESULT))
        self.results.append({"what": what, "threads": threads, "device": self.device, **arguments, "result": result})
        return result


def _do_job(job: dict[str, Any]) -> Any:
    """Run one job; called in the new process."""
    what = job.pop("what")
    if what == "relay":
        from benchmarks import relay_networks

        return relay_networks.measure(Path(job.pop("corpus")), **job)
    if what in ("step", "first step"):
        from benchmarks import training_steps

        return training_steps.measure(**job) if what == "step" else {"first": training_steps.first_step(**job)}
    if what == "import":
        from benchmarks import pytorch

        return pytorch.import_exported(**job)
    from benchmarks import compile_times

    if what == "chains":
        return compile_times.chains()
    return compile_times.long_program() if what == "long" else {"seconds": compile_times.training_step(**job)}


def print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def print_heading(title: str, cells: Sequence[str], numbers_from: int = 1) -> None:
    print(f"\n{title}\n")
    print_row(cells)
    print_row(["---" if i < numbers_from else "---:" for i in range(len(cells))])


def _shown(result: Mapping[str, Any], key: str, form: str, scale: float = 1.0) -> str:
    value = result.get(key)
    return "" if value is None else format(value * scale, form)


def against(value: float | None, reference: float | None, limit: float) -> str:
    """A ratio with its target, such as "0.84 (at most 0.9)"."""
    if value is None or reference is None:
        return ""
    return f"{value / reference:.2f} (at most {limit:g})" + ("" if value <= limit * reference else " **missed**")


def training_steps(run: Run, network: str) -> Iterator[list[str]]:
    """Rows of one network: with each number of threads on the CPU, in float32 and in bfloat16 on CUDA."""
    title = STEPS[run.device][network]
    variants = [(f"{title}, {n} thread{'s' * (n > 1)}", False, n) for n in run.threads]
    if run.device == "cuda":
        variants = [(f"{title}, float32", False, None), (f"{title}, bfloat16 by AMP", True, None)]
    for name, half, threads in variants:
        arguments = {"network": network, "device": run.device, "half": half}
        with tempfile.TemporaryDirectory(prefix="meta-bench-") as folder:
            result = run.job("step", Path(folder), threads, **arguments, seconds=run.seconds)
            warm = run.job("first step", Path(folder), threads, **arguments) if "error" not in result else {}
        yield [name, *_step_cells(result, warm, run.device)]


def _step_cells(result: Mapping[str, Any], warm: Mapping[str, Any], device: str) -> list[str]:
    if "error" in result:
        return [f"failed: {brief(result['error'])}", *[""] * 9]
    ours, eager, compiled = (result.get(key, {}) for key in ("meta", "eager", "compile"))
    best = min((r["ms"] for r in (eager, compiled) if "ms" in r), default=None)
    rival, limit = (compiled, 1.0) if device == "cuda" else (eager, 0.85)
    times = [_shown(r, "ms", ".2f") or f"failed: {brief(r.get('error', ''))}" for r in (ours, eager, compiled)]
    memory = [_shown(r, "peak", ".0f", 2**-20) for r in (ours, eager, compiled)]
    first = [_limited(ours.get("first"), COLD_LIMIT), _shown(compiled, "first", ".1f"),
             _limited(warm.get("first"), WARM_LIMIT)]  # fmt: skip
    return [*times, against(ours.get("ms"), best, STEP_LIMIT[device]), " / ".join(memory),
            against(ours.get("peak"), rival.get("peak"), limit), *first]  # fmt: skip


def _limited(value: float | None, limit: float) -> str:
    return "" if value is None else f"{value:.1f}" + ("" if value <= limit else f" (at most {limit:g}) **missed**")


def brief(error: str) -> str:
    """An error in a cell of a table."""
    return " ".join(error.replace("|", "/").split())[-300:]


STEP_HEADING = ["training step", "meta ms", "torch eager", "torch.compile", "meta / best",
                "peak MiB: meta / eager / compile", "meta's peak / torch's", "first step, s: meta", "torch.compile",
                "meta, kernels on disk"]  # fmt: skip
RELAY_HEADING = ["inference", "meta ms", "meta, TVM's kernels only", "torch eager", "torch frozen", "meta / eager",
                 "TVM's kernels / eager"]  # fmt: skip


def relay_inference(run: Run) -> Iterator[list[str]]:
    """Rows of networks imported from Relay, batch 1."""
    if not any(run.corpus.glob("*.relay")):
        yield [f"skipped: there are no Relay programs in {run.corpus}; name them with --corpus", *[""] * 6]
        return
    for network, limit in RELAY.items():
        for threads in run.threads:
            name = f"{network}, {threads} thread{'s' * (threads > 1)}"
            with tempfile.TemporaryDirectory(prefix="meta-bench-") as folder:
                result = run.job("relay", Path(folder), threads, corpus=str(run.corpus.resolve()), name=network,
                                 seconds=run.seconds)  # fmt: skip
            if "error" in result:
                yield [name, f"failed: {brief(result['error'])}", *[""] * 5]
                continue
            ours, tvm, eager, frozen = (result[key]["ms"] for key in ("meta", "tvm", "eager", "frozen"))
            yield [name, *(f"{ms:.2f}" for ms in (ours, tvm, eager, frozen)), against(ours, eager, limit),
                   against(tvm, eager, WITHOUT_TORCH_LIMIT)]  # fmt: skip


def compile_times(run: Run) -> Iterator[list[str]]:
    """Rows of compile times without compiled kernels on disk."""
    before: float | None = None
    for layers in (4, 8, 16):
        with tempfile.TemporaryDirectory(prefix="meta-bench-") as folder:
            result = run.job("depth", Path(folder), run.threads[0], layers=layers)
        seconds = result.get("seconds")
        cell = f"failed: {brief(result['error'])}" if seconds is None else f"{seconds:.1f}"
        yield [f"training step of {layers} transformer layers", cell, against(seconds, before, DEPTH_LIMIT)]
        before = seconds
    with tempfile.TemporaryDirectory(prefix="meta-bench-") as folder:
        result = run.job("long", Path(folder), run.threads[0])
    if "error" in result:
        yield ["a program of 10,000 operators", f"failed: {brief(result['error'])}", ""]
    else:
        yield [f"a program of {result['calls']:,} operators", _limited(result["seconds"], LONG_LIMIT), ""]
    with tempfile.TemporaryDirectory(prefix="meta-bench-") as folder:
        result = run.job("chains", Path(folder), run.threads[0])
    if "error" in result:
        yield ["values used several times", f"failed: {brief(result['error'])}", ""]
        return
    for name, seconds in result.items():
        limit = JOIN_LIMIT if "arrays" in name else CHAIN_LIMIT
        yield [name, _limited(seconds, limit), ""]


@dataclass(frozen=True, slots=True)
class Part:
    """A group of rows. title, heading: of its table, which parts with one title share."""

    title: str
    heading: list[str]
    rows: Callable[[Run], Iterator[list[str]]]


def parts(device: str) -> dict[str, Part]:
    """The parts of a run on a device, by the names that `--only` takes."""
    title = "Training steps (SGD with momentum), medians"
    parts = {name: Part(title, STEP_HEADING, partial(training_steps, network=name)) for name in STEPS[device]}
    if device == "cpu":
        parts["relay"] = Part("Networks imported from Relay, batch 1, medians", RELAY_HEADING, relay_inference)
        parts["compile"] = Part("First calls without kernels on disk", ["program", "s", "to half the depth"],
                                compile_times)  # fmt: skip
    return parts


def machine(device: str) -> str:
    """The processor or GPU, the versions of what runs, and the date."""
    import torch

    names = [p for p in Path("/proc/cpuinfo").read_text().splitlines() if p.startswith("model name")] if (
        Path("/proc/cpuinfo").exists()) else []  # fmt: skip
    name = names[0].split(":")[1].strip() if names else platform.processor() or platform.machine()
    if device == "cuda":
        name = f"{torch.cuda.get_device_name()} ({name})"
    versions = ", ".join(f"{p} {_version(p)}" for p in ("torch", "apache-tvm", "numpy"))
    return f"{date.today()}: {name}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train", description=__doc__)
    parser.add_argument("--device", choices=sorted(STEPS), default="cpu")
    parser.add_argument("--only", action="append", metavar="PART",
                        help="run this part; may be repeated: " + "; ".join(
                            f"{device}: {', '.join(parts(device))}" for device in STEPS))  # fmt: skip
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads of rows on the CPU")
    parser.add_argument("--seconds", type=float, default=8.0, help="time of the interleaved steps of a row")
    parser.add_argument("--minutes", type=float, help="stop after this time (default: 9.7 on CUDA, 120)")
    parser.add_argument("--corpus", type=Path, default=Path(os.environ.get("RELAY_CORPUS", "relay_corpus")),
                        help="directory of Relay programs, see scripts.relay_corpus")  # fmt: skip
    parser.add_argument("--json", type=Path, help="output file")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 0 even if a row misses its target or fails, 2 for an unknown part."""
    options = _parser().parse_args(argv)
    if options.job is not None:
        print(RESULT + json.dumps(_do_job(options.job)), flush=True)
        return 0
    available = parts(options.device)
    unknown = sorted(set(options.only or ()) - set(available))
    if unknown:
        print(f"there is no part {', '.join(unknown)} on {options.device}; expected {', '.join(available)}",
              file=sys.stderr)  # fmt: skip
        return 2
    minutes = options.minutes or (9.7 if options.device == "cuda" else 120.0)
    deadline = time.monotonic() + 60 * minutes
    run = Run(options.device, options.seconds, options.corpus, options.threads, deadline)
    print(machine(options.device), flush=True)
    title = ""
    for name in options.only or available:
        part = available[name]
        if part.title != title:
            print_heading(part.title, part.heading)
            title = part.title
        for row in part.rows(run):
            print_row(row)
        if options.json is not None:
            options.json.write_text(json.dumps(run.results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
