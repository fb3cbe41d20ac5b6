"""Scaled dot-product attention in Triton: float32 by tensor cores, which cuDNN has no kernels for, and halves where
cuDNN is missing."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from meta.backend.functions import Specialised
from meta.ir.expr import CallInfo
from meta.op.dialect.triton import DIALECT

_NAME: Final = "attention_with_lse"
_DTYPES: Final = ("float32", "float16", "bfloat16")
_PLEVEL: Final = 14
"""Below cuDNN, above torch."""


def unsuited(call: CallInfo) -> str | None:
    """Why the kernels do not take the arguments, or None."""
    most_length = 1 << 20  # CUDA counts at most 65,535 blocks in the second axis of a grid.
    most_exact = 64
    most_features = 128
    args = call.bind()
    q, v = args["q"], args["v"]
    if args["bias"] is not None:
        return "a bias"
    if q.dtype not in _DTYPES:
        return f"dtype {q.dtype}, of {', '.join(_DTYPES)}"
    for name, t in (("q", q), ("v", v)):
        if not isinstance(t.shape[-1], int) or not 0 < t.shape[-1] <= most_features:
            return f"{t.shape[-1]} features of {name}, at most {most_features}"
        if isinstance(t.shape[-2], int) and t.shape[-2] > most_length:
            return f"a length of {t.shape[-2]} of {name}, at most {most_length}"
    if q.dtype == "float32" and max(q.shape[-1], v.shape[-1]) > most_exact and not _backend().tf32_allowed():
        return f"more than {most_exact} features of float32 without TF32: ATen's kernels take less time"
    return None


def _backend() -> Any:
    return import_module("meta.backend.triton.attention")


def _from_backend(name: str) -> Specialised:
    def build(call: CallInfo) -> Callable[..., Any]:
        return getattr(_backend(), name)(call)

    return Specialised(build)


DIALECT.implement(_NAME, _from_backend("forward"), plevel=_PLEVEL, accepts=unsuited, slow_start=True)
DIALECT.implement(f"{_NAME}_dx", _from_backend("backward"), plevel=_PLEVEL, accepts=unsuited, slow_start=True)
