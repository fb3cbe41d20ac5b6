"""NumPy arrays as operands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, cast

from meta.eager.ndarray import NDArray, asarray
from meta.modes import modes, scopes
from meta.op.registry import Op
from meta.schema._types import TensorLike
from meta.tree import leaves_of


def has_numpy_arrays(args: Sequence[Any]) -> bool:
    """Whether a NumPy array with dimensions is among `args`, or in a list of them."""
    return "numpy" in sys.modules and any(map(_is_array, leaves_of(tuple(args))))


def _is_array(value: Any) -> bool:
    numpy: Any = sys.modules["numpy"]
    return isinstance(value, numpy.ndarray) and value.ndim > 0


def converted(op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
    """`args` with NumPy arrays in place of tensors as arrays (see `as_arrays`)."""
    positions = op.schema.tensor_positions
    arrays = as_arrays([arg if i in positions else None for i, arg in enumerate(args)])
    return tuple(arrays[i] if i in positions else arg for i, arg in enumerate(args))


def as_arrays(args: Sequence[Any]) -> tuple[Any, ...]:
    """`args` with NumPy arrays as arrays on the device of the first tensor, else on the CPU.

    Their memory is shared if it is compact and writable, and copied if a trace or a gradient keeps it."""
    tensors = [leaf for leaf in leaves_of(tuple(args)) if isinstance(leaf, TensorLike)]
    device: Any = tensors[0].device if tensors else "cpu"  # type: ignore[attr-defined]
    tracing = scopes.active and modes.trace is not None
    needs_copy = tracing or (modes.grad_enabled and any(isinstance(t, NDArray) and t.requires_grad for t in tensors))

    def convert(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            items = cast("Sequence[Any]", value)
            return [convert(item) for item in items] if any(map(_is_array, leaves_of(items))) else items
        return asarray(value, device=device, copy=needs_copy) if _is_array(value) else value  # pyright: ignore[reportUnknownArgumentType]

    return tuple(map(convert, args))
