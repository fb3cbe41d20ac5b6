"""Train the demo's network in one configuration and measure it."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import meta
from meta.backend.cudnn import settings
from meta.cli.digits import Digits, DigitsNet, accuracy
from meta.errors import MetaError
from meta.ir.expr import CallInfo
from meta.modes import modes, scoped
from meta.op.dispatch import Candidate, candidates
from meta.optim.sgd import with_sgd


@dataclass(slots=True)
class Result:
    """Measurements of one training run.

    losses: one per step.  seconds: wall-clock time of each step.  first_call: seconds of the first step, with
    compilation.
    peak_bytes: growth of the process's resident memory while training, compilation included; on a GPU, the memory that
    meta reserved there.
    planned_bytes: memory that the VM plans for a step: parameters, inputs, results and intermediate values.
    dialects: (operator, dialect) -> number of calls in one step.  reasons: (operator, dialect) -> why it was chosen.
    """

    name: str
    losses: list[float] = field(default_factory=list[float])
    seconds: list[float] = field(default_factory=list[float])
    accuracy: float = 0.0
    predicted: Any = None
    peak_bytes: int = 0
    planned_bytes: int | None = None
    dialects: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    reasons: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    @property
    def first_call(self) -> float:
        return self.seconds[0]

    @property
    def step_seconds(self) -> float:
        """The median over all steps but the first ten."""
        ordered = sorted(self.seconds[10:] or self.seconds)
        return ordered[len(ordered) // 2]


def train(
    name: str,
    data: Digits,
    *,
    epochs: int,
    batch: int,
    seed: int,
    vm: bool,
    autocast: str | None,
    device: str,
    progress: Callable[[str, float], None],
) -> Result:
    """Train a new network initialised from `seed`; calls `progress(name, loss)` after every step."""
    meta.random.seed(seed)
    model = DigitsNet().to(device)
    trainer = with_sgd(learning_rate=0.05, momentum=0.9)(model, loss=meta.cross_entropy)
    result = Result(name)
    step: Any = trainer
    if vm:
        passes = meta.passes.auto_cast(autocast) if autocast else None
        step = meta.vm.compile(trainer, device=device, passes=passes)
    with PeakMemory() as memory:
        for epoch in range(epochs):
            for images, labels in data.batches(epoch, batch, device):
                first = not result.losses
                start = time.perf_counter()
                with _record_dialects(result) if first else nullcontext():
                    loss = step(images, labels)
                value = float(loss.item())
                result.seconds.append(time.perf_counter() - start)
                result.losses.append(value)
                progress(name, value)
    on_cpu = meta.device(device).kind == "cpu"
    result.peak_bytes = memory.growth if on_cpu else meta.device_memory_stats(device).peak_reserved
    if vm:
        result.planned_bytes = step.memory(*data.batches(0, batch, device)[0]).total
    result.accuracy, result.predicted = accuracy(model, data.test_images, data.test_labels)
    return result


@contextmanager
def _record_dialects(result: Result) -> Generator[None, None, None]:
    """Record which dialect runs each operator, and why, while the first step is executed or compiled."""

    def observe(call: CallInfo, candidate: Candidate) -> None:
        result.dialects[call.op.name, candidate.implementation.dialect.name] += 1
        result.reasons[call.op.name, candidate.implementation.dialect.name] = _reason(call)

    with scoped(observers=(*modes.observers, observe)):
        yield


def _reason(call: CallInfo) -> str:
    """The candidates by descending plevel: those that refuse, with reasons, then those that accept."""
    ranked = candidates(call)
    refused = [f"{_label(c)} refused: {c.refusal}" for c in ranked if c.refusal is not None]
    accepting = [_label(c) for c in ranked if c.refusal is None]
    return "; ".join([*refused, " > ".join(accepting)])


def _label(candidate: Candidate) -> str:
    return f"{candidate.implementation.dialect.name} {candidate.implementation.plevel}"


def train_in_process(progress: Callable[[str, float], None], name: str, data: Digits, **options: object) -> Result:
    """`train` in a separate process, so that earlier work does not count in its peak memory."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # the network is too small to profit from more threads
    os.environ.setdefault("META_PROGRESS", "0")  # the bar of the training shows that it compiles
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(target=_run_worker, args=(sender, name, data, options), daemon=True)
    worker.start()
    sender.close()
    try:
        while isinstance(message := receiver.recv(), float):
            progress(name, message)
    except EOFError:
        worker.join()
        raise RuntimeError(f"the process that trained '{name}' died with exit status {worker.exitcode}") from None
    worker.join()
    if isinstance(message, Exception):
        raise message
    return message


def _run_worker(pipe: Any, name: str, data: Digits, options: dict[str, Any]) -> None:
    # With TF32, losses of two runs diverge after a few steps, because cuDNN may choose different algorithms.
    settings.allow_tf32(False)
    try:
        pipe.send(train(name, data, progress=lambda _, loss: pipe.send(loss), **options))
    except MetaError as error:
        pipe.send(error)


class PeakMemory:
    """Samples the resident memory of the process in a thread; `growth` is its maximum above the start, in bytes."""

    def __init__(self, interval: float = 0.005) -> None:
        self.interval = interval
        self.growth = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._start = _resident_bytes()
        self._thread.start()
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(self.interval):
            self.growth = max(self.growth, _resident_bytes() - self._start)


def _resident_bytes() -> int:
    """Resident set size; on systems without /proc (macOS), its maximum so far."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        import resource

        return int(statm.read_text().split()[1]) * resource.getpagesize()
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
