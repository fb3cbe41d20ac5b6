"""What functions with writes in place mean, in torch without a write: the model of `scripts.fuzz_writes`.

A tensor is a value of torch with its graph, a cell (the tensors over one memory), and a history (the tensors of the
cell that are differentiable views of each other). A write gives all tensors of the cell new values. The history of the
written tensor gets the gradient of what was written; the others keep the gradient of their old values. Under `no_grad`
all keep it. torch itself does the same, but raises an error for values that a gradient saved before they were
overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

enable_grad: Callable[[], AbstractContextManager[Any]] = torch.enable_grad
no_grad: Callable[[], AbstractContextManager[Any]] = torch.no_grad


class _StraightThrough(torch.autograd.Function):
    """The values of `new` with the gradient of `old`."""

    @staticmethod
    def forward(ctx: Any, new: Any, old: Any) -> Any:
        del ctx, old
        return new.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        del ctx
        return None, grads[0]


class Tensor:
    """A tensor of the model. leaf: the tensor of torch whose gradient `backward` collects, None for other tensors."""

    def __init__(self, value: Any, base: Tensor | None = None, same_history: bool = False, leaf: Any = None) -> None:
        self.value = value
        self.cell: list[Tensor] = [] if base is None else base.cell
        self.history: object = base.history if base is not None and same_history else object()
        self.leaf = leaf
        self.total: Any = None
        self.cell.append(self)

    # --- writes ------------------------------------------------------------------------------------------------------

    def write(self, new: Any) -> None:
        """The tensor becomes `new`."""
        recorded = torch.is_grad_enabled()
        for x in self.cell:
            value: Any = new.reshape(x.value.shape)
            if not (recorded and x.history is self.history):
                with torch.enable_grad():
                    value = getattr(_StraightThrough, "apply")(value.detach(), x.value)  # noqa: B009  # untyped
            x.value = value

    def __setitem__(self, index: Any, value: Any) -> None:
        new = self.value.clone()
        if isinstance(index, slice):  # torch takes no negative steps
            index = list(range(new.shape[0]))[index]
        new[_raw(index)] = _raw(value)
        self.write(new)

    def update(self, value: Tensor) -> None:
        self.write(value.value.clone())

    def __iadd__(self, other: Any) -> Tensor:
        self.write(self.value + _raw(other))
        return self

    def __isub__(self, other: Any) -> Tensor:
        self.write(self.value - _raw(other))
        return self

    def __imul__(self, other: Any) -> Tensor:
        self.write(self.value * _raw(other))
        return self

    # --- operators ---------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Tensor:
        if index is None:
            return self.reshape((1, *self.value.shape))
        return Tensor(self.value[_raw(index)].clone())

    def reshape(self, shape: Sequence[int]) -> Tensor:
        return Tensor(self.value.reshape(tuple(shape)), self, torch.is_grad_enabled())

    def detach(self) -> Tensor:
        return Tensor(self.value.detach(), self)

    def copy(self) -> Tensor:
        return Tensor(self.value.clone())

    def sum(self) -> Tensor:
        return Tensor(self.value.sum())

    def __add__(self, other: Any) -> Tensor:
        return Tensor(self.value + _raw(other))

    def __sub__(self, other: Any) -> Tensor:
        return Tensor(self.value - _raw(other))

    def __mul__(self, other: Any) -> Tensor:
        return Tensor(self.value * _raw(other))

    def __gt__(self, other: Any) -> Tensor:
        return Tensor(self.value > _raw(other))

    def __lt__(self, other: Any) -> Tensor:
        return Tensor(self.value < _raw(other))

    @property
    def grad(self) -> Tensor | None:
        return None if self.total is None else Tensor(self.total)

    @grad.setter
    def grad(self, gradient: Any) -> None:
        self.total = _raw(gradient)


def _raw(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_raw, value))  # pyright: ignore[reportUnknownArgumentType]
    return value.value if isinstance(value, Tensor) else value


def zeros(shape: Sequence[int]) -> Tensor:
    return Tensor(torch.zeros(tuple(shape), dtype=torch.float64))


def tanh(x: Tensor) -> Tensor:
    return Tensor(torch.tanh(x.value))


def sin(x: Tensor) -> Tensor:
    return Tensor(torch.sin(x.value))


def square(x: Tensor) -> Tensor:
    return Tensor(torch.square(x.value))


def where(mask: Tensor, x: Any, y: Any) -> Tensor:
    return Tensor(torch.where(mask.value, _raw(x), _raw(y)))


# --- branches and loops: values go in and out, without their memory ---------------------------------------------------


def _apart(result: Any) -> Any:
    return tuple(map(_apart, result)) if isinstance(result, tuple) else result.copy()  # pyright: ignore[reportUnknownArgumentType]


def cond(predicate: Tensor, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    return _apart((then if bool(predicate.value) else otherwise)(*operands))


def scan(step: Callable[..., Any], carry: Any, xs: Tensor) -> tuple[Any, Tensor]:
    carry, items = _apart(carry), list[Any]()
    for i in range(xs.value.shape[0]):
        carry, item = _apart(step(carry, xs[i]))
        items.append(item.value)
    return carry, Tensor(torch.stack(items))


def while_loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any, max_steps: int) -> Any:
    carry = _apart(carry)
    for _ in range(max_steps):
        if not bool(condition(carry).value):
            break
        carry = _apart(body(carry))
    return carry


# --- derivatives ------------------------------------------------------------------------------------------------------


def backward(y: Tensor, leaves: Sequence[Tensor]) -> None:
    """Add the gradients of the sum of y to `.grad` of the leaves."""
    for leaf, gradient in zip(leaves, _gradients(y.value.sum(), [x.leaf for x in leaves], None, False), strict=True):
        if gradient is not None:
            leaf.total = gradient if leaf.total is None else leaf.total + gradient


def grad(y: Tensor, leaves: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    """The gradients of the sum of y, zeros where there is none."""
    found = _gradients(y.value.sum(), [x.leaf for x in leaves], None, create_graph)
    pairs = zip(found, leaves, strict=True)
    return tuple(Tensor(torch.zeros_like(x.leaf) if g is None else g) for g, x in pairs)


def _gradients(y: Any, xs: Sequence[Any], dy: Any, create: bool) -> Sequence[Any]:
    with torch.enable_grad():
        y = y * 1.0  # a view of the result may have been written
        if not y.requires_grad:
            return [None] * len(xs)
        return torch.autograd.grad(y, xs, dy, retain_graph=True, create_graph=create, allow_unused=True)


def _source(x: Tensor, recorded: bool) -> Tensor:
    """An argument of a differentiated function, which may be written."""
    value = x.value if recorded else x.value.detach()
    return Tensor(value * 1.0 if value.requires_grad else value.clone().requires_grad_())


def _zeros_if_none(gradient: Any, like: Any) -> Any:
    return torch.zeros_like(like) if gradient is None else gradient


def vjp(f: Callable[..., Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """f(x), and the gradient of its sum."""
    recorded = torch.is_grad_enabled()
    with torch.enable_grad():
        source = _source(x, recorded)
        start = source.value
        y = f(source)
        gradient = _zeros_if_none(_gradients(y.value.sum(), [start], None, recorded)[0], start)
    return (Tensor(y.value), Tensor(gradient)) if recorded else (Tensor(y.value.detach()), Tensor(gradient.detach()))


def jvp(f: Callable[..., Tensor], x: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor]:
    """f(x), and its derivative along a tangent, from the gradient of its gradient."""
    recorded = torch.is_grad_enabled()
    with torch.enable_grad():
        source = _source(x, recorded)
        start, along = source.value, tangent.value if recorded else tangent.value.detach()
        y = f(source)
        dy = torch.zeros_like(y.value, requires_grad=True)
        gradient = _gradients(y.value, [start], dy, True)[0]
        product = None if gradient is None else (gradient * along).sum()
        derivative = None if product is None else _gradients(product, [dy], None, recorded)[0]
        derivative = _zeros_if_none(derivative, y.value)
    if recorded:
        return Tensor(y.value), Tensor(derivative)
    return Tensor(y.value.detach()), Tensor(derivative.detach())


def vmap(f: Callable[..., Tensor], x: Tensor, shared: Tensor) -> Tensor:
    """f(row, shared) for each row of x, stacked."""
    rows = [f(Tensor(x.value[i].clone()), shared.copy()) for i in range(x.value.shape[0])]
    return Tensor(torch.stack([row.value for row in rows]))
