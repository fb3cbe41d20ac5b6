"""Relay's names of dtypes."""

from __future__ import annotations

import functools
import re

NUMPY_DTYPES = {
    "bool": "bool",
    "uint1": "bool",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "bfloat16": "<u2",
    **{f"int{width}": f"<i{width // 8}" for width in (8, 16, 32, 64)},
    **{f"uint{width}": f"<u{width // 8}" for width in (8, 16, 32, 64)},
}
"""NumPy's little-endian types by Relay's names; bfloat16 is kept as 16-bit words."""

_DTYPE = re.compile(
    r"(?:bool|handle|void|(?:int|uint|float|bfloat)\d{1,3}(?:x\d{1,5})?|float8_\w+|custom\[\w+\]\d+(?:x\d+)?)"
)


@functools.lru_cache(maxsize=1024)
def is_dtype(name: str) -> bool:
    """Whether `name` is a dtype of Relay, which includes some that no array here can have."""
    return _DTYPE.fullmatch(name) is not None
