"""Arrays moved in place: the same object, on another device or with another dtype. Arrays of other libraries as
arguments."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from meta.device import Device
from meta.eager.gradient_graph import version_of
from meta.eager.ndarray import NDArray, asarray
from meta.modes import GradMode, suspended
from meta.parts import Writes
from meta.schema._dsl import TensorLike
from meta.tree import flatten


@runtime_checkable
class ArrayLike(Protocol):
    """An array of any library that shares memory: NumPy, PyTorch and others."""

    def __dlpack__(self) -> object: ...


def with_arrays(value: Any, device: Device, converted: list[NDArray] | None = None) -> Any:
    """A nest of arguments with meta arrays on a device in place of NumPy's, torch's and other libraries'. They share
    memory where `meta.asarray` can.

    converted: receives the new arrays."""
    leaves, tree = flatten(value, (TensorLike, ArrayLike))
    if all(isinstance(x, TensorLike) for _, x in leaves):
        return value
    arrays: list[Any] = [x if isinstance(x, TensorLike) else asarray(x, device=device) for _, x in leaves]
    if converted is not None:
        converted += [new for new, (_, x) in zip(arrays, leaves, strict=True) if new is not x]
    return tree.build(iter(arrays))


def move_in_place(x: NDArray, device: Device | str | None = None, dtype: object = None) -> bool:
    """Move an array and its `.grad` to `device` and convert them to `dtype`. Returns whether anything changed.

    The array keeps its identity, so that models, optimizers and graphs that hold it go on with the moved values; one
    that was computed from others becomes a leaf. Other arrays over the old memory keep that memory. A backward pass
    that needs the old values raises GradientError."""
    with suspended(), GradMode(False):
        moved = x.detach().to(device, dtype)
        if moved.type is x.type:
            return False
        version = version_of(x) + 1
        x._data, x._type, x._version = moved._data, moved._type, Writes((version,))
        if not x.is_leaf:
            x._node = None
    if x._grad is not None:
        move_in_place(x._grad, device, dtype)
    return True
