"""State dicts of torch load by name: own models, shared and renamed arrays, and every kind of mismatch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.errors import ArgumentError

torch = pytest.importorskip("torch", reason="its state dicts are loaded")


class Net(meta.Model):
    """The names are those of TorchNet."""

    def build(self) -> None:
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 2)])
        self.scale = meta.ones((4,))

    def forward(self, x: Any) -> Any:
        pooled = meta.mean(self.features(x), (2, 3)) * self.scale
        return tuple(head(pooled) for head in self.heads)


class TorchNet(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        self.heads = torch.nn.ModuleList([torch.nn.Linear(4, 3), torch.nn.Linear(4, 2)])
        self.scale = torch.nn.Parameter(torch.rand(4))

    def forward(self, x: Any) -> Any:
        pooled = self.features(x).mean((2, 3)) * self.scale
        return tuple(head(pooled) for head in self.heads)


def state() -> dict[str, Any]:
    return dict(TorchNet().state_dict())


def test_a_users_model_computes_what_torchs_computes() -> None:
    theirs = TorchNet()
    theirs(torch.randn(4, 1, 6, 6))  # moves the running statistics
    ours = Net()
    assert ours.load_torch_state_dict(theirs.state_dict()) == ([], [])
    host = np.random.default_rng(0).standard_normal((2, 1, 6, 6)).astype(np.float32)
    for y, t in zip(ours.infer_mode()(meta.array(host)), theirs.eval()(torch.tensor(host)), strict=True):
        np.testing.assert_allclose(y, t.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_numpy_arrays_and_other_dtypes_load() -> None:
    values = {name: value.double().numpy() for name, value in state().items()}
    model = Net().to(dtype="bfloat16")
    model.load_torch_state_dict(values)
    assert model.scale.dtype == "bfloat16"
    np.testing.assert_allclose(model.scale.detach().cast("float32"), values["scale"], rtol=1e-2)
    model = Net()
    model.load_torch_state_dict({name: value.bfloat16() for name, value in state().items()})
    assert model.scale.dtype == "float32"


def test_the_models_arrays_share_no_memory_with_torch() -> None:
    values, model = state(), Net()
    model.load_torch_state_dict(values)
    with torch.no_grad():
        values["scale"].zero_()
    assert model.scale.detach().numpy().all()


def test_shared_arrays_have_all_of_their_names() -> None:
    class Tied(meta.Model):
        def build(self) -> None:
            self.embed = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

    weight = torch.randn(5, 3)
    for names in (("embed.weight", "head.weight"), ("embed.weight",), ("head.weight",)):
        model = Tied()
        model.load_torch_state_dict(dict.fromkeys(names, weight))
        np.testing.assert_array_equal(model.embed.w.detach(), weight.numpy())
        assert model.head.w is model.embed.w


def test_rename_maps_and_leaves_out() -> None:
    values = {f"module.{name}": value for name, value in state().items()} | {"module.extra.weight": torch.ones(1)}
    model = Net()
    model.load_torch_state_dict(values, rename=lambda name: None if "extra" in name else name.removeprefix("module."))
    np.testing.assert_array_equal(model.heads[1].w.detach(), values["module.heads.1.weight"].numpy())


def test_strict_false_loads_what_both_have() -> None:
    values = state()
    del values["heads.1.bias"]
    values["heads.2.weight"] = torch.ones(1)
    model = Net()
    result = model.load_torch_state_dict(values, strict=False)
    assert result.missing == ["heads.1.bias"]
    assert result.unknown == ["heads.2.weight"]
    np.testing.assert_array_equal(model.scale.detach(), values["scale"].numpy())


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in state().items() if key != name}


REFUSED = [
    (lambda: without("heads.0.bias"), {},
     r"\[load_torch_state_dict\] missing: \['heads.0.bias'\]; expected the names of the model; rename maps"),
    (lambda: state() | {"head.0.bias": 1 * torch.ones(3)}, {},
     r"unknown: \['head.0.bias'\]; .*did you mean 'heads.0.bias'.*strict=False loads what both have"),
    (lambda: {f"x{i}": torch.ones(1) for i in range(9)}, {}, r"unknown: \['x0', .*'x5'\] and 3 more"),
    (lambda: state() | {"scale": torch.ones(5)}, {"strict": False},
     r"'scale' has shape \(5,\); expected \(4,\), as in the model"),
    (lambda: state() | {"scale": torch.ones(4, 1)}, {}, r"'scale' has shape \(4, 1\)"),
    (lambda: state() | {"scale": torch.ones(4, dtype=torch.int64)}, {}, "'scale' is int64; expected float32"),
    (lambda: {"model": state(), "epoch": 3}, {}, r"the entry 'model' is dict; .*; pass state\['model'\]"),
    (TorchNet, {}, r"the state is TorchNet; .*; pass module.state_dict\(\)"),
    (state, {"rename": lambda name: "scale"}, "rename gives 'scale' twice, the second time for"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "options", "text"), REFUSED)
def test_refuses_before_anything_is_written(values: Any, options: dict[str, Any], text: str) -> None:
    model = Net()
    before = {name: x.detach().numpy().copy() for name, x in model.named_state()}
    with pytest.raises(ArgumentError, match=text):
        model.load_torch_state_dict(values(), **options)
    for name, x in model.named_state():
        np.testing.assert_array_equal(x.detach(), before[name])
