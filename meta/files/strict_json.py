"""JSON text from files: without repeated keys and without the constants that are not JSON."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """A JSON value. Raises ValueError for other text, however deep it nests."""
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it nests too deep") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        repeated = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise ValueError(f"the key '{repeated:.60}' occurs twice")
    return out


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
