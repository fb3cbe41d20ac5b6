"""How the families of this dialect register their TE computes.

    @compute("softmax")
    def softmax(x, axis):
        return topi.nn.softmax(x, axis)

A compute takes the operator's arguments in schema order - tensors as te.Tensor, lists as lists of them, everything else
as its value - and returns a te.Tensor or a tuple of them. If it has a parameter named `out` it also gets the types of
the results there (`out[0].shape`), and in one named `kind` that of the device ("cpu", "cuda"), for which it may be
another computation.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from meta.op.dialect.tvm import DIALECT
from meta.op.dialect.tvm._target import lowering
from meta.op.dispatch import CallInfo, Checker

Compute = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class TEImplementation:
    """A TE compute and how kernels are made of it.

    generic: one kernel with symbolic extents may serve every shape.
    pattern: overrides the declaration's.
    sizes: IntTuple arguments that say no more than the sizes of the result, which a generic kernel leaves open; the
        compute reads `out[0].shape` instead.
    lift: names of numbers that eager kernels take at run time, as 0-d tensors, like those of kind Scalar.
    vectors: for arguments that are tuples of ints, and that an eager kernel takes at run time, the values for a call:
        the compute gets an int64 vector (a te.Tensor) in place of each, () for an empty one. All extents of such a
        kernel are independent of each other.
    constants: numbers that are compiled in all the same where a Scalar has that value.
    source: the file whose contents, with those of the helpers here (`_*.py`), decide what is compiled.
    """

    compute: Compute
    generic: bool = True
    pattern: str = ""
    sizes: tuple[str, ...] = ()
    lift: tuple[str, ...] = ()
    vectors: Callable[[CallInfo], Mapping[str, tuple[int, ...]]] | None = None
    constants: tuple[float, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeFunction:
    """An implementation that needs no compilation: `run(*inputs, *outputs)` on raw tensors."""

    run: Callable[..., None]


def compute(
    op: str, *, plevel: int | None = None, accepts: Checker | None = None, **facts: Any
) -> Callable[[Compute], Compute]:
    """Register the decorated function as the TE compute of `op`; `facts` are fields of TEImplementation."""
    source = _family_file()

    def register(function: Compute) -> Compute:
        DIALECT.implement(op, TEImplementation(function, source=source, **facts), plevel=plevel, accepts=accepts)
        return function

    return register


def _family_file() -> str:
    """The file of the family that is registering: the nearest caller that is not a helper of this folder."""
    frame = sys._getframe(2)
    while Path(frame.f_code.co_filename).name.startswith("_") and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename


@cache
def source_key(source: str) -> str:
    """A hash of a file of computes and of the helpers here, those of lowering left out, which are part of the identity
    of a device kind (`_target`): kernels built from older versions of them are not reused."""
    path = Path(source)
    if not path.is_file():
        return ""
    digest = hashlib.sha256(path.read_bytes())
    for helper in sorted({*Path(__file__).parent.glob("_*.py")} - {*lowering("cuda")}):
        digest.update(helper.read_bytes())
    return digest.hexdigest()[:16]
