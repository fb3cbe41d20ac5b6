"""ATen's backward operators, called as torch's autograd calls them, eagerly and in a traced function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import meta
from meta.frontend.torch import aten
from tests.python.conformance import backward_operators
from tests.python.conformance.backward_operators import Call

pytestmark = pytest.mark.filterwarnings("ignore")

ENTRIES = (
    "cdist", "diagonal", "nn.functional.ctc_loss", "nn.functional.elu", "nn.functional.gelu",
    "nn.functional.layer_norm", "nn.functional.linear", "nn.functional.max_pool2d", "nn.functional.pad.reflect",
    "nn.functional.pdist", "nn.functional.threshold", "sigmoid", "slice", "softmax",
)  # fmt: skip


def test_calls_of_autograd() -> None:
    calls = list(backward_operators.calls(1, 1, ENTRIES))
    assert {c.name for c in calls} >= {"diagonal_backward", "elu_backward", "slice_backward", "sigmoid_backward"}
    assert {c.name: problem for c in calls if (problem := backward_operators.check(c))} == {}


def test_results_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    y, dy = torch.tensor([0.5]), torch.tensor([1.0])
    each = [Call("sigmoid_backward", (dy, y), {}, torch.tensor([value])) for value in (0.25, 0.5)]
    monkeypatch.setattr(backward_operators, "calls", lambda limit: iter(each[:limit]))
    backward_operators.main(str(tmp_path / "rows.jsonl"), "2")
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    assert row["counts"] == [["backward_ops", "eager", "float32", {"passed": 1, "failed": 1}]]
    assert row["settings"] == {"calls": 2}
    assert row["notes"] == ["backward_ops eager float32 failed: 1 of 1 values are off, by up to 0.25"]


def test_gradients_of_constant_distances_and_of_empty_pools_are_zeros() -> None:
    x = torch.randn(3, 2)
    distances, dy = torch.cdist(x, x, 0.0), torch.ones(3, 3)
    call = Call("_cdist_backward", (dy, x, x, 0.0, distances), {}, torch.zeros(3, 2))
    assert backward_operators.check(call) == ""
    image, picked = torch.zeros(0, 1, 4, 4), torch.zeros(0, 1, 2, 2)
    arguments = (picked, image, [2, 2], [2, 2], picked.long())
    assert backward_operators.check(Call("fractional_max_pool2d_backward", arguments, {}, image)) == ""


def test_differences_and_missing_operators_are_found() -> None:
    y, dy = torch.tensor([0.5]), torch.tensor([1.0])
    assert backward_operators.check(Call("sigmoid_backward", (dy, y), {}, torch.tensor([0.25]))) == ""
    assert "values are off" in backward_operators.check(Call("sigmoid_backward", (dy, y), {}, torch.tensor([0.5])))
    assert backward_operators.check(Call("no_backward", (dy, y), {}, y)) == "not implemented"


def test_gradients_by_the_forward_row_are_differentiable_and_run_in_traces() -> None:
    row = aten.find("elu_backward")
    assert row is not None
    x, dy = meta.array([-1.0, 2.0]), meta.array([1.0, 3.0])
    x.requires_grad = True

    def gradient(dy: meta.NDArray, x: meta.NDArray) -> meta.NDArray:
        return row(dy, 1.0, 1.0, 1.0, False, x)

    expected = torch.ops.aten.elu_backward(torch.tensor([1.0, 3.0]), 1, 1, 1, False, torch.tensor([-1.0, 2.0]))
    assert gradient(dy, x).tolist() == pytest.approx(expected.tolist())
    assert meta.vm.compile(meta.trace(gradient))(dy, x).tolist() == pytest.approx(expected.tolist())
    (second,) = meta.autograd.grad([gradient(dy, x)], [x], [meta.ones((2,))])
    assert second.tolist() == pytest.approx([0.36787945, 0.0])
