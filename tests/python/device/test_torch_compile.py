"""torch.compile and torch.export on a GPU: the results of eager torch. The module is skipped without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import meta
from meta.frontend.torch import compile_backend
from meta.testing import get_testable_devices

if "cuda" not in get_testable_devices():
    pytest.skip("this machine has no CUDA device", allow_module_level=True)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 5)
    return torch.nn.Sequential(*layers).cuda()


@pytest.mark.parametrize("graphs", [True, False])
def test_training_steps_equal_steps_of_eager_torch(graphs: bool) -> None:
    """Enough of them that calls are recorded as CUDA graphs, which read parameters in place, before and after these
    move."""
    losses: list[list[float]] = []
    for compiled in (False, True):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        run: Any = torch.compile(model, backend=compile_backend, options={"graphs": graphs}) if compiled else model
        torch.manual_seed(1)
        losses.append([])
        tensors: list[torch.Tensor] = []
        for i in range(12):
            x, target = torch.randn(8, 20, device="cuda"), torch.randint(5, (8,), device="cuda")
            if i in (5, 8):
                tensors += [p.data for p in model.parameters()]
                for p in model.parameters():
                    p.data = p.data.clone()
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(run(x), target)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_exported_programs() -> None:
    model, x = network().eval(), torch.randn(64, 20, device="cuda")
    program = torch.export.export(model, (x,))
    run = meta.vm.compile(meta.frontend.torch.from_exported(program, device="cuda"), device="cuda")
    for _ in range(4):
        torch.testing.assert_close(torch.from_dlpack(run(meta.from_dlpack(x))), model(x).detach(), rtol=1e-5, atol=1e-5)
