"""A choice between two values that are both computed.

`tirx.Select` is one, too, but TVM simplifies each side of it as if it were computed only where it is chosen, and so
takes away the bounds that keep an index inside memory. This one is unknown to TVM until the end of lowering.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.te.intrinsic import dtype_of, operator


def select(condition: Any, value: Any, otherwise: Any) -> Any:
    """`value` where the condition holds, else `otherwise`. Both may read memory, at indices that always exist."""
    return tvm.tirx.call_intrin(dtype_of(value), _operator(), condition, value, otherwise)


@cache
def _operator() -> Any:
    return operator("select", 3, default=lambda call: tvm.tirx.Select(*call.args))
