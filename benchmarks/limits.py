"""`python -m benchmarks.limits [--device cuda] [--only TEXT] [--write]`: measure rows of meta/op/limits.toml again.

Limits of dispatch are measured on both sides; numbers of schedules that have a condition in `benchmarks.schedules`,
with half and twice their value. Numbers that other benchmarks measure are changed by hand.
"""

from __future__ import annotations

import argparse
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from math import exp, inf, isqrt, log, sqrt
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks import schedules
from benchmarks.cuda import gpu_times
from benchmarks.dialects import measure
from benchmarks.problems import Shape, sample
from benchmarks.schedules import Condition
from meta._generated import limits as constants
from meta.backend.memory import allocation
from meta.backend.tvm import cpu as cpus
from meta.op.dispatch import with_dialect
from meta.testing.generic import make_call
from meta.testing.samples import Sample, T
from scripts.src_codegen import limits
from scripts.src_codegen.__main__ import main as src_codegen
from scripts.src_codegen.limits import Row

Problem = Callable[[int], Sample]
STEPS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
"""The measured amounts of work, as multiples of the limit."""


def _square(op: str, *biases: int) -> Problem:
    def problem(work: int) -> Sample:
        n = max(1, round(work ** (1 / 3)))
        return sample(op, T(n, n), T(n, n), *(T(n) for _ in biases))

    return problem


def _attention(work: int) -> Sample:
    x = T(1, 4, max(1, isqrt(work // 256)), 64)
    return sample("attention_with_lse", x, x, x)


def _rows(op: str, columns: int, *rest: Any, operands: int = 1, **options: Any) -> Problem:
    def problem(work: int) -> Sample:
        x = T(max(1, work // columns), columns)
        return sample(op, *[x] * operands, *rest, **options)

    return problem


def _joined(work: int) -> Sample:
    x = T(max(1, work // 128), 64)
    return sample("concatenate", [x, x], axis=1)


_CHANNELS, _BATCH = 16, 8


def _convolution(op: str) -> Problem:
    """A convolution of images of any size by a kernel of 3 x 3."""
    w: Shape = (_CHANNELS, _CHANNELS, 3, 3)

    def problem(work: int) -> Sample:
        side = max(1, isqrt(work // (_BATCH * _CHANNELS * _CHANNELS * 9)))
        x: Shape = (_BATCH, _CHANNELS, side, side)
        operands: dict[str, tuple[Any, ...]] = {
            "conv2d": (T(*x), T(*w)),
            "conv2d_epilogue": (T(*x), T(*w)),
            "conv2d_dx": (T(*w), T(*x), x),
            "conv2d_dw": (T(*x), T(*x), w),
            "conv2d_transpose": (T(*x), T(*w)),
        }
        return sample(op, *operands[op], padding=1)

    return problem


def _deep(op: str) -> Problem:
    """A convolution with channels last of eight images of 4 x 4 pixels, with a kernel of 3 x 3."""

    def problem(work: int) -> Sample:
        channels = max(8, isqrt(work * 128 // 9))
        x, w = (8, 4, 4, channels), (channels, 3, 3, channels)
        operands: dict[str, tuple[Any, ...]] = {
            "conv2d": (T(*x), T(*w)),
            "conv2d_dx": (T(*w), T(*x), x),
        }
        return sample(op, *operands[op], padding=1, channels_last=True)

    return problem


def _pool(work: int) -> Sample:
    return sample("max_pool2d", T(max(1, work // 8192), 32, 16, 16), 2)


def _pooled_rows(work: int) -> Sample:
    return sample("adaptive_avg_pool1d", T(max(1, work // 1024), 4, 256), 8)


def _windows(work: int) -> Sample:
    return sample("adaptive_avg_pool1d", T(64, 64, 8 * work), 8)


def _columns(work: int) -> Sample:
    return sample("softmax", T(max(1, work // 1024), 64, 32, 32), axis=1)


def _in_columns(work: int) -> Sample:
    return sample("softmax", T(64, max(1, work // (1 << 16)), 32, 32), axis=1)


def _per_row(work: int) -> Sample:
    x = T((1 << 24) // work, work)
    return sample("softmax_dx", x, x)


def _row(op: str) -> Problem:
    return lambda work: sample(op, T(1, work))


def _short_rows(op: str) -> Problem:
    return lambda work: sample(op, T(1 << 15, work))


def _batch_norm(work: int) -> Sample:
    c = T(64)
    return sample("batch_norm_infer", T(max(1, work // (1 << 16)), 64, 32, 32), c, T(64, low=0.5, high=1.5), c, c)


def _per_channel(work: int) -> Sample:
    channels = max(1, (1 << 26) // work)
    x, c = T(max(1, work // 1024), channels, 32, 32), T(channels)
    return sample("batch_norm_train_dxwb", x, x, c, c, T(channels, low=0.5, high=1.5))


def _layer_norm_dx(work: int) -> Sample:
    x = T(max(1, work // 1024), 1024)
    return sample("layer_norm_dx", x, T(1024), x)


_FUNCTIONS = ("acos", "asin", "atan", "atanh", "cos", "cosh", "erfc", "erfinv", "exp2", "lgamma", "log10", "log2",
              "sin", "sinh", "tan")  # fmt: skip

PROBLEMS: Mapping[str, tuple[Problem, ...]] = {
    "products": (_square("matmul"), _square("dense", 1)),
    "attention": (_attention,),
    "sorts": (_rows("sort", 64), _rows("argsort", 64)),
    "short rows": (_short_rows("sort"), _short_rows("argsort")),
    "long sorts": (_row("sort"), _row("argsort")),
    "concatenate": (_joined,),
    "functions": tuple(_rows(op, 64) for op in _FUNCTIONS),
    "pairs": tuple(_rows(op, 64, operands=2) for op in ("atan2", "floor_divide", "hypot", "mod", "power", "trunc_mod")),
    "convolutions": (_convolution("conv2d"), _convolution("conv2d_epilogue")),
    "input gradients": (_convolution("conv2d_dx"), _convolution("conv2d_transpose")),
    "kernel gradients": (_convolution("conv2d_dw"),),
    "deep convolutions": (_deep("conv2d"),),
    "deep gradients": (_deep("conv2d_dx"),),
    "pools": (_pool,),
    "pooled rows": (_pooled_rows,),
    "windows": (_windows,),
    "softmax of columns": (_columns,),
    "softmax in columns": (_in_columns,),
    "softmax in rows": (_rows("softmax", 1024),),
    "gradients of long rows": (_per_row,),
    "gradients in rows": (_rows("softmax_dx", 256, operands=2),),
    "layer_norm": (_rows("layer_norm", 1024),),
    "layer_norm_dx": (_layer_norm_dx,),
    "layer_norm_dwb": (_rows("layer_norm_dwb", 1024, operands=2),),
    "batch_norm_infer": (_batch_norm,),
    "batch_norm_train_dxwb": (_per_channel,),
}
"""Rows of this benchmark: functions that return a call of about a given amount of work."""


def advantage(dialect: str, problem: Sample, device: str) -> float | None:
    """The time of the fastest other dialect, divided by that of `dialect`; None without another dialect."""
    others = [name for name in ("cudnn", "torch", "tvm") if name != dialect]
    with with_dialect([dialect, *others]):
        times = {m.implementation.dialect.name: m.microseconds for m in measure(problem, device, largest=False)}
    own_time = times.pop(dialect, None)
    return min(times.values()) / own_time if own_time and times else None


def crossing(measurements: Sequence[tuple[int, float]], faster_above: bool) -> int | None:
    """The amount of work beyond which the advantage stays above 1 (below 1 unless `faster_above`), or None.

    measurements: (work, advantage), by work."""
    wins = [gain >= 1 for _, gain in measurements]
    ordered = wins if faster_above else [not w for w in wins]
    if not ordered or all(ordered) or not ordered[-1]:
        return None
    last = max(i for i, w in enumerate(ordered) if not w)
    return _rounded(sqrt(measurements[last][0] * measurements[last + 1][0]))


def _rounded(work: float) -> int:
    """`work`, rounded to two significant digits."""
    return int(float(f"{work:.1e}"))


def remeasured(row: Row) -> tuple[float, float]:
    """The range of a limit of dispatch by new measurements of all its problems; an end that they do not show stays."""
    ends: list[float] = []
    for old, faster_above in zip(row.value, (True, False), strict=True):
        crossings: list[int] = []
        for problem in PROBLEMS[_name(row)] if 0 < old < inf else ():
            calls = [(work, problem(work)) for work in (round(old * step) for step in STEPS)]
            gains = [(work, advantage(row.dialect, call, row.device)) for work, call in calls]
            measurements = [(work, gain) for work, gain in gains if gain is not None]
            print(f"{row.dialect} {calls[0][1].op}: " + ", ".join(f"{w} {row.unit} {g:.2f}" for w, g in measurements))
            crossings += filter(None, [crossing(measurements, faster_above)])
        ends.append((max if faster_above else min)(crossings, default=old))
    return ends[0], ends[1]


def fastest(row: Row, device: str) -> float:
    """The number of a schedule with which the calls of its condition take least time: the present one, half or twice
    it. The present one stays unless another takes at most 0.95 of its time."""
    name = _name(row)
    condition = next(c for c in _conditions(device) if c.name == name)
    values = {row.value: 1.0, row.value // 2: 0.95, row.value * 2: 0.95}
    seconds = times_with(condition, [{row.key.upper(): value} for value in values], device)
    print(f"{row.key}: " + ", ".join(f"{value} {time:.2f} us" for value, time in zip(values, seconds, strict=True)))
    costs = {value: time / share for (value, share), time in zip(values.items(), seconds, strict=True)}
    return min(costs, key=lambda value: costs[value])


def times_with(condition: Condition, choices: Sequence[Mapping[str, Any]], device: str) -> list[float]:
    """The geometric mean of microseconds of a condition's calls, for each set of values of measured limits."""
    logarithms = [0.0] * len(choices)
    for call in condition.calls:
        works: list[schedules.Work] = []
        for values in choices:
            with patch.multiple(constants, **values):
                function, outs = schedules.scheduled_function(call, device, condition.symbolic)
            inputs = [a._data for a in make_call(call).to_meta(device).arrays()]
            results = [allocation.empty(t.shape, t.dtype, t.device) for t in outs]
            works.append(schedules.compile_call(function, device, [*inputs, *results]))
        times = gpu_times(*works) if device == "cuda" else schedules.cpu_times(*works, seconds=0.5)
        logarithms = [total + log(time) for total, time in zip(logarithms, times, strict=True)]
    return [exp(total / len(condition.calls)) for total in logarithms]


def _conditions(device: str) -> Iterator[Condition]:
    return schedules.cpu_conditions() if device == "cpu" else schedules.gpu_conditions()


def _name(row: Row) -> str:
    return row.benchmark.partition(": ")[2]


def measurable(row: Row, device: str) -> bool:
    """Whether this module measures a row, on this kind of device."""
    if row.dialect:
        return row.device == device and row.benchmark.startswith("limits: ")
    known = {c.name for c in _conditions(device) if c.attribute == row.key.upper()}
    return isinstance(row.value, int) and row.benchmark.startswith("schedules: ") and _name(row) in known


def machine(device: str) -> str:
    """The widest instruction set of the CPU, or the compute capability of the GPU."""
    if device == "cuda":
        major, minor = torch.cuda.get_device_capability()
        return f"sm_{major}{minor}"
    names = {"avx512f": "AVX-512", "avx2": "AVX2", "sve": "SVE", "neon": "NEON"}
    return next(
        (name for feature, name in names.items() if feature in cpus.features_of(cpus.host())), platform.machine()
    )


def rewritten(text: str, row: Row, stamp: str) -> str:
    """The text of limits.toml with the number and the stamp (machine and date) of a row."""
    if row.dialect:
        start = text.index(f"\n{row.device} = [", text.index(f"[dispatch.{row.dialect}]"))
        start = text.index(f'["{row.key}", "{row.unit}", ', start)
        ends = ", ".join("inf" if end == inf else f"{end:_}" for end in row.value)
        pattern, number = rf'\[[\d_]+, (?:[\d_]+|inf)\],\s"[^"]*", {_DATE}', f"[{ends}]"
    else:
        start = re.search(rf"^{row.key} = ", text, re.MULTILINE).start()  # pyright: ignore[reportOptionalMemberAccess]
        pattern, number = rf'[\d_.]+, "[^"]*", "[^"]*", {_DATE}', f'{row.value:_}, "{row.unit}"'
    return text[:start] + re.sub(pattern, f"{number}, {stamp}", text[start:], count=1)


_DATE = r"\d{4}-\d\d-\d\d"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the rows of a device; with --write, put those that changed into limits.toml."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", default="", help="only rows whose names or benchmarks contain this text")
    parser.add_argument("--write", action="store_true", help="rewrite limits.toml and the generated constants")
    options = parser.parse_args(argv)
    stamp = f'"{machine(options.device)}", {date.today().isoformat()}'
    for row in limits.rows():
        if options.only not in f"{row.key} {row.benchmark}" or not measurable(row, options.device):
            continue
        value = list(remeasured(row)) if row.dialect else fastest(row, options.device)
        print(f"{row.key} {row.unit}: {row.value} -> {value}", flush=True)
        if options.write and value != row.value:
            text = limits.PATH.read_text(encoding="utf-8")
            limits.PATH.write_text(rewritten(text, replace(row, value=value), stamp), encoding="utf-8")
    return src_codegen([]) if options.write else 0


def processor_name() -> str:
    """The name of this machine's CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return model or platform.processor() or platform.machine()


if __name__ == "__main__":
    raise SystemExit(main())
