"""`python -m meta demo`: train on real digits three ways and report."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from meta.cli import digits
from meta.cli.train import Result, in_process
from meta.device import device
from meta.errors import ArgumentError

WAYS: tuple[tuple[str, bool, str | None], ...] = (
    ("eager", False, None),
    ("vm", True, None),
    ("vm bfloat16", True, "bfloat16"),
)
"""(name, on the VM, autocast dtype)"""
AGREEMENT = 1e-4
COMPARED = {"cpu": 50}
"""Steps over which the losses are compared, by kind of device."""
COMPARED_ELSEWHERE = 10
"""Where kernels round in different orders. A millionth in a weight moves the losses by 1e-2 within 50 steps: sooner or
later another element of a pooling window is the largest."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Length, seed and where the picture goes."""
    parser.add_argument("--epochs", type=_positive, default=12, help="passes over the 1437 images (default: 12)")
    parser.add_argument("--batch", type=_positive, default=64, help="images a step, up to 1437 (default: 64)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default: 0)")
    parser.add_argument("--device", default="cpu", help='where to train: "cpu" (default), "cuda", "cuda:1"')
    parser.add_argument("--output", type=_picture, default=Path("digits.png"), help="the picture (default: digits.png)")
    parser.add_argument("--quiet", action="store_true", help="do not print the program of the training step")


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number; expected 1 and up")
    return int(text)


def _picture(text: str) -> Path:
    """A file that can be written when the training is done, which is when it would be too late to find out."""
    path = Path(text)
    if path.suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"{text!r} is no picture; expected names that end in .png")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {text!r}; expected a file in a directory that can be written")
    return path


def run(options: argparse.Namespace) -> int:
    """Train, print and draw. The exit status says whether accuracy and agreement are what they should be."""
    data = digits.load()  # first, as it says what to install when the demo's libraries are missing
    from rich.console import Console

    if options.batch > len(data.train_images):
        wrong = f"a batch of {options.batch} from {len(data.train_images)} images"
        raise ArgumentError("demo", wrong, "at most as many as there are")
    console, kind = Console(), device(options.device).kind
    if not options.quiet:
        _print_program(console, data, options.batch, options.device)
    results = _train_all(console, data, options)
    _print_dialects(console, results)
    _print_results(console, results, options.device)
    difference = _print_agreement(console, results, COMPARED.get(kind, COMPARED_ELSEWHERE))
    _draw(results, data, options.output)
    console.print(f"loss curves and misclassified digits: {options.output}")
    good = difference <= AGREEMENT and all(r.accuracy >= 0.96 for r in results)
    return 0 if good else 1


def _print_program(console: Any, data: digits.Digits, batch: int, device: str) -> None:
    """The traced IR of the training step, as compiled: forward, backward and update in one function."""
    import meta
    from meta.optim.sgd import with_sgd

    images, labels = data.batches(0, batch, device)[0]
    trainer = with_sgd(learning_rate=0.05, momentum=0.9)(digits.DigitsNet().to(device), loss=meta.cross_entropy)
    program = meta.passes.standard()(trainer.record(images, labels).module)
    console.rule("the training step as a program")
    console.print(str(program), highlight=False, markup=False, soft_wrap=True)


def _train_all(console: Any, data: digits.Digits, options: argparse.Namespace) -> list[Result]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console.rule("training")
    steps = options.epochs * (len(data.train_images) // options.batch)
    columns = (TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("loss {task.fields[loss]:.4f}"))  # fmt: skip
    results: list[Result] = []
    with Progress(*columns, console=console) as bar:
        for name, vm, autocast in WAYS:
            task = bar.add_task(name, total=steps, loss=float("nan"))

            def advance(_: str, loss: float, task: Any = task) -> None:
                bar.update(task, advance=1, loss=loss)

            results.append(
                in_process(advance, name, data, epochs=options.epochs, batch=options.batch, seed=options.seed, vm=vm,
                           autocast=autocast, device=options.device)
            )  # fmt: skip
    return results


def _print_dialects(console: Any, results: list[Result]) -> None:
    from rich.table import Table

    table = Table(title="who ran what in a training step", title_justify="left")
    for heading in ("operator", "dialect", *(f"{r.name} calls" for r in results), "why: first by plevel that accepts"):
        table.add_column(heading, justify="right" if heading.endswith("calls") else "left")
    for op, dialect in sorted({pair for r in results for pair in r.dialects}):
        calls = [str(r.dialects[op, dialect] or "") for r in results]
        reason = next(r.reasons[op, dialect] for r in results if (op, dialect) in r.reasons)
        table.add_row(op, dialect, *calls, reason)
    console.print(table)


def _print_results(console: Any, results: list[Result], device: str) -> None:
    from rich.table import Table

    table = Table(title="results", title_justify="left")
    for heading in ("way", "test accuracy", "time per step", "first step", "peak memory", "planned by the VM"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for r in results:
        table.add_row(r.name, f"{r.accuracy:.2%}", f"{r.step_seconds * 1e3:.2f} ms", f"{r.first_call:.2f} s",
                      f"{r.peak_bytes / 2**20:.0f} MiB",
                      "" if r.planned_bytes is None else f"{r.planned_bytes / 2**20:.2f} MiB")  # fmt: skip
    console.print(table)
    whose = "growth of the resident memory" if device == "cpu" else f"what was taken of the memory of {device} by meta"
    console.print(f"peak memory: {whose} in a process of its own, compilation included")


def _print_agreement(console: Any, results: list[Result], steps: int) -> float:
    pairs = zip(results[0].losses[:steps], results[1].losses[:steps], strict=True)
    difference = max(abs(a - b) for a, b in pairs)
    verdict = "agree" if difference <= AGREEMENT else "DISAGREE"
    console.print(f"eager and VM {verdict}: losses differ by at most {difference:.1e} over the first "
                  f"{steps} steps (allowed {AGREEMENT:.0e})")  # fmt: skip
    return difference


def _draw(results: list[Result], data: digits.Digits, path: Path) -> None:
    """One PNG: loss curves on the left, the digits that the eager network got wrong on the right."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")

    wrong = [i for i in range(len(data.test_labels)) if results[0].predicted[i] != data.test_labels[i]][:20]
    figure = pyplot.figure(figsize=(13, 5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(3, 2))
    axes: Any = left.subplots()
    for r in results:
        axes.plot(r.losses, label=f"{r.name}: {r.accuracy:.1%}", linewidth=1)
    axes.set(xlabel="step", ylabel="training loss", yscale="log", title="the same training three ways")
    axes.legend()
    right.suptitle(f"{len(wrong)} of {len(data.test_labels)} test digits misclassified")
    grid: Any = right.subplots(4, 5, squeeze=False)
    for cell in grid.flat:
        cell.axis("off")
    for cell, i in zip(grid.flat, wrong, strict=False):
        cell.imshow(data.test_images[i, 0], cmap="gray_r")
        cell.set_title(f"{data.test_labels[i]} read as {results[0].predicted[i]}", fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
