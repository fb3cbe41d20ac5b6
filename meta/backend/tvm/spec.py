"""Specifications of kernels: the compute, the types of its arguments and results, and what it is built for.

Names of symbolic extents tell schedules a lower bound of the size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

from meta.records import record

LEAST_SIZES: Final = {"vast": 1 << 14, "long": 1 << 8}
"""Prefix of a symbolic extent's name -> the lower bound that the prefix promises."""


def size_name(size: int) -> str:
    """The name prefix of the symbolic extent that replaces `size`."""
    return next((prefix for prefix, least in LEAST_SIZES.items() if size >= least), "n")


@record
class TensorSpec:
    """One tensor argument or result of a kernel, compact and row-major.

    A `str` in `shape` names a symbolic extent; equal names are equal extents in all specs of a kernel. Computes get
    specs with TVM's expressions in place of names.
    """

    shape: tuple[Any, ...]
    dtype: str


Outs = tuple[TensorSpec, ...]
"""The parameter `out` of a compute: its results."""


@record
class SizeSpec:
    """A size that a kernel of a program takes as an int64 argument; its compute receives a TVM variable."""


@record
class KernelSpec:
    """The specification of a kernel.

    Attributes:
        name: the operator, for symbols and messages.
        compute: called as `compute(*args)` with a `te.Tensor` for each `TensorSpec`, a list for a tuple of
            `TensorSpec`s, a `Number` for a `NumberSpec`, and other arguments unchanged; returns a `te.Tensor`, a
            sequence of them, or a `PrimFunc` over the inputs and the results. A parameter named `out` receives the
            output specs, with TVM expressions for the extents; one named `kind` receives the kind of the device; one
            named `checked` whether the kernel fails for positions out of range.
        args: the arguments in the order of `compute`'s parameters; attribute values must be hashable.
        outs: the results, in order.
        pattern: "elemwise", "broadcast", "injective", "reduce", "softmax" (row-wise, several passes),
            "out_ewise_fusable" (matmul and convolution) or "opaque".
        target: a device kind, "cpu" or "cuda".
        index: dtype of sizes and indices; "int32" if it can count all elements.
        key: a hash of the compute's source, which with `name` identifies the compute on disk. A spec without a key is
            identified by its unscheduled function, which is built before the disk is searched.
        positions: the rule (see meta.op.positions) of a kernel that fails for positions out of range.
    """

    name: str
    compute: Callable[..., Any] = field(compare=False)
    args: tuple[Any, ...]
    outs: tuple[TensorSpec, ...]
    pattern: str
    target: str = "cpu"
    index: str = "int64"
    key: str = ""
    positions: Callable[..., Any] | None = None
