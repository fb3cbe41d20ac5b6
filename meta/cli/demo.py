"""`python -m meta demo`: train on handwritten digits in three configurations and report."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from meta.cli import digits
from meta.cli.train import Result, train_in_process
from meta.device import device
from meta.errors import ArgumentError

CONFIGURATIONS: tuple[tuple[str, bool, str | None], ...] = (
    ("eager", False, None),
    ("vm", True, None),
    ("vm bfloat16", True, "bfloat16"),
)
"""(name, on the VM, autocast dtype)"""
LOSS_TOLERANCE = 1e-4
"""Largest difference of eager and VM losses."""
COMPARED_STEPS = {"cpu": 50}
"""Number of steps whose losses are compared, by device kind."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    parser.add_argument("--epochs", type=_positive_int, default=12, help="passes over the 1437 images (default: 12)")
    parser.add_argument("--batch", type=_positive_int, default=64, help="images per step, up to 1437 (default: 64)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: 0)")
    parser.add_argument("--device", default="cpu", help='device to train on: "cpu" (default), "cuda", "cuda:1"')
    parser.add_argument("--output", type=_png_path, default=Path("digits.png"), help="figure (default: digits.png)")
    verbose = "print the memory, the program of the training step and the dialects that run it as well"
    parser.add_argument("--verbose", action="store_true", help=verbose)
    parser.add_argument("--quiet", action="store_true", help=argparse.SUPPRESS)  # its former name for the default


def _positive_int(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer; expected 1, 2, ...")
    return int(text)


def _png_path(text: str) -> Path:
    """A writable file name; checked here because the figure is written only after training."""
    path = Path(text)
    if path.suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"{text!r} is not a PNG file name; expected a name that ends in .png")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {text!r}; expected a file in a writable directory")
    return path


def run(options: argparse.Namespace) -> int:
    """Train, print the report and write the figure. Returns 0 if accuracy and agreement are within limits."""
    # For devices whose kernels round in different orders: a change of 1e-6 in a weight moves the losses by 1e-2 within
    # 50 steps, because another element of a pooling window becomes the largest.
    default_compared_steps = 10
    for name in ("sklearn", "matplotlib", "rich"):
        if find_spec(name) is None:  # found here, and not after the training
            raise ModuleNotFoundError(name=name)
    from rich.console import Console

    data = digits.load()
    count = len(data.train_images)
    if options.batch > count:
        raise ArgumentError("demo", f"--batch is {options.batch}", f"at most {count}, the number of images")
    console, kind = Console(), device(options.device).kind
    results = _train_all(console, data, options)
    _print_results(console, results)
    difference = _print_agreement(console, results, COMPARED_STEPS.get(kind, default_compared_steps))
    _write_figure(results, data, options.output)
    console.print(f"loss curves and misclassified digits: {options.output}", soft_wrap=True)
    if options.verbose:
        _print_memory(console, results, options.device)
        _print_program(console, data, options.batch, options.device)
        _print_dialects(console, results)
    passed = difference <= LOSS_TOLERANCE and all(r.accuracy >= 0.96 for r in results)
    return 0 if passed else 1


def _print_program(console: Any, data: digits.Digits, batch: int, device: str) -> None:
    """Print the IR of the training step after the standard passes: forward, backward and update in one function."""
    import meta
    from meta.optim.sgd import with_sgd

    images, labels = data.batches(0, batch, device)[0]
    trainer = with_sgd(learning_rate=0.05, momentum=0.9)(digits.DigitsNet().to(device), loss=meta.cross_entropy)
    program = meta.passes.standard()(trainer.record(images, labels).module)
    console.rule("the training step as a program")
    console.print(str(program), highlight=False, markup=False, soft_wrap=True)


def _train_all(console: Any, data: digits.Digits, options: argparse.Namespace) -> list[Result]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    steps = options.epochs * (len(data.train_images) // options.batch)
    columns = (TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("loss {task.fields[loss]:.4f}"))  # fmt: skip
    results: list[Result] = []
    with Progress(*columns, console=console) as bar:
        for name, vm, autocast in CONFIGURATIONS:
            task = bar.add_task(name, total=steps, loss=float("nan"))

            def advance(_: str, loss: float, task: Any = task) -> None:
                bar.update(task, advance=1, loss=loss)

            results.append(
                train_in_process(advance, name, data, epochs=options.epochs, batch=options.batch, seed=options.seed,
                                 vm=vm, autocast=autocast, device=options.device)
            )  # fmt: skip
    return results


def _print_dialects(console: Any, results: list[Result]) -> None:
    from rich.table import Table

    console.rule("calls of dialects in a training step")
    table = Table(box=None)
    for heading in ("operator", "dialect", *(r.name for r in results), "why: highest plevel"):
        is_count = heading in {r.name for r in results}
        table.add_column(heading, justify="right" if is_count else "left", no_wrap=heading == "operator")
    for op, dialect in sorted({pair for r in results for pair in r.dialects}):
        calls = [str(r.dialects[op, dialect] or "") for r in results]
        reason = next(r.reasons[op, dialect] for r in results if (op, dialect) in r.reasons)
        table.add_row(op, dialect, *calls, reason)
    console.print(table)


def _print_results(console: Any, results: list[Result]) -> None:
    rows = [(r.name, f"{r.accuracy:.2%}", f"{r.step_seconds * 1e3:.2f} ms", f"{r.first_call:.2f} s") for r in results]
    _print_table(console, ("configuration", "test accuracy", "time per step", "first step"), rows)


def _print_memory(console: Any, results: list[Result], device: str) -> None:
    console.rule("memory")
    planned = ("" if r.planned_bytes is None else f"{r.planned_bytes / 2**20:.2f} MiB" for r in results)
    rows = [(r.name, f"{r.peak_bytes / 2**20:.0f} MiB", plan) for r, plan in zip(results, planned, strict=True)]
    _print_table(console, ("configuration", "peak", "planned by the VM"), rows)
    measure = "growth of the resident memory" if device == "cpu" else f"memory of {device} that meta reserved"
    console.print(f"peak: {measure} in a separate process, compilation included")


def _print_table(console: Any, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table(box=None)
    for index, heading in enumerate(head):
        table.add_column(heading, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _print_agreement(console: Any, results: list[Result], steps: int) -> float:
    pairs = zip(results[0].losses[:steps], results[1].losses[:steps], strict=True)
    difference = max(abs(a - b) for a, b in pairs)
    verdict = "agree" if difference <= LOSS_TOLERANCE else "DISAGREE"
    console.print(f"eager and VM {verdict}: losses of {steps} steps differ by at most {difference:.1e}")
    return difference


def _write_figure(results: list[Result], data: digits.Digits, path: Path) -> None:
    """Write a PNG with loss curves on the left and the digits that the eager network misclassified on the right."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")

    misses = [i for i in range(len(data.test_labels)) if results[0].predicted[i] != data.test_labels[i]][:20]
    figure = pyplot.figure(figsize=(13, 5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(3, 2))
    axes: Any = left.subplots()
    for r in results:
        axes.plot(r.losses, label=f"{r.name}: {r.accuracy:.1%}", linewidth=1)
    axes.set(xlabel="step", ylabel="training loss", yscale="log", title="one training, three configurations")
    axes.legend()
    right.suptitle(f"{len(misses)} of {len(data.test_labels)} test digits misclassified")
    grid: Any = right.subplots(4, 5, squeeze=False)
    for cell in grid.flat:
        cell.axis("off")
    for cell, i in zip(grid.flat, misses, strict=False):
        cell.imshow(data.test_images[i, 0], cmap="gray_r")
        cell.set_title(f"{data.test_labels[i]} read as {results[0].predicted[i]}", fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
