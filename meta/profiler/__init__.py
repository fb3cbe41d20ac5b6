"""Where time and memory go: `with meta.profiler.profile() as p:` around eager calls and compiled programs.

api           the context managers, and the finished profile
recorder      the recorder of the operators, programs and kernels of a thread
instrumented  executors that report every kernel call, with lines and living bytes
events        timed pieces of work, and the trace that Perfetto and Chrome open
summary       times by operator and line
memory        bytes of living arrays, and their plot over time
nvtx          ranges for NVIDIA's tools
anomaly       the first NaN, with its operator and line
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.profiler.api import Profile as Profile
    from meta.profiler.api import annotate as annotate
    from meta.profiler.api import nvtx_ranges as nvtx_ranges
    from meta.profiler.api import profile as profile
    from meta.profiler.events import Event as Event
    from meta.profiler.summary import Row as Row
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.profiler.api": ("Profile", "annotate", "nvtx_ranges", "profile"),
        "meta.profiler.events": ("Event",),
        "meta.profiler.summary": ("Row",),
    })  # fmt: skip
