"""Marks on hand-written loops (`te.extern`): which iterations are independent, which add to what is there.

The CPU ignores them; on a GPU such iterations run in threads (`schedule.gpu.launch`).
"""

from __future__ import annotations

from typing import Any, Final

from meta.backend.tvm import adapter as tvm

INDEPENDENT: Final = "meta.independent"
ACCUMULATE: Final = "meta.accumulate"


def independent(start: Any, stop: Any) -> Any:
    """A serial loop whose iterations may run in any order, for scripts."""
    return tvm.script_tirx.serial(start, stop, annotations={INDEPENDENT: 1})
