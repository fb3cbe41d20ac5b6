"""One sample of an entry: the same call for torch and for meta, as functions of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

import meta
from tests.python.conformance.adapter import ADAPTER


class Case:
    """A sample's arguments, with their distinct tensors taken out.

    tensors: the tensors, in order of appearance.  leaves: the places of those that need gradients."""

    def __init__(self, op: Any, sample: Any) -> None:
        self.op = op
        self._flat, self._tree = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        places: dict[int, int] = {}
        self.tensors: list[torch.Tensor] = []
        self._places: list[int | None] = []
        for value in self._flat:
            if isinstance(value, torch.Tensor) and id(value) not in places:
                places[id(value)] = len(self.tensors)
                self.tensors.append(value)
            self._places.append(places.get(id(value)) if isinstance(value, torch.Tensor) else None)
        self.leaves = [i for i, t in enumerate(self.tensors) if t.requires_grad]
        self._process = sample.output_process_fn_grad

    @property
    def dense(self) -> bool:
        """Whether all tensors are."""
        return all(t.layout == torch.strided for t in self.tensors)

    def call(self, function: Callable[..., Any], tensors: Sequence[Any]) -> list[Any]:
        """The flat results of `function` on the sample's arguments, with `tensors` in place of its own."""
        values = [v if i is None else tensors[i] for v, i in zip(self._flat, self._places, strict=True)]
        args, kwargs = tree_unflatten(values, self._tree)
        return tree_flatten(function(*args, **kwargs))[0]

    def expected(self, seed: int = 0) -> tuple[list[Any], list[torch.Tensor]]:
        """torch's results, and the tensors afterwards: some operators write to them."""
        torch.manual_seed(seed)
        copies = [t.detach().clone() for t in self.tensors]
        return self.call(self.op, copies), copies

    def exact(self) -> list[torch.Tensor]:
        """torch's results with floating and complex tensors, and dtype arguments, widened."""
        wide = self._wide()
        return [torch.as_tensor(y) for y in wide.call(wide.op, [t.detach() for t in wide.tensors])]

    def exact_inputs(self) -> list[torch.Tensor]:
        """The tensors after a call of torch's operator on the widened sample."""
        wide = self._wide()
        copies = [t.detach().clone() for t in wide.tensors]
        torch.manual_seed(0)
        wide.call(wide.op, copies)
        return copies

    def _wide(self) -> Case:
        wide = object.__new__(Case)
        wide.op, wide._tree, wide._places, wide.leaves = self.op, self._tree, self._places, self.leaves
        wide._flat, wide._process = [_widened(v) for v in self._flat], self._process
        wide.tensors = [_widened(t) for t in self.tensors]
        return wide

    def arrays(self) -> list[meta.NDArray]:
        """The tensors as arrays of meta."""
        return [ADAPTER.from_torch(t, t.requires_grad) for t in self.tensors]

    def cotangents(self) -> dict[int, torch.Tensor]:
        """Cotangents of torch's results, by place: random ones of the processed results, pulled back to the results
        themselves, so that results which are only unique up to a factor are compared where they are unique."""
        result = self._run()
        outputs = {i: y for i, y in enumerate(tree_flatten(result)[0]) if _differentiable(y)}
        targets = [t for t in tree_flatten(self._process(result))[0] if _differentiable(t)]
        torch.manual_seed(1)
        seeds = [torch.randn_like(t) for t in targets]
        pulled = torch.autograd.grad(targets, list(outputs.values()), seeds, allow_unused=True)
        return {i: c for i, c in zip(outputs, pulled, strict=True) if c is not None}

    def gradients(self, cotangents: dict[int, torch.Tensor], second: bool = False) -> list[torch.Tensor]:
        """torch's gradients of the leaves; those of the gradients' sum (weighted by their own sines) if `second`."""
        outputs = tree_flatten(self._run())[0]
        leaves = [self.tensors[i] for i in self.leaves]
        ys = [outputs[i] for i in cotangents]
        dys = [c.to(y.dtype) for c, y in zip(cotangents.values(), ys, strict=True)]
        first = torch.autograd.grad(ys, leaves, dys, allow_unused=True, create_graph=second)
        if second:
            paths = [g for g in first if g is not None and g.requires_grad]
            if not paths:
                return [torch.zeros_like(x) for x in leaves]
            weights = [weight(g.detach()) for g in paths]
            first = torch.autograd.grad(paths, leaves, weights, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for g, x in zip(first, leaves, strict=True)]

    def exact_gradients(self, cotangents: dict[int, torch.Tensor], second: bool = False) -> list[torch.Tensor]:
        """`gradients` of the widened sample. torch's fused attention has no second gradient, its other one has."""
        with sdpa_kernel(SDPBackend.MATH) if second else nullcontext():
            return self._wide().gradients(cotangents, second)

    def tangents(self) -> list[torch.Tensor]:
        """A tangent for each leaf."""
        torch.manual_seed(2)
        return [torch.randn_like(self.tensors[i]) for i in self.leaves]

    def derivatives(self, places: Iterable[int]) -> list[torch.Tensor]:
        """torch's derivatives of the results at `places` along `tangents`, by forward mode."""
        moves = dict(zip(self.leaves, self.tangents(), strict=True))
        with forward_ad.dual_level():
            tensors = [
                forward_ad.make_dual(t.detach(), moves[i].to(t.dtype)) if i in moves else t.detach().clone()
                for i, t in enumerate(self.tensors)
            ]
            outputs = self.call(self.op, tensors)
            pairs = [forward_ad.unpack_dual(outputs[i]) for i in places]
            return [torch.zeros_like(p.primal) if p.tangent is None else p.tangent for p in pairs]

    def exact_derivatives(self, places: Iterable[int]) -> list[torch.Tensor]:
        """`derivatives` of the widened sample, along the same tangents."""
        wide, moves = self._wide(), self.tangents()
        wide.tangents = lambda: moves  # type: ignore[method-assign]
        return wide.derivatives(places)

    def adjoint(
        self, cotangents: dict[int, torch.Tensor], derivatives: Iterable[torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The product of the cotangents and derivatives along `tangents`, and that of torch's gradients and the
        tangents, which are equal (of complex numbers the real parts), as shares of the sum of the terms' magnitudes."""
        forward = [(c.conj() * d).real.double() for c, d in zip(cotangents.values(), derivatives, strict=True)]
        gradients = zip(self.exact_gradients(cotangents), self.tangents(), strict=True)
        backward = [(g.conj() * t).real for g, t in gradients]
        scale = sum(float(x.abs().sum()) for x in backward) or 1.0
        return [sum(x.sum() for x in forward) / scale], [sum(x.sum() for x in backward) / scale]

    def _run(self) -> Any:
        torch.manual_seed(0)
        tensors = [t if t.requires_grad else t.clone() for t in self.tensors]  # some operators write to them
        values = [v if i is None else tensors[i] for v, i in zip(self._flat, self._places, strict=True)]
        args, kwargs = tree_unflatten(values, self._tree)
        return self.op(*args, **kwargs)


def weight(gradient: torch.Tensor) -> torch.Tensor:
    """Weights of a gradient's elements in a second derivative: the cosines of their positions."""
    places = torch.arange(gradient.numel(), dtype=torch.float64).reshape(gradient.shape)
    return torch.cos(places).to(gradient.dtype)


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _widened(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else torch.complex128 if value.is_complex else value
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    wide = torch.complex128 if value.is_complex() else torch.float64
    return value.detach().to(wide).requires_grad_(value.requires_grad)
