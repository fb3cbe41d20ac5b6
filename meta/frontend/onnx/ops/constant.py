"""Constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meta.frontend.onnx.ops._row import Node, refuse, row


@row("Constant", raw=True)
def constant(
    node: Node, *, value: Any = None, value_float: float | None = None, value_floats: Sequence[float] | None = None,
    value_int: int | None = None, value_ints: Sequence[int] | None = None, value_string: str | None = None,
    value_strings: Sequence[str] | None = None, sparse_value: Any = None,
) -> Any:  # fmt: skip
    attributes = {
        "value": None if value is None else np.asarray(value),
        "float": _array(value_float if value_floats is None else value_floats, np.float32),
        "int": _array(value_int if value_ints is None else value_ints, np.int64),
        "string": _array(value_string if value_strings is None else value_strings, np.str_),
    }
    values = [v for v in attributes.values() if v is not None]
    if len(values) != 1 or sparse_value is not None:
        refuse(node, f"{len(values)} values are given", "one dense value")
    return values[0]


def _array(value: Any, dtype: Any) -> Any:
    return None if value is None else np.asarray(value, dtype)
