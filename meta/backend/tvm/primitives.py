"""TVM's schedules without its checks of the types of Python arguments, which take half of a primitive's time.

TVM itself still checks what the primitives do. This module loads TVM: others name it through the adapter.
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import runtime

_Checked: Any = runtime.import_module("tvm.s_tir").Schedule


class Schedule(_Checked):
    """TVM's `Schedule`. A primitive raises TVM's own error for an argument of a wrong type."""


for _name, _method in tuple(vars(_Checked).items()):
    if hasattr(_method, "__wrapped__"):
        setattr(Schedule, _name, _method.__wrapped__)
