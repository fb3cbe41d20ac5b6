"""CUDA schedules: TVM's dlight rules by pattern, then the schedule that fits everything."""

from __future__ import annotations

from typing import Any, Final

from meta.op.dialect.tvm import _adapter as tvm

_RULES: Final[dict[str, tuple[str, ...]]] = {
    "out_ewise_fusable": ("Matmul", "GEMV", "Reduction", "GeneralReduction", "Fallback"),
    "reduce": ("GEMV", "Reduction", "GeneralReduction", "Fallback"),
    "softmax": ("GeneralReduction", "Reduction", "Fallback"),
}
_DEFAULT: Final = ("Transpose", "Fallback")


def schedule_gpu(func: Any, pattern: str, target: Any) -> Any:
    """The function with its loops bound to blocks and threads."""
    rules = [getattr(tvm.dlight.gpu, name)() for name in _RULES.get(pattern, _DEFAULT)]
    module = tvm.IRModule({"main": func})
    with target:
        module = tvm.dlight.ApplyDefaultSchedule(*rules)(module)
        module = tvm.DefaultGPUSchedule()(module)
    return module["main"]
