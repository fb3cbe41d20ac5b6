"""Run a directory of Relay programs with expected outputs: `python -m scripts.relay_corpus DIRECTORY`.

For every NAME.relay in the directory and in its `ops/`: read text and JSON, convert, run on the interpreter and on the
VM, and compare with NAME_expected.npz. The last lines are `RELAY text p/n json p/n run p/n vm p/n` and what is missing.

A result is right when it equals the expected one exactly (integers and booleans), or when every element differs by at
most 1e-5 of the larger of its own magnitude and the root mean square of its tensor (floats): an element that is nearly
zero where terms of the usual size cancel cannot be exact to more. JSON and text of one program must give the same
module, up to the digits of float constants that text leaves out. Networks without expected outputs are run with
parameters drawn by the recipe in the directory's README, and the VM is compared with the interpreter. Where they
differ, the VM's results are right if the program in float64 shows that the interpreter's are further off.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import meta
from meta.errors import MetaError
from meta.frontend.reader import ConvertedProgram
from meta.frontend.relay.api import imported
from meta.interpreter.run import run as interpret
from meta.ir.printer import to_text
from meta.tree import leaves_of

TOLERANCE = 1e-5
Outputs = list[np.ndarray[Any, Any]]
STAGES = ("text", "json", "run", "vm")


@dataclass(slots=True)
class Case:
    """One program. failed: reasons by stage."""

    name: str
    path: Path
    facts: dict[str, Any]
    failed: dict[str, str] = field(default_factory=dict[str, str])
    skipped: set[str] = field(default_factory=set[str])
    seconds: dict[str, float] = field(default_factory=dict[str, float])


def cases(directory: Path, only: list[str]) -> Iterator[Case]:
    for path in sorted([*directory.glob("*.relay"), *directory.glob("ops/*.relay")]):
        if only and path.stem not in only:
            continue
        yield Case(path.stem, path, json.loads(path.with_suffix(".meta.json").read_text()))


def parameters(case: Case) -> dict[str, np.ndarray[Any, Any]] | None:
    """The program's parameters: from the file, or drawn."""
    npz = case.path.with_name(f"{case.name}_params.npz")
    if npz.exists():
        with np.load(npz) as archive:
            return dict(archive)
    if case.facts.get("params") != "recipe":
        return None
    shapes = case.facts["param_shapes"]
    rng = np.random.RandomState(case.facts["seed"])
    return {name: _drawn(rng, name, *shapes[name]) for name in sorted(shapes)}


def _drawn(rng: np.random.RandomState, name: str, shape: list[int], dtype: str) -> np.ndarray[Any, Any]:
    x: Any = rng.randn(*shape)
    if name.endswith("var"):
        x = np.abs(x) * 0.05 + 1
    elif name.endswith("gamma"):
        x = x * 0.05 + 1
    elif len(shape) >= 2:
        x = x * 1.2 / np.sqrt(np.prod(shape[1:]))
    else:
        x = x * 0.05
    return np.asarray(x, dtype)


def expectations(case: Case) -> tuple[dict[str, np.ndarray[Any, Any]], list[np.ndarray[Any, Any]] | None]:
    """Inputs by name, and outputs, None without them."""
    path = case.path.with_name(f"{case.name}_expected.npz")
    if not path.exists():
        rng = np.random.RandomState(case.facts["seed"] + 1)
        return {n: np.asarray(rng.randn(*s), d) for n, (s, d) in case.facts["inputs"].items()}, None
    with np.load(path) as archive:
        inputs = {name.removeprefix("in_"): archive[name] for name in archive.files if name.startswith("in_")}
        outputs = [name for name in archive.files if name.startswith("out_O")]
        level = min((name.split("_")[1] for name in outputs), default="O0")
        count = sum(name.startswith(f"out_{level}_") for name in outputs)
        return inputs, [archive[f"out_{level}_{i}"] for i in range(count)]


def flat(value: Any) -> list[np.ndarray[Any, Any]]:
    return [leaf.numpy() for leaf in leaves_of(value)]


def difference(actual: list[np.ndarray[Any, Any]], expected: list[np.ndarray[Any, Any]]) -> str:
    """How outputs differ from the expected ones; "" if they do not."""
    if len(actual) != len(expected):
        return f"{len(actual)} outputs, {len(expected)} expected"
    for i, (x, y) in enumerate(zip(actual, expected, strict=True)):
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"output {i} is {x.dtype}{x.shape}, expected {y.dtype}{y.shape}"
        if not np.issubdtype(y.dtype, np.floating):
            if not np.array_equal(x, y):
                return f"output {i} differs in {int((x != y).sum())} of {x.size} elements"
            continue
        a, b = x.astype("float64"), y.astype("float64")
        usual = float(np.sqrt(np.mean(np.square(b[np.isfinite(b)])))) if np.isfinite(b).any() else 0.0
        limit = TOLERANCE * np.maximum(np.abs(b), usual)
        fine = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= limit)
        if not fine.all():
            worst = float(np.nanmax(np.abs(a - b) / np.maximum(np.maximum(np.abs(b), usual), 1e-30)))
            return f"output {i} differs by {worst:.1e}"
    return ""


def same_program(one: ConvertedProgram, other: ConvertedProgram) -> str:
    """How two conversions of a program differ; "" if they do not."""
    if one.inputs != other.inputs:
        return "text and JSON have other inputs"
    # Names of sizes that depend on values are numbered.
    a, b = (re.sub(r"argwhere\d+", "rows", to_text(m.module, spans=False, data=False)) for m in (one, other))
    for x, y in zip(a.splitlines(), b.splitlines(), strict=False):
        if x != y and not _nearly(x, y):
            return f"text and JSON give other programs: {x.strip()!r} and {y.strip()!r}"
    return "" if len(a.splitlines()) == len(b.splitlines()) else "text and JSON give programs of other lengths"


def _nearly(a: str, b: str) -> bool:
    """Whether two lines are equal up to the last digits of numbers."""
    xs, ys = (line.replace("(", " ").replace(")", " ").replace(",", " ").split() for line in (a, b))
    return len(xs) == len(ys) and all(x == y or _close(x, y) for x, y in zip(xs, ys, strict=True))


def _close(a: str, b: str) -> bool:
    try:
        return abs(float(a) - float(b)) <= 1e-4 * abs(float(b))
    except ValueError:
        return False


def check(case: Case, vm: bool) -> None:
    """Run a program and record its failures."""
    params = parameters(case)
    meta.zeros((1,))  # loads what every import needs, so that the times are those of the program
    try:
        start = time.perf_counter()
        text = imported(case.path, params)
        case.seconds["text"] = time.perf_counter() - start
    except MetaError as error:
        for stage in STAGES:
            case.failed[stage] = _first_line(error)
        return
    _check_json(case, params, text)
    inputs, expected = expectations(case)
    # Text numbers parameters of one name, which are one input.
    values = [inputs[name] if name in inputs else inputs[name.rstrip("0123456789")] for name in text.inputs]
    ran = _attempt(case, "run", lambda: interpret(text.module, *[meta.array(v) for v in values]), expected)
    if not vm:
        return
    executor = meta.vm.compile(text.module)
    results = _attempt(case, "vm", lambda: executor(*[meta.array(v) for v in values]), expected or ran)
    if expected is None and ran and results and "vm" in case.failed and _is_nearer(case, values, results, ran):
        del case.failed["vm"]


def _is_nearer(case: Case, values: list[np.ndarray[Any, Any]], results: Outputs, others: Outputs) -> bool:
    """Whether all `results` of a program differ less than `others` from those of the program in float64."""
    wide = {name: _widened(value) for name, value in (parameters(case) or {}).items()}
    exact = imported(case.path.read_text().replace("float32", "float64"), wide).module
    truth = flat(interpret(exact, *[meta.array(_widened(v)) for v in values]))
    errors = [[np.abs(x - t).max() for x, t in zip(each, truth, strict=True)] for each in (results, others)]
    return all(a < b for a, b in zip(*errors, strict=True))


def _widened(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return value.astype("float64") if value.dtype == np.float32 else value


def _check_json(case: Case, params: Any, text: ConvertedProgram) -> None:
    path = case.path.with_suffix(".json")
    if not path.exists():
        case.skipped.add("json")
        return
    try:
        problem = same_program(text, imported(path, params))
    except MetaError as error:
        problem = _first_line(error)
    if problem:
        case.failed["json"] = problem


def _attempt(case: Case, stage: str, call: Any, expected: Any) -> list[np.ndarray[Any, Any]] | None:
    try:
        start = time.perf_counter()
        results = flat(call())
        case.seconds[stage] = time.perf_counter() - start
    except MetaError as error:
        case.failed[stage] = _first_line(error)
        return None
    problem = difference(results, expected) if expected is not None else ""
    if any(not np.isfinite(x).all() for x in results if expected is None and np.issubdtype(x.dtype, np.floating)):
        problem = "outputs that are not finite"
    if problem:
        case.failed[stage] = problem
    return results


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run a directory of Relay programs with expected outputs.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="names of programs")
    parser.add_argument("--no-vm", action="store_true", help="leave the VM out")
    parser.add_argument("--times", action="store_true", help="print seconds of each stage")
    options = parser.parse_args(argv)
    if not any(options.directory.glob("*.relay")) and not any(options.directory.glob("ops/*.relay")):
        print(f"There are no Relay programs in {options.directory}: give the directory of the corpus", file=sys.stderr)
        return 2
    completed: list[Case] = []
    for case in cases(options.directory, options.only):
        check(case, vm=not options.no_vm)
        completed.append(case)
        if options.times:
            times = "  ".join(f"{stage} {seconds * 1e3:.0f} ms" for stage, seconds in case.seconds.items())
            print(f"{case.name:32} {times}", flush=True)
    stages = STAGES[:3] if options.no_vm else STAGES
    counts: list[str] = []
    for stage in stages:
        able = [c for c in completed if stage not in c.skipped]
        counts.append(f"{stage} {sum(stage not in c.failed for c in able)}/{len(able)}")
    print("RELAY " + " ".join(counts))
    for case in completed:
        for reason in dict.fromkeys(case.failed.values()):
            where = ", ".join(stage for stage in stages if case.failed.get(stage) == reason)
            if where:
                print(f"  {case.name} ({where}): {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
