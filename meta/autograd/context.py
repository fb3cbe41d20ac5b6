"""Values that the `forward` of an autograd.Function saves for its `backward`."""

from __future__ import annotations

import weakref
from typing import Any

from meta.eager.gradient_graph import GradientNode
from meta.eager.ndarray import NDArray
from meta.eager.walk import connected
from meta.errors import ArgumentError
from meta.modes import modes
from meta.schema._dsl import TensorLike


class Context:
    """Values that `forward` saves for `backward`. Other attributes may be set freely; plain values only, for arrays set
    as attributes are neither freed nor checked for in-place writes.

    needs_input_grad: for each argument of `forward`, whether its gradient is wanted. In a traced function `forward`
        sees True for every floating tensor, because what is wanted is known when `backward` runs."""

    needs_input_grad: tuple[bool, ...]

    def __init__(self, name: str, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self._name = name
        self._saved: tuple[Any, ...] = ()
        self._outputs: dict[int, int] = {}
        """Place among the saved -> index of the output that it is."""
        self._node: weakref.ref[GradientNode] | None = None
        self._non_differentiable: tuple[Any, ...] = ()

    def save_for_backward(self, *arrays: NDArray | None) -> None:
        """Keep arguments, results or other arrays for `backward`; call it once. They are freed with the graph."""
        for x in arrays:
            if x is not None and not isinstance(x, TensorLike):
                raise ArgumentError(
                    self._name,
                    f"save_for_backward got {type(x).__name__}",
                    "arrays and None",
                    "set other values as attributes of ctx",
                )
        self._saved = arrays

    def mark_non_differentiable(self, *results: NDArray) -> None:
        """Name results of `forward` that no gradient flows from."""
        self._non_differentiable = results

    @property
    def saved_arrays(self) -> tuple[Any, ...]:
        """The arrays that `save_for_backward` stored."""
        node = self._node() if self._node is not None else None
        if node is None or not modes.grad_enabled:
            return self._saved
        return tuple(
            connected(node, self._outputs[i], x) if i in self._outputs else x for i, x in enumerate(self._saved)
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        hint = "; write ctx.saved_arrays" if name == "saved_tensors" else ""
        raise AttributeError(f"the context of {self._name} has no attribute {name!r}{hint}", name=name, obj=self)
