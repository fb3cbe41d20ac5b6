"""meta as the system under test of harnesses that feed torch's samples: look up, convert, differentiate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import meta
from tests.python.conformance import functional, methods, neural


class Adapter:
    """Names of OpInfo as functions of meta's arrays."""

    def lookup(self, name: str, variant: str = "") -> Callable[..., Any] | None:
        """The function for an OpInfo, with torch's arguments; None if the table lacks the operator."""
        for calls in (methods.CALLS, neural.CALLS, functional.CALLS):
            for key in (f"{name}.{variant}", name):
                if key in calls:
                    return calls[key]
        return methods.row(name)

    def from_torch(self, tensor: torch.Tensor, needs_grad: bool) -> meta.NDArray:
        """An array with a copy of the values. Strided memory goes through meta's own import."""
        plain = tensor.detach().resolve_conj().resolve_neg()
        x = meta.from_dlpack(plain.clone() if plain.is_contiguous() else plain)
        if needs_grad:
            x.requires_grad = True
        return x

    def to_torch(self, x: Any) -> torch.Tensor | None:
        """A tensor with a copy of an array's values; None for other objects."""
        return torch.from_dlpack(x.detach()).clone() if isinstance(x, meta.NDArray) else None

    def grad(
        self, outputs: Sequence[Any], inputs: Sequence[Any], cotangents: Sequence[Any], create_graph: bool = False
    ) -> list[Any]:
        """Gradients of the inputs; None for one that no output depends on."""
        pairs = [(y, dy) for y, dy in zip(outputs, cotangents, strict=True) if y.requires_grad]
        if not pairs:
            return [None] * len(inputs)
        ys, dys = map(list, zip(*pairs, strict=True))
        return list(meta.autograd.grad(ys, list(inputs), dys, create_graph=create_graph, allow_unused=True))


ADAPTER = Adapter()
