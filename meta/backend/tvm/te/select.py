"""A selection whose sides may both load from memory.

`tirx.Select` computes both sides, too, but TVM simplifies each side under its condition, which removes the bounds that
keep an index inside memory. This selection is an opaque call until the end of lowering.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.te.intrinsic import dtype_of, operator


def opaque_select(condition: Any, value: Any, otherwise: Any) -> Any:
    """`value` where the condition holds, else `otherwise`. Both are computed, so their indices must be in bounds."""
    return tvm.tirx.call_intrin(dtype_of(value), _operator(), condition, value, otherwise)


def register_operators() -> None:
    """Make the operator of this module known to TVM, for a function that another process wrote."""
    _operator()


@cache
def _operator() -> Any:
    return operator("select", 3, default=lambda call: tvm.tirx.Select(*call.args))
