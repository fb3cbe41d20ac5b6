"""NumPy indexing in terms of operators."""

from __future__ import annotations

from typing import Any

Index = Any


def getitem(x: Any, index: Index) -> Any:
    raise NotImplementedError
