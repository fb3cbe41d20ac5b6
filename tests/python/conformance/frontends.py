"""Check the readers of other systems' models: `python -m tests.python.conformance.frontends [judges ...]`.

Bounded, by default: a sample of onnx's node tests, small PyTorch models, and the Relay corpus without the VM.
--whole: the judges in the folder --conformance, on all tests and models; hours on one core.
Every judge runs in a process of its own and prints one line. What cannot be installed is skipped with the reason."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
_MARKED = re.compile(r"(<!-- judges -->\n).*?(<!-- /judges -->)", re.S)
_ORDER = ("passed", "wrong", "failed", "unsupported", "no export", "error", "timeout", "crash")


@dataclass(frozen=True, slots=True)
class Judge:
    """name: of the judge.  subject: what it checks.  module or script: what runs it, with `arguments`.
    packages: that it needs.  goal: of passed, and where that is from."""

    name: str
    subject: str
    goal: str
    packages: tuple[str, ...] = ()


@dataclass(slots=True)
class Result:
    """counts: by verdict.  note: why the judge was skipped, or what it printed."""

    judge: Judge
    counts: dict[str, int] = field(default_factory=dict[str, int])
    note: str = ""
    seconds: float = 0.0
    refused: list[str] = field(default_factory=list[str])

    @property
    def passed(self) -> int:
        return self.counts.get("passed", 0)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def is_wrong(self) -> bool:
        """Whether a result was wrong, or a reader or its judge failed, which is different from a refusal."""
        return any(self.counts.get(v) for v in ("wrong", "failed", "error", "crash"))

    def line(self) -> str:
        if not self.counts:
            return f"{self.judge.name:<16} skipped: {self.note}"
        others = ", ".join(f"{v} {self.counts[v]}" for v in _ORDER[1:] if self.counts.get(v))
        note = f"; {self.note}" if self.note else ""
        return f"{self.judge.name:<16} passed {self.passed}/{self.total}{f', {others}' if others else ''}" \
               f" in {self.seconds:.0f} s{note}"  # fmt: skip


JUDGES = {
    "relay": Judge("relay", "Relay programs with Relay's results", "126 of 126"),
    "onnx": Judge("onnx", "ONNX's backend tests, with the standard's values", "1,750 of 2,033", ("onnx", "onnx_ir")),
    "export": Judge("export", "`torch.export` of models, against eager torch", "all that torch exports", ("torch",)),
    "dynamic": Judge("dynamic", "the same with a symbolic batch, two sizes", "all that torch exports", ("torch",)),
    "compile": Judge("compile", "`torch.compile`: forward and a training step", "all", ("torch",)),
}
_MODELS = ("timm", "transformers", "torchvision")


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for name in options.judges or JUDGES:
        results.append(_judged(JUDGES[name], options))
        print(results[-1].line(), flush=True)
    if options.page:
        write_page(Path(options.page), results, options.whole)
    return 1 if any(result.is_wrong for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("judges", nargs="*", choices=[[], *JUDGES], help="some of the judges (default: all)")
    parser.add_argument("--whole", action="store_true", help="the judges of --conformance, on all tests and models")
    parser.add_argument("--conformance", type=Path, default=Path("../shared/conformance"), help="folder of the judges")
    parser.add_argument("--corpus", type=Path, default=Path("../shared/reference/relay_corpus"), help="Relay programs")
    parser.add_argument("--only", default="", help="with --whole: a regular expression of tests or models")
    parser.add_argument("--every", type=int, default=40, help="of onnx's node tests, each n-th (bounded runs)")
    parser.add_argument("--seconds", type=float, default=7200, help="time limit of a judge")
    parser.add_argument("--out", type=Path, default=Path("build/frontends"), help="where judges write their results")
    parser.add_argument("--page", default="", help="write the table into this page")
    return parser


def _judged(judge: Judge, options: argparse.Namespace) -> Result:
    """The result of one judge."""
    result = Result(judge)
    result.note = _obstacle(judge, options)
    if result.note:
        return result
    out = options.out / f"{judge.name}.json"
    out.unlink(missing_ok=True)
    start = time.perf_counter()
    try:
        done = subprocess.run(
            _command(judge.name, options, out), capture_output=True, text=True, timeout=options.seconds, check=False
        )
    except subprocess.TimeoutExpired:
        result.note = f"more than {options.seconds:.0f} s"
        return result
    result.seconds = time.perf_counter() - start
    if judge.name == "relay":
        _read_relay(result, done.stdout)
    elif out.exists():
        _read(result, json.loads(out.read_text()))
    if not result.counts:
        lines = (done.stderr or done.stdout).strip().splitlines()
        result.note = lines[-1][:200] if lines else f"the judge ended with code {done.returncode}"
        result.counts = {"error": 1}
    return result


def _obstacle(judge: Judge, options: argparse.Namespace) -> str:
    """Why a judge cannot run here; "" if it can."""
    needed = (*judge.packages, *(_MODELS if options.whole and judge.name in ("export", "dynamic", "compile") else ()))
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} cannot be imported"
    if judge.name == "relay":
        return "" if options.corpus.is_dir() else f"there is no folder {options.corpus} (RELAY_CORPUS)"
    if judge.name == "dynamic" and not options.whole:
        return "part of export in bounded runs"
    script = _script(judge.name, options)
    return "" if not options.whole or script.exists() else f"there is no {script} (CONFORMANCE)"


def _script(name: str, options: argparse.Namespace) -> Path:
    """The script of a judge on all models: of the folder of judges, or of this one."""
    if name == "compile":
        return HERE / "compile_judge.py"
    return options.conformance / {"onnx": "onnx_judge.py"}.get(name, "export_judge.py")


def _command(name: str, options: argparse.Namespace, out: Path) -> list[str]:
    if name == "relay":
        vm = [] if options.whole else ["--no-vm"]
        return [sys.executable, "-m", "scripts.relay_corpus", str(options.corpus), *vm]
    if not options.whole:
        sample = ["onnx_sample", "--every", str(options.every)] if name == "onnx" else ["torch_sample", name]
        return [sys.executable, "-m", f"tests.python.conformance.{sample[0]}", *sample[1:], "--out", str(out)]
    only = ["--only", options.only] if options.only else []
    script = [sys.executable, str(_script(name, options))]
    if name == "compile":
        return [*script, "--models", str(options.conformance), "--out", str(out), *only]
    adapter = HERE / ("onnx_adapter.py" if name == "onnx" else "export_adapter.py")
    dynamic = ["--dynamic"] if name == "dynamic" else []
    return [*script, str(adapter), "--out", str(out), *dynamic, *only]


# --- results ---------------------------------------------------------------------------------------------------------


def _read_relay(result: Result, printed: str) -> None:
    """Of the stages, the counts of the one that fewest programs pass."""
    shares = re.findall(r"(text|json|run|vm) (\d+)/(\d+)", printed)
    if shares:
        _, passed, total = min(shares, key=lambda share: int(share[1]) - int(share[2]))
        result.counts = {"passed": int(passed), "wrong": int(total) - int(passed)}
        result.note = " ".join(f"{stage} {p}/{t}" for stage, p, t in shares)


def _read(result: Result, data: Mapping[str, Any]) -> None:
    totals: Mapping[str, int] = data["totals"]["ALL"] if "ALL" in data["totals"] else data["totals"]
    for verdict, count in totals.items():
        kind = next(v for v in _ORDER if verdict.startswith(v))  # "error import": the stage of an error
        result.counts[kind] = result.counts.get(kind, 0) + count
    result.refused = sorted(_reasons(data))


def _reasons(data: Mapping[str, Any]) -> Iterator[str]:
    for verdict, tests in data.get("not_passed", {}).items():
        yield from (f"{test} ({verdict}): {reason}" for test, reason in tests.items())
    for model, facts in data.get("models", {}).items():
        if facts["verdict"] != "passed":
            yield f"{model} ({facts['verdict']}): {facts['why']}"


def write_page(page: Path, results: Sequence[Result], whole: bool) -> None:
    """Replace the table of judges in a page."""
    text = page.read_text(encoding="utf-8")
    page.write_text(_MARKED.sub(lambda m: f"{m[1]}{table(results, whole)}\n{m[2]}", text), encoding="utf-8")


def table(results: Sequence[Result], whole: bool) -> str:
    """The results as Markdown."""
    how = "`make frontends FRONTENDS_ARGS=--whole`" if whole else "`make frontends` (bounded)"
    lines = [f"Written by {how}.", "", "| judge | what | passed | others | goal |", "| --- | --- | --- | --- | --- |"]
    for result in results:
        others = ", ".join(f"{v} {result.counts[v]}" for v in _ORDER[1:] if result.counts.get(v))
        passed = f"{result.passed} of {result.total}" if result.counts else f"skipped: {result.note}"
        lines.append(f"| {result.judge.name} | {result.judge.subject} | {passed} | {others} | {result.judge.goal} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
