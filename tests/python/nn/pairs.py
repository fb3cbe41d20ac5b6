"""Layers of meta and of torch, made with the same arguments and holding the same values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import meta
from meta import nn


@dataclass(frozen=True, slots=True)
class Row:
    """A class that both libraries have, the arguments of its constructor, and inputs.

    inputs: shapes of floating inputs, or arrays.  ours, theirs: arguments of one constructor only.
    torch_name: the class in torch, if it has another name."""

    name: str
    args: tuple[Any, ...]
    inputs: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)
    torch_name: str = ""

    def __str__(self) -> str:
        texts = [*map(str, self.args), *(f"{k}={v}" for k, v in (self.kwargs | self.ours).items())]
        return f"{self.name}({', '.join(texts)})".replace(" ", "")


def row(name: str, args: tuple[Any, ...], *inputs: Any, **kwargs: Any) -> Row:
    """A row whose keyword arguments are those of both constructors."""
    return Row(name, args, inputs, kwargs)


def pair(case: Row) -> tuple[Any, Any]:
    """The layer of meta with the values of that of torch, loaded by name, and that of torch."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, case.torch_name or case.name)(*case.args, **case.kwargs, **case.theirs)
    ours = getattr(nn, case.name)(*case.args, **case.kwargs, **case.ours)
    with torch.no_grad():
        for p in theirs.parameters():  # initial zeros and ones would hide mistakes
            p.copy_(torch.randn(p.shape) * 0.5)
        for b in theirs.buffers():
            if b.is_floating_point() and b.ndim:
                b.copy_(torch.rand(b.shape) + 0.5)
    ours.load_torch_state_dict(theirs.state_dict())
    return ours, theirs


def inputs_of(case: Row) -> tuple[list[Any], list[Any]]:
    """The inputs of both, which require gradients where they are floating."""
    rng = np.random.default_rng(0)
    hosts = [x if isinstance(x, np.ndarray) else rng.standard_normal(x).astype(np.float32) for x in case.inputs]
    ours, theirs = [meta.array(x) for x in hosts], [torch.tensor(x) for x in hosts]
    for x, t in zip(ours, theirs, strict=True):
        if t.is_floating_point():
            x.requires_grad = True
            t.requires_grad_()
    return ours, theirs


def tensors(result: Any) -> list[Any]:
    """The tensors of a nest of tuples, in order."""
    return [leaf for part in result for leaf in tensors(part)] if isinstance(result, tuple) else [result]


def assert_close(ours: Any, theirs: Any, what: str = "") -> None:
    ours, theirs = np.asarray(ours.detach() if hasattr(ours, "detach") else ours), theirs.detach().numpy()
    np.testing.assert_allclose(ours.reshape(theirs.shape), theirs, rtol=2e-4, atol=2e-5, err_msg=what)


def assert_equal_results(ours: Any, theirs: Any) -> None:
    for y, t in zip(tensors(ours), tensors(theirs), strict=True):
        assert tuple(y.shape) == tuple(t.shape)
        assert_close(y, t)


def backward(result: Any) -> None:
    """Backward of a sum in which every element has another weight."""
    total: Any = None
    for y in tensors(result):
        if y.requires_grad:
            count = int(np.prod(tuple(y.shape)))
            weights = np.linspace(-1, 2, count, dtype=np.float32).reshape(tuple(y.shape))
            weighted = (y * (meta.array(weights) if isinstance(y, meta.NDArray) else torch.tensor(weights))).sum()
            total = weighted if total is None else total + weighted
    total.backward()


def assert_equal_gradients(model: Any, module: Any, ours: list[Any], theirs: list[Any]) -> None:
    """Gradients of the parameters, by their names in torch, and of the inputs."""
    from meta.model.names import torch_arrays

    arrays = torch_arrays(model)
    for name, p in module.named_parameters():
        assert arrays[name].grad is not None, name
        assert_close(arrays[name].grad, p.grad, name)
    assert_equal_input_gradients(ours, theirs)


def assert_equal_input_gradients(ours: list[Any], theirs: list[Any]) -> None:
    for i, (x, t) in enumerate(zip(ours, theirs, strict=True)):
        if t.grad is not None:
            assert_close(x.grad, t.grad, f"input {i}")
