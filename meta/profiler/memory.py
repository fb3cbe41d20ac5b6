"""Bytes of living arrays, and their plot over time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from meta.eager.ndarray import NDArray
from meta.errors import MetaError, install_hint
from meta.profiler.events import Event
from meta.tree import leaves_of


class LivingArrays:
    """The memory of the results of eager operators, counted until nothing else refers to it.

    Tensors of TVM have no weak references, so this holds each one and counts references. A sweep drops those that
    nothing else holds; memory is therefore freed at the next operator at the latest."""

    def __init__(self) -> None:
        self.bytes = 0
        self._held: dict[int, tuple[list[Any], int]] = {}
        """Identity of a tensor -> the tensor with its views, and its bytes."""

    def add(self, result: object, operands: Sequence[NDArray]) -> None:
        """Count the arrays in `result`, computed from `operands`. Views count with what they view; results that an
        operator wrote into an operand are that operand."""
        written = {id(x._data) for x in operands}
        for x in leaves_of(result):
            if not isinstance(x, NDArray) or id(x._data) in written:
                continue
            source = next((id(o._data) for o in operands if o._data.data_ptr() == x._data.data_ptr()), None)
            if source in self._held:
                self._held[source][0].append(x._data)
            elif source is None:
                self._held[id(x._data)] = ([x._data], x.nbytes)
                self.bytes += x.nbytes

    def sweep(self) -> None:
        """Drop the arrays that nothing else refers to."""
        for key, (tensors, size) in list(self._held.items()):
            # References: the list, the loop's variable and the argument of getrefcount.
            if all(sys.getrefcount(tensor) <= 3 for tensor in tensors):
                del self._held[key]
                self.bytes -= size


def plot(events: Sequence[Event]) -> bytes:
    """A PNG of the bytes that live over time, from which compilations are cut out. Raises MetaError without events of
    known bytes, or matplotlib."""
    compiled = [(e.start, e.duration) for e in events if e.kind == "compile"]
    ends = sorted((e.start + e.duration, e.living, e.kind) for e in events if e.living is not None)
    first = min((e.start for e in events if e.kind != "compile"), default=0)

    def elapsed(time: int) -> int:
        """Nanoseconds from the first event to `time`, without compilations in between."""
        return time - first - sum(duration for start, duration in compiled if first <= start < time)

    points = [(elapsed(end), living, kind) for end, living, kind in ends]
    if not points:
        raise MetaError(
            "profiler",
            "no event has a known number of living bytes",
            "an operator, or a program of known sizes, inside of the profile",
            "run the code to look at inside of `with meta.profiler.profile(memory=True)`",
        )
    if find_spec("matplotlib") is None:
        raise MetaError(
            "profiler", "matplotlib is not installed", "matplotlib, which draws the plot", install_hint("demo")
        )
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    times = [time / 1e6 for time, _, _ in points]
    sizes = [size / 2**20 for _, size, _ in points]
    axes.step(times, sizes, where="post", linewidth=1.0, color="tab:gray")
    for kind, label in (("operator", "results of eager operators"), ("kernel", "programs: parameters, state, tensors")):
        inside = [each == kind for _, _, each in points]
        if any(inside):
            axes.fill_between(times, sizes, where=inside, step="post", alpha=0.4, label=label)
    peak = max(range(len(sizes)), key=sizes.__getitem__)
    axes.plot(times[peak], sizes[peak], "o", color="tab:red", label=f"peak {sizes[peak]:.2f} MiB")
    axes.set(xlabel="time in ms", ylabel="living arrays in MiB", ylim=(0, None))
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.12), ncols=3)
    image = BytesIO()
    figure.savefig(image, format="png", dpi=120)
    return image.getvalue()
