"""Fusion patterns: how the elements of a result depend on the operands' elements."""

from __future__ import annotations

from typing import Literal, get_args

Pattern = Literal["elemwise", "broadcast", "injective", "reduce", "softmax", "out_ewise_fusable", "opaque"]
PATTERNS: tuple[str, ...] = get_args(Pattern)
