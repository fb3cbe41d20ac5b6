"""In-place writes of a graph as new values, which the other names of the same memory see.

A tensor is a storage and the steps that lead from the storage's whole value to it: `x[:, 0].unsqueeze(1)` has two. A
write to it puts the new value back through the steps, last one first; a read after a write to the same storage by
another name takes the steps again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import meta
from meta.dim import total
from meta.eager.assignment import setitem
from meta.eager.inplace import fitted
from meta.errors import NotSupportedError
from meta.frontend.torch.aten._values import position
from meta.limits import MAX_DIMENSION


@dataclass(slots=True, eq=False)
class Storage:
    """The present value of memory. version: how often it was written.  unsure: whether one of the writes was to a name
    that may be a view of the memory or a copy."""

    value: Any
    version: int = 0
    unsure: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ViewStep:
    """A view of ATen. take: whole -> part.  put: (whole, part) -> whole; None if a write there is not supported.
    copies: whether torch copies in some cases, so that a later write may or may not be seen by both."""

    name: str
    take: Callable[[Any], Any]
    put: Callable[[Any, Any], Any] | None
    copies: bool = False


@dataclass(slots=True, eq=False)
class AliasedTensor:
    """A tensor of a graph that writes. value: at `version` of its storage."""

    storage: Storage
    steps: tuple[ViewStep, ...] = ()
    value: Any = None
    version: int = field(default=0)

    def read(self) -> Any:
        """The present value. Raises NotSupportedError if torch may not have seen a write since."""
        if self.version == self.storage.version:
            return self.value
        if self.storage.unsure or any(step.copies for step in self.steps):
            raise NotSupportedError(
                "torch",
                "a tensor is written in place and read by another name, where one may be a view or a copy of the other",
                "names that surely share their memory, or no write in place",
            )
        self.value = self.storage.value
        for step in self.steps:
            self.value = step.take(self.value)
        self.version = self.storage.version
        return self.value

    def write(self, name: str, value: Any) -> None:
        """Replace the value, in the storage as well. Raises NotSupportedError for a view that cannot be written."""
        value = fitted(name, self.read(), value)
        wholes = [self.storage.value]
        for step in self.steps[:-1]:
            wholes.append(step.take(wholes[-1]))
        part = value
        for step, whole in zip(reversed(self.steps), reversed(wholes[: len(self.steps)]), strict=True):
            if step.put is None:
                raise NotSupportedError("torch", f"a view made by {step.name} is written in place",
                                        "slices, reshapes and transposes")  # fmt: skip
            part = step.put(whole, part)
        self.storage.value = part
        self.storage.version += 1
        self.storage.unsure |= any(step.copies for step in self.steps)
        self.value, self.version = value, self.storage.version


def step_of(
    name: str, function: Callable[..., Any], whole: Any, part: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> ViewStep | None:
    """The view `part` that an operator makes of its first argument `whole`; None if its result is new memory."""
    if _is_new(name, whole, part, args, kwargs):
        return None
    if name in _SAME_ELEMENTS:
        put: Any = _reshaped
    elif name in _PUTS:
        arguments = (*args, *kwargs.values())
        put = lambda whole, part: _PUTS[name](whole, part, *arguments)  # noqa: E731
    elif name in _UNWRITABLE:
        put = None
    else:
        return None
    return ViewStep(name, lambda whole: function(whole, *args, **kwargs), put, name in _COPIES)


def _is_new(name: str, whole: Any, part: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator that sometimes returns its argument has made new memory."""
    if name == "dropout":
        return bool(kwargs.get("train", args[-1] if args else False))
    if name == "to":
        return part.type is not whole.type or kwargs.get("copy", False)
    return name == "type_as" and part.type is not whole.type


def field_step(
    name: str, step: ViewStep, index: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> ViewStep | None:
    """The view that is one of the results of `split` and the like; None if they are new memory."""
    if name not in _PIECES:
        return None
    axis_at = 0 if name.startswith("unbind") else 1
    dim = kwargs.get("dim", args[axis_at] if len(args) > axis_at else 0)
    put = _put_row if name.startswith("unbind") else _put_piece
    return ViewStep(
        name, lambda whole: step.take(whole)[index], lambda whole, part: put(whole, part, step.take(whole), index, dim)
    )


_COPIES = frozenset({"contiguous", "dropout", "flatten", "reshape", "reshape_as", "to", "type_as"})
_SAME_ELEMENTS = frozenset({
    "_reshape_alias", "_unsafe_view", "alias", "contiguous", "detach", "dropout", "flatten", "lift_fresh", "ravel",
    "reshape", "reshape_as", "squeeze", "to", "type_as", "unflatten", "unsqueeze", "view", "view_as",
})  # fmt: skip
_PIECES = frozenset({"chunk", "split", "split_with_sizes", "tensor_split", "unbind"})
_UNWRITABLE = frozenset({
    "as_strided", "diagonal", "expand", "expand_as", "imag", "real", "unfold", "view_as_complex", "view_as_real",
    *_PIECES,
})  # fmt: skip


def _reshaped(whole: Any, part: Any) -> Any:
    return meta.reshape(part, whole.shape)


def _put_slice(whole: Any, part: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    first = None if isinstance(start, int) and start == 0 else start
    last = None if isinstance(end, int) and end >= MAX_DIMENSION else end
    return setitem(whole, (slice(None),) * position(dim, whole.ndim) + (slice(first, last, step),), part)


def _put_narrow(whole: Any, part: Any, dim: int, start: Any, length: Any) -> Any:
    start = start if not isinstance(start, int) or start >= 0 else whole.shape[dim] + start
    return _put_slice(whole, part, dim, start, start + length)


def _put_select(whole: Any, part: Any, dim: int, index: Any) -> Any:
    return setitem(whole, (slice(None),) * position(dim, whole.ndim) + (index,), part)


def _put_piece(whole: Any, part: Any, pieces: Any, index: int, dim: int) -> Any:
    start = total(piece.shape[dim] for piece in pieces[:index])
    return _put_slice(whole, part, dim, start, start + part.shape[dim])


def _put_row(whole: Any, part: Any, pieces: Any, index: int, dim: int) -> Any:
    del pieces
    return _put_select(whole, part, dim, index)


def _put_permuted(whole: Any, part: Any, dims: Any) -> Any:
    order = [position(dim, whole.ndim) for dim in dims]
    return meta.transpose(part, tuple(order.index(axis) for axis in range(len(order))))


def _put_transposed(whole: Any, part: Any, dim0: int = 0, dim1: int = 1) -> Any:
    return meta.swap_axis(part, dim0, dim1) if whole.ndim > 1 else part


_PUTS: Mapping[str, Callable[..., Any]] = {
    "mT": lambda whole, part: _put_transposed(whole, part, -1, -2), "narrow": _put_narrow, "permute": _put_permuted,
    "select": _put_select, "slice": _put_slice, "swapaxes": _put_transposed, "swapdims": _put_transposed,
    "t": _put_transposed, "transpose": _put_transposed,
}  # fmt: skip
"""(whole, part, further arguments of the view) -> the whole with the part."""
