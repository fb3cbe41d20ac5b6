"""The calls of an operator on the elements of a batch, for the rules of `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import meta
from meta.autograd.levels import is_tensor, is_tensor_list
from meta.dim import Dim
from meta.op.registry import Op
from meta.tree import is_tuple, leaves_of


@dataclass(frozen=True, slots=True)
class Batch:
    """The calls of an operator on the elements of a batch.

    values: its arguments, stacked where `batched` says so (lists of tensors have a tuple there).
    types: the arguments of one call, with types in place of tensors.  out: the type of the result of one call.
    """

    size: Dim
    values: tuple[Any, ...]
    batched: tuple[Any, ...]
    types: tuple[Any, ...]
    op: Op
    out: Any

    def __getitem__(self, name: str) -> Any:
        """The argument called `name`."""
        return self.values[self.op.schema.index[name]]

    def kind(self, name: str) -> Any:
        """The type of the argument called `name` in one call."""
        return self.types[self.op.schema.index[name]]

    def is_batched(self, name: str) -> bool:
        """Whether the argument called `name`, a tensor, differs from call to call."""
        return self.batched[self.op.schema.index[name]] is True

    def stacked(self, index: int) -> Any:
        """Argument `index` with the axis in front, repeated if all calls share it; other arguments as they are."""
        value: Any = self.values[index]
        flag: Any = self.batched[index]
        if is_tensor_list(value):
            return tuple(x if f else spread(x, self.size) for x, f in zip(value, flag, strict=True))
        return value if flag is True or not is_tensor(value) else spread(value, self.size)

    def aligned(self, index: int, ndim: int) -> Any:
        """Argument `index` so that it broadcasts with stacked tensors whose elements have `ndim` axes."""
        value = self.values[index]
        if self.batched[index] is not True or self.types[index].ndim == ndim:
            return value
        shape = self.types[index].shape
        return meta.reshape(value, (self.size, *(1,) * (ndim - len(shape)), *shape))

    def with_(self, **changed: Any) -> tuple[Any, ...]:
        """The arguments, every tensor with the axis in front, some replaced."""
        return tuple(
            changed[name] if name in changed else self.stacked(i) for i, name in enumerate(self.op.schema.names)
        )

    def kept(self, **changed: Any) -> tuple[Any, ...]:
        """The arguments as they are, some replaced."""
        return tuple(changed.get(name, value) for name, value in zip(self.op.schema.names, self.values, strict=True))

    def only(self, *names: str) -> bool:
        """Whether no tensors but those called `names` differ from call to call."""
        flags = zip(self.op.schema.names, self.batched, strict=True)
        return not any(True in leaves_of(flag) for name, flag in flags if name not in names)


Rule = Callable[[Batch], Any]


def spread(x: Any, size: Dim) -> Any:
    """x repeated along a new axis 0."""
    return meta.broadcast_to(meta.expand_dims(x, 0), (size, *x.shape))


def behind(axis: Any, ndim: int) -> Any:
    """Axes of a tensor with `ndim` axes, as those behind a further axis in front."""
    if is_tuple(axis):
        return tuple(behind(a, ndim) for a in axis)
    return axis % ndim + 1 if ndim else 1
