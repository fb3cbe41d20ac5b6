"""Pictures of a compiled program: its memory over its steps, its kernels, and their times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from meta.eager.ndarray import NDArray
from meta.pictures import COLOURS, Canvas, Picture, areas, bars, bytes_text
from meta.records import record
from meta.vm.located import LocatedPlan
from meta.vm.plan.graph import memory_sizes, spans
from meta.vm.plan.kernels import OWN, PARAMETER, PLANNED, KernelList, Memory, Step, Tensor, Value, leaves
from meta.vm.program import Program

LAYERS: Final = ("parameters", "state", "inputs and constants", "activations", "gradients")
_BACKWARD: Final = re.compile(r"_d(x|w|b|q|k|v|y|x?wb|x\d|scale)(_\w+)?$")
"""The end of the name of an operator that computes gradients."""
_LARGEST: Final = 10
"""Tensors of the list below a picture of memory."""


@record
class Holding:
    """A tensor that lives. layer: one of LAYERS.  what: its name, or the operators that computed it."""

    layer: str
    bytes: int
    what: str
    line: str = ""


@record(eq=False)
class Timeline:
    """What lives during each step of a program, in order."""

    steps: tuple[tuple[Holding, ...], ...]

    @property
    def totals(self) -> list[int]:
        return [sum(each.bytes for each in living) for living in self.steps]

    @property
    def peak(self) -> int:
        """The step during which most bytes live."""
        totals = self.totals
        return totals.index(max(totals)) if totals else 0

    def largest(self) -> list[Holding]:
        """The ten largest tensors at the peak."""
        return sorted(self.steps[self.peak], key=lambda each: -each.bytes)[:_LARGEST] if self.steps else []

    def draw(self, title: str, capacity: int) -> Picture:
        """The layers on top of each other, and the largest tensors at the peak. capacity: the bytes of a call."""
        layers = {name: [_bytes_of(living, name) for living in self.steps] for name in LAYERS}
        shown = {name: row for name, row in layers.items() if any(row)}
        largest = [
            f"{bytes_text(each.bytes):>10}  {each.layer}: {each.what}" + (f"  ({each.line})" if each.line else "")
            for each in self.largest()
        ]
        return areas(title, shown, self.peak, capacity, ["largest tensors at the peak", *largest] if largest else [])


def _bytes_of(living: Sequence[Holding], layer: str) -> int:
    return sum(each.bytes for each in living if each.layer == layer)


def timeline(program: Program, plan: LocatedPlan, inputs: Sequence[NDArray]) -> Timeline:
    """What lives during each step of a program. Tensors of symbolic size are not counted."""
    main = plan.planned.main
    base = [Holding("parameters" if x.requires_grad else "state", x.nbytes, name) for name, x in program.record.state]
    arrays = [*inputs, *program.constants]
    base += [Holding("inputs and constants", x.nbytes, f"{x.dtype} of shape {tuple(x.shape)}") for x in arrays]
    gradients = _gradients(main, plan, {i for i in program.left if i is not None})
    sizes, lives = memory_sizes(main, PLANNED, OWN), spans(main, PLANNED, OWN)
    steps: list[list[Holding]] = [list(base) for _ in main.steps]
    for memory, tenants in _tenants(main).items():
        if memory in lives and sizes[memory]:
            last = min(lives[memory][1], len(steps) - 1)
            ends = [*(made for made, _ in tenants[1:]), last + 1]
            for (made, tensor), end in zip(tenants, ends, strict=True):
                layer = "gradients" if tensor in gradients else "activations"
                info = plan.info(main.steps[made])
                what = f"{tensor.dtype} of shape {tuple(tensor.shape or ())} of {_joined(info.operators)}"
                holding = Holding(layer, sizes[memory], what, _first_line(info.lines))
                for step in steps[made:end]:
                    step.append(holding)
    return Timeline(tuple(map(tuple, steps)))


def _tenants(main: KernelList) -> dict[Memory, list[tuple[int, Tensor]]]:
    """The tensors in each memory, with the steps that make them."""
    tenants: dict[Memory, list[tuple[int, Tensor]]] = {}
    for i, step in enumerate(main.steps):
        for tensor in step.results:
            tenants.setdefault(tensor.memory, []).append((i, tensor))
    return tenants


def _gradients(main: KernelList, plan: LocatedPlan, left: set[int]) -> set[Tensor]:
    """The tensors that a backward operator computes, that depend on one, or that no result but gradients and new
    values of parameters depends on. left: the positions of gradients among the results."""
    found: set[Tensor] = set()
    for step in main.steps:
        is_backward = any(_BACKWARD.search(name) for name in plan.info(step).operators)
        if is_backward or any(o.tensor in found for o in step.reads):
            found.update(step.results)
    needed = {o.tensor for o in leaves(_without(main.result, left)) if o.tensor.memory.kind != PARAMETER}
    for step in reversed(main.steps):
        if any(t in needed for t in step.results):
            needed.update(o.tensor for o in step.reads)
    return found | {t for t in main.tensors() if t not in needed}


def _without(result: Value, positions: set[int]) -> Value:
    """The result of a function without some of its fields."""
    if not isinstance(result, tuple):
        return result
    return tuple([value for i, value in enumerate(cast("tuple[Value, ...]", result)) if i not in positions])


def times_chart(title: str, kernels: Sequence[Any], limit: int = 30) -> Picture:
    """The slowest kernels as bars. kernels: KernelTimes, the slowest first."""
    whole = sum(k.microseconds for k in kernels) or 1.0
    rows = [
        (
            " ".join(filter(None, (_joined(k.ops) or k.name, _first_line(k.lines)))),
            k.microseconds,
            f"{k.microseconds:.1f} us, {k.microseconds / whole:.0%}",
        )
        for k in kernels[:limit]
    ]
    return bars(title, rows, ["\n".join([f"{k.name}: {k.calls} calls", *k.lines]) for k in kernels[:limit]])


# --- kernels as boxes -------------------------------------------------------------------------------------------------

_WIDTH, _GAP, _LINE, _PER_ROW, _MAX_OPERATORS = 220, 24, 15, 5, 8


def draw_kernels(title: str, plan: LocatedPlan, times: Mapping[str, float]) -> Picture:
    """The kernels of a program as boxes, in rows by what they depend on; a bar below has the colour of the dialect.

    times: microseconds of a call by the name of the kernel; none for a drawing without times."""
    canvas, main = Canvas(), plan.planned.main
    makers = {tensor: i for i, step in enumerate(main.steps) for tensor in step.results}
    sources = [
        sorted({makers[o.tensor] for o in step.reads if o.tensor in makers} - {i}) for i, step in enumerate(main.steps)
    ]
    rows: dict[int, list[int]] = {}
    depth: list[int] = []
    for i, before in enumerate(sources):
        depth.append(1 + max((depth[j] for j in before), default=-1))
        rows.setdefault(depth[i], []).append(i)
    boxes: dict[int, tuple[float, float, float]] = {}
    y = 40.0
    lines = [[chunk[i : i + _PER_ROW] for i in range(0, len(chunk), _PER_ROW)] for _, chunk in sorted(rows.items())]
    for row in (part for parts in lines for part in parts):
        height = max(_box_lines(plan, main.steps[i]) for i in row) * _LINE + 12.0
        for column, i in enumerate(row):
            boxes[i] = (12.0 + column * (_WIDTH + _GAP), y, height)
        y += height + 36
    for i, before in enumerate(sources):
        for x, top, height in (boxes[j] for j in before):
            start, across, bend = x + _WIDTH / 2, boxes[i][0] - x, (boxes[i][1] - top - height) / 2
            curve = f"c0 {bend:.5g} {across:.5g} {bend:.5g} {across:.5g} {2 * bend:.5g}"
            canvas.path(f"M{start:.5g} {top + height:.5g}{curve}", "edge")
    dialects: dict[str, str] = {}
    for i, (x, top, height) in boxes.items():
        _draw_box(canvas, plan, main.steps[i], (x, top, height), times, dialects)
    for k, (dialect, colour) in enumerate(dialects.items()):
        canvas.box(12 + 110 * k, y, 10, 10, colour)
        canvas.text(27 + 110 * k, y + 9, dialect, "small")
    columns = max((len(row) for parts in lines for row in parts), default=1)
    return canvas.picture(24 + columns * (_WIDTH + _GAP) - _GAP, y + 24, title)


def _draw_box(
    canvas: Canvas, plan: LocatedPlan, step: Step, place: tuple[float, float, float], times: Mapping[str, float],
    dialects: dict[str, str],
) -> None:  # fmt: skip
    (x, y, height), info = place, plan.info(step)
    name = getattr(step, "function", "") or "control flow"
    dialect = (info.operators[0] if info.operators else "program").partition(".")[0]
    colour = dialects.setdefault(dialect, COLOURS[len(dialects) % len(COLOURS)])
    canvas.box(x, y, _WIDTH, height, "box", "\n".join([name, *info.lines]), radius=4)
    canvas.box(x, y + height - 3, _WIDTH, 3, colour, dialect)
    shown = [each.rpartition(".")[2] for each in info.operators[:_MAX_OPERATORS]] or [name]
    if len(info.operators) > _MAX_OPERATORS:
        shown.append(f"and {len(info.operators) - _MAX_OPERATORS} more")
    for k, text in enumerate(shown):
        canvas.text(x + 8, y + 16 + _LINE * k, text)
    moved = bytes_text(sum(o.bytes for o in step.reads) + sum(t.bytes for t in step.results))
    cost = [f"{times[name]:.1f} us"] if name in times else []
    canvas.text(x + 8, y + height - 9, ", ".join([*cost, moved]), "small")
    canvas.text(x + _WIDTH - 8, y + height - 9, _first_line(info.lines), "small faint", "end")


def _box_lines(plan: LocatedPlan, step: Step) -> int:
    """The lines of text in a box: operators, and the times and bytes below."""
    return 1 + min(max(len(plan.info(step).operators), 1), _MAX_OPERATORS + 1)


def _joined(operators: Sequence[str]) -> str:
    most = 4  # Operators of a kernel in a line of text.
    names = [name.rpartition(".")[2] for name in operators]
    return " + ".join(names[:most]) + (f" + {len(names) - most} more" if len(names) > most else "")


def _first_line(lines: Sequence[str]) -> str:
    """The file, without folders, and line of the first of `lines`, and the number of the others."""
    return Path(lines[0]).name + (f" +{len(lines) - 1}" if len(lines) > 1 else "") if lines else ""
