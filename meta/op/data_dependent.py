"""Sizes that depend on values, computed for eager calls.

Such an operator has an argument for these sizes. Without it the result type has new symbolic sizes; eager calls and the
interpreter's calls use the function here, which returns the arguments with the sizes filled in.
"""

from __future__ import annotations

from typing import Any

import meta
from meta.ir.expr import CallInfo


def argwhere(x: Any, size: None) -> tuple[Any, tuple[int]]:
    """As many rows as there are elements that are not 0."""
    del size
    return x, (int(meta.sum(meta.not_equal(x, 0)).item()),)


def refusal(call: CallInfo) -> str | None:
    """Why a dialect refuses a call: the size of the result is not given."""
    if all(t.is_static or call.args[1] is not None for t in call.outputs()):
        return None
    return "the shape of the result depends on values: kernels need a size"
