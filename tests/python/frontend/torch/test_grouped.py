"""Products by groups: torch's grouped_mm, and the operator with which transformers computes it on CPUs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError
from meta.frontend.torch import aten, explain, from_exported
from meta.frontend.torch.library_twins import LIBRARY_TWINS

ENDS = torch.tensor([8, 8, 24, 32], dtype=torch.int32)  # the second group is empty
SHAPES = {
    "rows": ((32, 16), (4, 16, 8)), "columns": ((4, 16, 8), (8, 32)), "sums": ((16, 32), (32, 8)),
    "stacks": ((4, 16, 8), (4, 8, 16)),
}  # fmt: skip


@pytest.mark.parametrize("kind", SHAPES)
def test_grouped_products_agree_with_torch(kind: str) -> None:
    torch.manual_seed(0)
    x, w = (torch.randn(shape) for shape in SHAPES[kind])
    ends = None if kind == "stacks" else ENDS
    expected = torch.nn.functional.grouped_mm(x, w, offs=ends)
    function: Any = aten.find("_grouped_mm")
    arrays = [None if t is None else meta.from_dlpack(t) for t in (x, w, ends)]
    np.testing.assert_allclose(function(*arrays).numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


def test_values_of_other_groups_do_not_matter() -> None:
    x, w = meta.ones((3, 2)), meta.array(np.array([[[1.0], [1.0]], [[np.nan], [np.inf]]], "float32"))
    function: Any = aten.find("_grouped_mm")
    assert function(x, w, meta.array([2, 2], "int32")).tolist() == [[2.0], [2.0], [0.0]]


@pytest.mark.parametrize(("ranks", "ends"), [((2, 3), False), ((3, 3), True), ((1, 2), True)])
def test_operands_that_do_not_fit(ranks: tuple[int, int], ends: bool) -> None:
    function: Any = aten.find("_grouped_mm")
    x, w = (meta.ones((2,) * rank) for rank in ranks)
    with pytest.raises(ArgumentError, match=r"\[_grouped_mm\] operands with .* axes .*expected two stacks of matrices"):
        function(x, w, meta.array([1, 2], "int32") if ends else None)


class Experts(torch.nn.Module):
    """Each row by the matrix of an expert; rows are sorted by experts."""

    def __init__(self, product: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.product = product
        self.weight = torch.nn.Parameter(torch.randn(3, 4, 8))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return self.product(x, self.weight, ends).sin()


@pytest.fixture(scope="module")
def fallback() -> Callable[..., torch.Tensor]:
    """The operator of transformers, or one like it where that is not imported."""
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        _register()
    return torch.ops.transformers.grouped_mm_fallback.default


def _parts(ends: torch.Tensor) -> list[slice]:
    return [slice(*pair) for pair in itertools.pairwise([0, *ends.tolist()])]


def _register() -> None:
    @torch.library.custom_op(
        "transformers::grouped_mm_fallback",
        mutates_args=(),
        schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor",
    )
    def forward(input: Any, weight: Any, offs: Any) -> Any:
        return torch.cat([input[part] @ w for part, w in zip(_parts(offs), weight, strict=True)])

    @torch.library.custom_op(
        "transformers::grouped_mm_fallback_backward", mutates_args=(),
        schema="(Tensor input, Tensor weight, Tensor offs, Tensor grad_output) -> (Tensor, Tensor)",
    )  # fmt: skip
    def backward(input: Any, weight: Any, offs: Any, grad_output: Any) -> Any:
        parts = _parts(offs)
        dx = torch.cat([grad_output[part] @ w.T for part, w in zip(parts, weight, strict=True)])
        return dx, torch.stack([input[part].T @ grad_output[part] for part in parts])

    forward.register_fake(lambda input, weight, offs: input.new_empty(input.shape[0], weight.shape[2]))
    backward.register_fake(lambda input, weight, offs, dy: (torch.empty_like(input), torch.empty_like(weight)))

    def gradient(context: Any, dy: Any) -> Any:
        x, w, ends = context.saved_tensors
        return *torch.ops.transformers.grouped_mm_fallback_backward(x, w, ends, dy), None

    forward.register_autograd(gradient, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def test_experts_of_transformers(fallback: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(0)
    module, x, ends = Experts(fallback), torch.randn(6, 4, requires_grad=True), torch.tensor([1, 1, 6])
    expected = module(x, ends)
    model = from_exported(torch.export.export(module, (x.detach(), ends)))
    result = model(meta.from_dlpack(x.detach()), meta.from_dlpack(ends))
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    gradients = torch.autograd.grad(expected.square().sum(), [x, module.weight])
    compiled = torch.compile(module, backend=meta.frontend.torch.compile_backend)
    through = torch.autograd.grad(compiled(x, ends).square().sum(), [x, module.weight])
    for ours, theirs in zip(through, gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert not any(graph.fallbacks for graph in explain(module, x, ends).graphs)


def test_a_twin_of_the_user_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from meta.frontend.torch import twins

    name = "transformers::grouped_mm_fallback"
    assert twins.find_twin(name, "default") is LIBRARY_TWINS[name]
    monkeypatch.setattr(twins, "_twins", dict(twins._twins))
    twins.twin(name, len)
    assert twins.find_twin(name, "default") is len
