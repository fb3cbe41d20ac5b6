"""Results whose shape depends on values: what it is, for eager calls.

Such an operator has an argument for the sizes that values decide. Without it the type of the result has new symbolic
sizes, and eager execution (the interpreter's too) asks the function here for arguments with the sizes filled in.
"""

from __future__ import annotations

from typing import Any

import meta
from meta.op.dispatch import CallInfo


def argwhere(x: Any, size: None) -> tuple[Any, tuple[int]]:
    """As many rows as there are elements that are not 0."""
    del size
    return x, (int(meta.sum(meta.not_equal(x, 0)).item()),)


def refusal(call: CallInfo) -> str | None:
    """Why a kernel is not made of a call: its result would not have the size that was left out."""
    if all(t.is_static or call.args[1] is not None for t in call.outputs()):
        return None
    return "the shape of the result depends on values: kernels need a size"
