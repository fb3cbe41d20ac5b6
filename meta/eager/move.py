"""Arrays moved in place: the same object, on another device or with another dtype."""

from __future__ import annotations

from meta.device import Device
from meta.eager.gradient_graph import version_of
from meta.eager.ndarray import NDArray
from meta.modes import GradMode, suspended
from meta.parts import Writes


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
