"""What implements an operator in TVM: a TE compute, or a function that needs no compilation.

A compute takes the operator's arguments in schema order - tensors as te.Tensor, lists as lists of them, everything else
as its value - and returns a te.Tensor or a tuple of them. If it has a parameter named `out` it also gets the types of
the results there (`out[0].shape`), and in one named `kind` that of the device ("cpu", "cuda"), for which it may be
another computation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meta.op.dispatch import CallInfo

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
    source: the file of this package that registers the compute: its contents, with those of the private modules beside
        it, decide what is compiled. "" for other computes, which are identified by what they compute.
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


@cache
def source_key(source: str) -> str:
    """A hash of a file of computes and of the private modules beside it; "" where there is none. The sources of
    lowering are left out: they are part of the identity of a device kind (`target`)."""
    path = Path(source)
    if not path.is_file():
        return ""
    digest = hashlib.sha256()
    for file in (path, *sorted(path.parent.glob("_*.py"))):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
