"""Settings of cuDNN.

TF32: from compute capability 8.0 on, float32 convolutions may multiply in TF32 (10 bits of mantissa, sums in float32).
It is allowed by default, as in torch; `allow_tf32(False)` or META_CUDNN_TF32=0 in the environment disables it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from meta.errors import ArgumentError

_tf32: bool | None = None


def tf32_allowed() -> bool:
    """Whether float32 convolutions may multiply in TF32. Raises ArgumentError for an unknown META_CUDNN_TF32."""
    return _from_environment() if _tf32 is None else _tf32


def allow_tf32(allowed: bool | None) -> None:
    """Allow float32 convolutions to multiply in TF32, or not, in all threads and in existing kernels too; None restores
    the environment's setting. Programs captured in a CUDA graph keep the setting of the capture."""
    global _tf32
    _tf32 = allowed


@contextmanager
def without_tf32() -> Generator[None, None, None]:
    """Inside the block, float32 convolutions multiply in float32, in all threads."""
    before = _tf32
    allow_tf32(False)
    try:
        yield
    finally:
        allow_tf32(before)


def _from_environment() -> bool:
    value = os.environ.get("META_CUDNN_TF32", "1")
    if value not in ("0", "1"):
        raise ArgumentError("cudnn", f"META_CUDNN_TF32 is {value!r}", "0 or 1")
    return value == "1"
