"""Tensors whose values never change, and what kernels derive from them once, such as packed weights.

A program holds its constants for as long as it can be called. Kernels recognise a constant by its address."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from meta.locks import new_lock

T = TypeVar("T")


class _Constant:
    """A held tensor, whose memory cannot be reused meanwhile. holders: how many owners hold it."""

    __slots__ = ("derived", "holders", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.holders = 0
        self.derived: dict[Hashable, Any] = {}


_held: dict[int, _Constant] = {}
_lock = new_lock("constants")


def hold(tensors: Sequence[Any], owner: Any) -> None:
    """Treat raw tensors in CPU memory as constants until `owner` is no more."""
    with _lock:
        addresses = [t.data_ptr() for t in tensors]
        for address, tensor in zip(addresses, tensors, strict=True):
            _held.setdefault(address, _Constant(tensor)).holders += 1
    weakref.finalize(owner, _release, addresses).atexit = False


def _release(addresses: Sequence[int]) -> None:
    with _lock:
        for address in addresses:
            constant = _held[address]
            constant.holders -= 1
            if not constant.holders:
                del _held[address]


def is_held(address: int) -> bool:
    """Whether the tensor at an address is a constant."""
    return address in _held


def derive(address: int, key: Hashable, make: Callable[[], T]) -> T | None:
    """The value that `make` returned for the constant at an address and this key when first called; None for a tensor
    that is not held."""
    constant = _held.get(address)
    if constant is None:
        return None
    if key not in constant.derived:
        constant.derived[key] = make()
    return constant.derived[key]
