"""Annotations of hand-written loops (`te.extern`): iterations that are independent, iterations that accumulate. And
the variables of an iteration.

The CPU ignores the annotations; on a GPU each such iteration runs in a thread (`schedule.gpu.launch`).
"""

from __future__ import annotations

from typing import Any, Final

from meta.backend.tvm import adapter as tvm

INDEPENDENT: Final = "meta.independent"
"""The iterations may run in any order."""
ACCUMULATE: Final = "meta.accumulate"
"""The iterations may run in any order if the one store of the nest, an addition to its target, is atomic."""
LAUNCHES: Final = "meta.launches"
"""Each iteration launches kernels that bind their threads themselves; none need be launched."""


def independent(start: Any, stop: Any) -> Any:
    """A serial loop of TVM's script builder, annotated as INDEPENDENT."""
    return tvm.script_tirx.serial(start, stop, annotations={INDEPENDENT: 1})


def launches(count: Any) -> Any:
    """A serial loop of the host, annotated as LAUNCHES."""
    count = tvm.tirx.const(count, "int64") if isinstance(count, int) else count
    return tvm.script_tirx.serial(0, count, annotations={LAUNCHES: 1})


def registers(size: int, dtype: str) -> Any:
    """`size` variables of an iteration, for TVM's script builder."""
    script = tvm.script_tirx
    return script.buffer_proxy(script.alloc_buffer((size,), dtype, scope="local"))
