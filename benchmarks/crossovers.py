"""Measures both sides of each crossover limit (meta/op/crossover.py) for `benchmarks.dialects --write`."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from math import isqrt, sqrt
from pathlib import Path
from typing import Any

from benchmarks.dialects import measure
from benchmarks.problems import Shape, sample
from meta.op import crossover
from meta.op.crossover import Limit
from meta.op.dispatch import with_dialect
from meta.testing.samples import Sample, T

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
    return sample("scaled_dot_product_attention", x, x, x)


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


_VECTORISED = ("acos", "asin", "atan", "atanh", "cos", "cosh", "erfc", "erfinv", "exp2", "lgamma", "log10", "log2",
               "sin", "sinh", "tan")  # fmt: skip
_VECTORISED_PAIRS = ("atan2", "floor_divide", "hypot", "mod", "power", "trunc_mod")

PROBLEMS: Mapping[tuple[str, str], Problem] = {
    ("matmul", "multiplications"): _square("matmul"),
    ("dense", "multiplications"): _square("dense", 1),
    ("*_attention*", "multiplications"): _attention,
    ("sort", "elements"): _rows("sort", 64),
    ("argsort", "elements"): _rows("argsort", 64),
    ("topk", "elements"): _rows("topk", 64, 4),
    ("sort", "elements along the axis"): _row("sort"),
    ("argsort", "elements along the axis"): _row("argsort"),
    ("concatenate", "joined elements"): _joined,
    **{(op, "real elements"): _rows(op, 64) for op in _VECTORISED},
    **{(op, "real elements"): _rows(op, 64, operands=2) for op in _VECTORISED_PAIRS},
    ("conv?d", "multiplications"): _convolution("conv2d"),
    ("conv2d_epilogue", "multiplications"): _convolution("conv2d_epilogue"),
    ("conv?d_dx", "multiplications"): _convolution("conv2d_dx"),
    ("conv?d_dw", "multiplications"): _convolution("conv2d_dw"),
    ("conv?d_transpose", "multiplications"): _convolution("conv2d_transpose"),
    ("conv2d", "kernel elements per pixel"): _deep("conv2d"),
    ("conv2d_d?", "kernel elements per pixel"): _deep("conv2d_dx"),
    ("*max_pool?d", "elements"): _pool,
    ("adaptive_*_pool1d*", "elements"): _pooled_rows,
    ("adaptive_*_pool1d*", "elements per window"): _windows,
    ("*softmax", "columns"): _columns,
    ("*softmax", "elements in columns"): _in_columns,
    ("*softmax", "elements in rows"): _rows("softmax", 1024),
    ("*softmax_dx", "elements per row"): _per_row,
    ("*softmax_dx", "elements in rows"): _rows("softmax_dx", 256, operands=2),
    ("layer_norm", "elements"): _rows("layer_norm", 1024),
    ("layer_norm_dx", "elements"): _layer_norm_dx,
    ("layer_norm_dwb", "elements"): _rows("layer_norm_dwb", 1024, operands=2),
    ("batch_norm_infer", "elements in columns"): _batch_norm,
    ("batch_norm_train_dxwb", "elements per channel of a large call"): _per_channel,
}
"""(operators, unit) of a limit -> a function that returns a call of about a given work. Limits without one are kept."""


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


def remeasure(device: str, ops: Sequence[str] | None) -> Iterator[tuple[Limit, Limit]]:
    """Each limit of a device before and after."""
    stamp = f"{_architecture(device)}, {date.today().isoformat()}"
    for limit in crossover.LIMITS:
        problem = PROBLEMS.get((limit.operators, limit.unit))
        if limit.device != device or problem is None or (ops and problem(limit.least or 1).op not in ops):
            continue
        fresh = limit
        for end, faster_above in (("least", True), ("most", False)):
            old = getattr(limit, end)
            if not old:
                continue
            works = [round(old * step) for step in STEPS]
            gains = [(work, advantage(limit.dialect, problem(work), device)) for work in works]
            listed = [(work, gain) for work, gain in gains if gain is not None]
            print(f"{limit.dialect} {limit.operators}: " + ", ".join(f"{w} {limit.unit} {g:.2f}" for w, g in listed))
            work = crossing(listed, faster_above)
            if work is not None:
                fresh = replace(fresh, **{end: work}, measured=stamp)
        yield limit, fresh


def _architecture(device: str) -> str:
    """The number of CPU cores, or the architecture of the GPU."""
    if device == "cpu":
        return f"{os.cpu_count()} cores"
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def render(limit: Limit) -> str:
    """The row of a limit in the table."""
    ends = [f"{name}={value:_}" for name, value in (("least", limit.least), ("most", limit.most)) if value is not None]
    ends = [end for end in ends if end != "least=0"]
    names = ", ".join(f'"{name}"' for name in (limit.dialect, limit.operators, limit.device, limit.unit))
    ends += [f'vendor="{limit.vendor}"'] if limit.vendor else []
    ends += ["in_programs=True"] if limit.in_programs else []
    row = f'    Limit({names}, {", ".join(ends)}, measured="{limit.measured}"),\n'
    return row if len(row) <= 121 else row.replace(", measured=", ",\n          measured=")


def write(limits: Sequence[Limit]) -> None:
    """Put `limits` into meta/op/crossover.py."""
    path = Path(str(crossover.__file__))
    head, rest = path.read_text().split("LIMITS: tuple[Limit, ...] = (\n")
    tail = rest.partition(")  # fmt: skip\n")[2]
    path.write_text(f"{head}LIMITS: tuple[Limit, ...] = (\n{''.join(map(render, limits))})  # fmt: skip\n{tail}")


def processor_name() -> str:
    """The name of this machine's CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return model or platform.processor() or platform.machine()
