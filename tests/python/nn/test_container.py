"""Sequential, ModuleList and ModuleDict: positions, slices, names, changes and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.errors import ArgumentError, PositionError


def data() -> meta.NDArray:
    return meta.array(np.linspace(-1, 1, 6).reshape(2, 3), dtype="float32")


def test_sequential_has_length_positions_slices_and_names() -> None:
    first, last = nn.Linear(3, 4), nn.Linear(4, 2)
    model = nn.Sequential(first, nn.ReLU(), meta.tanh, last)
    assert len(model) == 4
    assert list(model) == [first, model[1], meta.tanh, last]
    assert model[0] is first
    assert model[-1] is last
    part = model[1:]
    assert isinstance(part, nn.Sequential)
    assert [part[0], part[2]] == [model[1], last]
    np.testing.assert_array_equal(part(first(data())).detach(), model(data()).detach())
    named = nn.Sequential({"first": first, "relu": nn.ReLU()})
    assert named["first"] is named[0] is first
    assert [name for name, _ in named[:1].children()] == ["layers.first"]
    model[3] = nn.Identity()
    assert model.append(last)[4] is last


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda: nn.Sequential(nn.ReLU())[1], r"\[Sequential\] position 1 is out of range; expected -1 to 0"),
        (lambda: nn.Sequential()[0], "expected no position, as it is empty"),
        (lambda: nn.Sequential({"a": nn.ReLU()})["b"], r"\[Sequential\] there is no layer 'b'; expected layers\.a"),
        (lambda: nn.ModuleList()[-1], r"\[ModuleList\] position -1 is out of range"),
        (lambda: nn.ModuleDict({"a": nn.ReLU()})["b"], r"\[ModuleDict\] there is no model 'b'; expected a "),
    ],
)
def test_positions_out_of_range(use: Any, text: str) -> None:
    with pytest.raises(PositionError, match=text):
        use()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nn.ModuleList([meta.tanh]), r"\[ModuleList\] an item is tanh; expected a Model; keep functions in a "),
        (lambda: nn.ModuleList([nn.ReLU]), "an item is ReLU; expected a Model; call the class"),
        (lambda: nn.ModuleDict({"a": 1}), r"\[ModuleDict\] an item is int; expected a Model"),  # type: ignore[dict-item]
    ],
)
def test_items_that_are_no_models(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make()


class Branches(meta.Model):
    """Layers of a list in sequence, then one of a dict."""

    def build(self) -> None:
        self.blocks = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
        self.heads = nn.ModuleDict({"small": nn.Linear(3, 1)})
        self.heads["large"] = nn.Linear(3, 5)

    def forward(self, x: Any, head: str = "small") -> Any:
        for block in self.blocks:
            x = block(x)
        return self.heads[head](x)


def test_names_in_lists_and_dicts() -> None:
    model = Branches()
    names = [name for name, _ in model.named_parameters()]
    assert names == [*(f"blocks.{i}.{p}" for i in range(3) for p in "wb"),
                     *(f"heads.{h}.{p}" for h in ("small", "large") for p in "wb")]  # fmt: skip
    assert list(model.heads) == list(model.heads.keys()) == ["small", "large"]
    assert [name for name, _ in model.heads.items()] == ["small", "large"]
    assert "large" in model.heads
    assert len(model.blocks[1:]) == 2
    assert model.blocks[1:][0] is model.blocks[1]
    assert all(x.requires_grad for x in model.parameters())


CHANGES = {
    "append": lambda m: m.blocks.append(nn.Linear(3, 3)),
    "insert": lambda m: m.blocks.insert(0, nn.Linear(3, 3)),
    "replace": lambda m: m.blocks.__setitem__(-1, nn.Linear(3, 3)),
    "delete": lambda m: m.blocks.__delitem__(0),
    "dict": lambda m: m.heads.update({"small": nn.Linear(3, 1)}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_programs_follow_a_change(change: str) -> None:
    model = Branches()
    executor = meta.vm.compile(model)
    before = executor(data()).detach().numpy()
    CHANGES[change](model)
    after = executor(data()).detach()
    np.testing.assert_allclose(after, model(data()).detach(), rtol=1e-5)
    assert np.abs(after - before).max() > 1e-4


def test_pop_removes() -> None:
    model = Branches()
    head = model.heads.pop("large")
    assert isinstance(head, nn.Linear)
    assert list(model.heads) == ["small"]
    del model.heads["small"]
    assert len(model.heads) == 0
