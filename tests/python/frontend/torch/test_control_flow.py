"""Branches and loops of torch, exported and under torch.compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop

import meta
from meta.frontend.torch import UnsupportedError, compile_backend, explain, from_exported, load


class Branch(nn.Module):
    """Branches that read a parameter, with a loop in one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def loop(x: torch.Tensor) -> torch.Tensor:
            start = torch.zeros((), dtype=torch.int64)
            return while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * 0.5 + i), (start, x))[1]

        return torch.cond((x.sum() > 0).reshape(1), lambda x: self.layer(x).relu(), loop, (x,)) + 1


class Loops(nn.Module):
    """Running totals from the end, and a function of each row."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        last, totals = scan(lambda c, row: (c + row * y, (c * row).sin()), y * 2, x, dim=0, reverse=True)
        return last, totals, torch._higher_order_ops.map(lambda row, y: row.cos() + y, x, y)


X = torch.linspace(-1, 1, 12).reshape(4, 3)


@pytest.fixture(scope="module")
def branch() -> tuple[Branch, Any]:
    torch.manual_seed(0)
    module = Branch()
    sizes = {"x": {0: torch.export.Dim("rows", min=2, max=9)}}
    return module, torch.export.export(module, (X,), dynamic_shapes=sizes)


def close(result: Any, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_exported_branches_and_loops(branch: tuple[Branch, Any]) -> None:
    module, program = branch
    model = from_exported(program)
    for run in (model, meta.vm.compile(model)):
        for x in (X + 2, X - 2, X[:3] + 2):
            close(run(meta.array(x.numpy())), module(x))


def test_gradients_go_through_the_branch_that_is_taken(branch: tuple[Branch, Any]) -> None:
    module, program = branch
    model = load(program)
    meta.sum(model(meta.array((X + 2).numpy())) ** 2).backward()
    module(X + 2).square().sum().backward()
    for (_, p), (_, q) in zip(model.named_parameters(), module.named_parameters(), strict=True):
        close(p.grad, q.grad)


def test_files_with_graphs_in_graphs(branch: tuple[Branch, Any], tmp_path: Path) -> None:
    module, program = branch
    torch.export.save(program, tmp_path / "branch.pt2")
    model = from_exported(tmp_path / "branch.pt2")
    for x in (X + 2, X - 2):
        close(model(meta.array(x.numpy())), module(x))


def test_exported_scan_and_map() -> None:
    module, y = Loops(), torch.tensor([0.5, -1.0, 2.0])
    model = from_exported(torch.export.export(module, (X, y)))
    operands = [meta.array(t.numpy()) for t in (X, y)]
    for run in (model, meta.vm.compile(model)):
        for result, expected in zip(run(*operands), module(X, y), strict=True):
            close(result, expected)


def test_branches_of_torch_compile_are_in_the_program() -> None:
    """A flag in one call, another in the next: one program has both branches, with their gradients."""

    def function(flag: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x, w: (x * w).sin(), lambda x, w: x.cos() + w, (x, w)) * 2

    call = torch.compile(function, backend=compile_backend)
    w = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    for flag in (torch.tensor(True), torch.tensor(False)):
        results = [f(flag, X, w) for f in (call, function)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(torch.autograd.grad(y.sum(), w)[0] for y in results))
    assert explain(function, torch.tensor(True), X, w).fallbacks == {}


def test_branches_that_draw_run_by_torch() -> None:
    def function(flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x: x * torch.rand_like(x), lambda x: x + 1, (x,))

    results: list[torch.Tensor] = []
    for call in (function, torch.compile(function, backend=compile_backend)):
        torch.manual_seed(3)
        with torch.no_grad():
            results.append(call(torch.tensor(True), X))
    torch.testing.assert_close(*results)


def test_loops_that_count_in_python_are_refused() -> None:
    class Counted(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * 2), (0, x))

    with pytest.raises(UnsupportedError, match=r"higher_order.while_loop: a? ?.*a loop carries 0; expected tensors"):
        from_exported(torch.export.export(Counted(), (X,)))
