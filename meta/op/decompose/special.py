"""Special functions."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta.op.decompose._support import floating
from meta.op.decomposition import decomposition


@decomposition("entr")
def entr(x: Any) -> Any:
    """-x * log(x), 0 at 0, and -inf below."""
    (x,) = floating(x)
    return meta.where(meta.equal(x, 0), 0, meta.where(x < 0, -math.inf, -(x * meta.log(x))))
