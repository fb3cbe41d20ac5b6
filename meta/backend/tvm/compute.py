"""Implementations of operators in TVM: a TE compute, or a function that needs no compilation.

A compute takes the operator's arguments in schema order (tensors as te.Tensor, lists of tensors as lists, other
arguments as values) and returns a te.Tensor or a tuple of them. A parameter named `out` receives the types of the
results (`out[0].shape`), and one named `kind` the kind of the device ("cpu", "cuda"), which may select the computation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache
from os import pathsep
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meta.records import record

if TYPE_CHECKING:
    from meta.ir.expr import CallInfo

Compute = Callable[..., Any]


@record
class TEImplementation:
    """A TE compute, and options for the kernels built from it.

    generic: one kernel with symbolic extents may serve every shape, or the shapes of calls for which it returns true.
    pattern: overrides the pattern of the declaration.
    sizes: IntTuple arguments, and with `vectors` ints, that only repeat sizes of the result, which a generic kernel
        leaves symbolic; the compute reads `out[0].shape` instead.
    lift: names of ints that eager kernels take at run time, as they take all floats; and of numbers for which programs
        take a symbolic size.
    vectors: returns, for a call, the values of the tuples of ints that an eager kernel takes at run time: the compute
        receives an int64 vector (a te.Tensor) for each, and () for an empty tuple. All extents of such a kernel are
        independent of each other.
    constants: values of numbers that are compiled in, because the compute treats them apart.
    needed: what kernels that were built have shown: for the name of a number, further values that are compiled in, or
        None if the compute needs every value.
    most_joined: tensors in the list that is the first argument, at most: longer lists are joined in several calls
        (`meta.op.joins`, and the pass `split_joins`). 0: any number.
    source: the files or folders of this package that the compute is in, whose contents the keys of its kernels hash. ""
        for other computes, whose kernels are identified by their unscheduled functions.
    """

    compute: Compute
    generic: bool | Callable[[CallInfo], bool] = True
    pattern: str = ""
    sizes: tuple[str, ...] = ()
    lift: tuple[str, ...] = ()
    vectors: Callable[[CallInfo], Mapping[str, tuple[int, ...]]] | None = None
    constants: tuple[float, ...] = ()
    most_joined: int = 0
    source: str = ""
    needed: dict[str, tuple[float, ...] | None] = field(
        default_factory=dict[str, "tuple[float, ...] | None"], compare=False
    )


def separate_extents(_: CallInfo) -> dict[str, tuple[int, ...]]:
    """No run-time vectors. As `vectors` of an implementation, it separates all extents of operands and results."""
    return {}


@record
class RuntimeFunction:
    """An implementation that needs no compilation: `run(*inputs, *outputs)` on raw tensors."""

    run: Callable[..., None]


@cache
def source_key(source: str) -> str:
    """A hash of files of computes, separated as in PATH, and of their packages' `__init__.py`, which register them; ""
    if a file does not exist. A folder stands for its files.

    It excludes the sources of lowering, which belong to the identity of the device kind (`target.identity`)."""
    given = map(Path, filter(None, source.split(pathsep)))
    paths = [path for each in given for path in (sorted(each.glob("*.py")) if each.is_dir() else (each,))]
    if not paths or not all(path.is_file() for path in paths):
        return ""
    registrars = {path.with_name("__init__.py") for path in paths}
    sources = [path.read_bytes() for path in (*sorted(registrars), *paths) if path.is_file()]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:16]
