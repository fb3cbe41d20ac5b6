"""How the families of this dialect register their TE computes.

    @compute("softmax")
    def softmax(x, axis):
        return topi.nn.softmax(x, axis)

A compute takes the operator's arguments in schema order - tensors as te.Tensor, lists as lists of them, everything else
as its value - and returns a te.Tensor or a tuple of them. If it has a parameter named `out` it also gets the types of
the results there (`out[0].shape`).
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from meta.op.dialect.tvm import DIALECT
from meta.op.dispatch import Checker

Compute = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class TEImplementation:
    """A TE compute; `generic` says whether one kernel with symbolic extents may serve every shape."""

    compute: Compute
    generic: bool = True
    pattern: str = ""


def compute(
    op: str, *, generic: bool = True, pattern: str = "", plevel: int | None = None, accepts: Checker | None = None
) -> Callable[[Compute], Compute]:
    """Register the decorated function as the TE compute of `op`; `pattern` overrides the declaration's."""

    def register(function: Compute) -> Compute:
        DIALECT.implement(op, TEImplementation(function, generic, pattern), plevel=plevel, accepts=accepts)
        return function

    return register


@cache
def source_key(function: Compute) -> str:
    """A hash of the file that defines a compute: kernels built from an older version of it are not reused."""
    file = inspect.getsourcefile(inspect.unwrap(function))
    if file is None:
        return ""
    with open(file, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()[:16]
