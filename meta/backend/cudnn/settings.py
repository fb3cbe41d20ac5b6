"""What users may choose about cuDNN.

TF32: on GPUs from Ampere on, float32 convolutions may multiply in TF32 (10 bits of mantissa, sums in float32). As in
torch that is allowed unless switched off: by `allow_tf32(False)`, or by META_CUDNN_TF32=0 in the environment.
"""

from __future__ import annotations

import os

from meta.errors import ArgumentError

_tf32: bool | None = None


def tf32_allowed() -> bool:
    """Whether convolutions of float32 may multiply in TF32. Raises ArgumentError for an unknown META_CUDNN_TF32."""
    return _from_environment() if _tf32 is None else _tf32


def allow_tf32(allowed: bool | None) -> None:
    """Let convolutions of float32 multiply in TF32 or not, in all threads, also in kernels that exist already; None
    goes back to the environment's answer. Programs captured in a CUDA graph stay as they were captured."""
    global _tf32
    _tf32 = allowed


def _from_environment() -> bool:
    given = os.environ.get("META_CUDNN_TF32", "1")
    if given not in ("0", "1"):
        raise ArgumentError("cudnn", f"META_CUDNN_TF32 is {given!r}", "0 or 1")
    return given == "1"
