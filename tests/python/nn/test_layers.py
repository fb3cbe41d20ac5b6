"""Results and gradients of layers match torch's with equal parameters, eagerly and on the VM."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.errors import ArgumentError
from meta.nn.function import FunctionLayer

torch = pytest.importorskip("torch", reason="the layers are compared with torch's")


def linear() -> tuple[Any, Any, tuple[int, ...]]:
    return nn.Linear(6, 4), torch.nn.Linear(6, 4), (3, 6)


def conv() -> tuple[Any, Any, tuple[int, ...]]:
    options: dict[str, Any] = {"stride": 2, "padding": 1, "groups": 2}
    return nn.Conv2d(4, 6, 3, **options), torch.nn.Conv2d(4, 6, 3, **options), (2, 4, 7, 6)


def batch_norm() -> tuple[Any, Any, tuple[int, ...]]:
    return nn.BatchNorm2d(4), torch.nn.BatchNorm2d(4), (3, 4, 5, 2)


def layer_norm() -> tuple[Any, Any, tuple[int, ...]]:
    return nn.LayerNorm(5), torch.nn.LayerNorm(5), (3, 2, 5)


def max_pool() -> tuple[Any, Any, tuple[int, ...]]:
    return nn.MaxPool2d(2), torch.nn.MaxPool2d(2), (2, 3, 6, 4)


def average_pool() -> tuple[Any, Any, tuple[int, ...]]:
    return nn.AvgPool2d(3, 2, 1), torch.nn.AvgPool2d(3, 2, 1), (2, 3, 6, 5)


def lenet() -> tuple[Any, Any, tuple[int, ...]]:
    ours = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 5), nn.Tanh(),
                         nn.AvgPool2d(2), nn.Flatten(), nn.Linear(72, 10))  # fmt: skip
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(1, 6, 5, padding=2), torch.nn.Tanh(), torch.nn.AvgPool2d(2), torch.nn.Conv2d(6, 8, 5),
        torch.nn.Tanh(), torch.nn.AvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(72, 10),
    )  # fmt: skip
    return ours, theirs, (2, 1, 20, 20)


class Residual(meta.Model):
    """Two convolutions with batch norm around a shortcut, as in a ResNet."""

    def build(self, channels: int) -> None:
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        y = meta.relu(self.norm1(self.conv1(x)))
        return meta.relu(self.norm2(self.conv2(y)) + x)


class TorchResidual(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(channels)
        self.conv2 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + x)


def residual() -> tuple[Any, Any, tuple[int, ...]]:
    return Residual(4), TorchResidual(4), (2, 4, 6, 6)


class TorchEncoder(torch.nn.Module):  # type: ignore[misc, name-defined]
    """torch's pre-norm encoder layer; `ordered` lists its parameters in the order of meta's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )

    def ordered(self) -> list[Any]:
        a = self.layer.self_attn
        layers = (self.layer.norm1, self.layer.norm2, self.layer.linear1, self.layer.linear2)
        attention = [a.in_proj_weight, a.in_proj_bias, a.out_proj.weight, a.out_proj.bias]
        return [*attention, *(p for each in layers for p in (each.weight, each.bias))]

    def forward(self, x: Any) -> Any:
        return self.layer(x)


def encoder() -> tuple[Any, Any, tuple[int, ...]]:
    return nn.TransformerEncoderLayer(8, 2, 16), TorchEncoder(), (2, 5, 8)


CASES = [linear, conv, batch_norm, layer_norm, max_pool, average_pool, lenet, residual, encoder]
Case = Callable[[], tuple[Any, Any, tuple[int, ...]]]


def paired(case: Case) -> tuple[Any, Any, Any, Any]:
    """The layer of meta and that of torch with equal parameters, and an input for each."""
    ours, theirs, shape = case()
    parameters, torch_parameters = ours.parameters(), ordered_parameters(theirs)
    assert len(parameters) == len(torch_parameters)
    with torch.no_grad(), meta.no_grad():
        for p, t in zip(parameters, torch_parameters, strict=True):
            p.update(meta.array(t.numpy().reshape(p.shape)))
    host = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return ours, theirs, meta.array(host), torch.tensor(host, requires_grad=True)


def ordered_parameters(layer: Any) -> list[Any]:
    """The parameters of a torch layer in the order of meta's."""
    return layer.ordered() if hasattr(layer, "ordered") else list(layer.parameters())


def assert_close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(np.asarray(ours), theirs.detach().numpy().reshape(ours.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_forward_and_gradients_match_torch(case: Case) -> None:
    ours, theirs, x, tx = paired(case)
    x.requires_grad = True
    y, ty = ours(x), theirs(tx)
    assert_close(y, ty)
    (y * y).sum().backward()
    (ty * ty).sum().backward()
    assert_close(x.grad, tx.grad)
    for p, t in zip(ours.parameters(), ordered_parameters(theirs), strict=True):
        assert_close(p.grad, t.grad)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_inference_matches_torch(case: Case) -> None:
    ours, theirs, x, tx = paired(case)
    for _ in range(2):  # train mode updates the running statistics
        ours(x)
        theirs(tx)
    assert_close(ours.infer_mode()(x), theirs.eval()(tx))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_vm_matches_torch(case: Case) -> None:
    ours, theirs, x, tx = paired(case)
    executor = meta.vm.compile(ours, device="cpu")
    assert_close(executor(x), theirs(tx))
    executor(x)
    theirs(tx)
    ours.infer_mode()
    assert_close(executor(x), theirs.eval()(tx))


def test_dropout_preserves_the_mean_and_is_inactive_in_inference() -> None:
    meta.random.seed(0)
    layer = nn.Dropout(0.25)
    x = meta.ones((100, 100))
    y = layer(x).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(y.mean() - 1) < 0.02
    assert layer.infer_mode()(x) is x


def test_embedding_and_its_gradient() -> None:
    layer = nn.Embedding(5, 3)
    indices = meta.array([[0, 4], [4, 2]])
    np.testing.assert_array_equal(layer(indices).detach().numpy(), layer.w.detach().numpy()[[[0, 4], [4, 2]]])
    layer(indices).sum().backward()
    np.testing.assert_array_equal(layer.w.grad.numpy().sum(1), [3, 0, 3, 0, 6])


@pytest.mark.parametrize("layer", [nn.Dropout1d(0.25), nn.Dropout2d(0.25), nn.Dropout3d(0.25)])
def test_channel_dropout_drops_whole_channels(layer: Any) -> None:
    meta.random.seed(0)
    shape = (40, 50, *(2,) * int(type(layer).__name__[-2]))
    y = layer(meta.ones(shape)).numpy().reshape(40, 50, -1)
    assert (y == y[..., :1]).all()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(y.mean() - 1) < 0.05
    x = meta.ones(shape)
    assert layer.infer_mode()(x) is x


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    meta.random.seed(0)
    x = meta.random.normal((200, 100))
    y = nn.AlphaDropout(0.3)(x).numpy()
    assert abs(y.mean()) < 0.03
    assert abs(y.std() - 1) < 0.03
    values, counts = np.unique(y, return_counts=True)
    assert abs(counts.max() / y.size - 0.3) < 0.02, "dropped elements have one value"
    assert values[counts.argmax()] < -1
    np.testing.assert_array_equal(nn.AlphaDropout(1.0)(x), np.zeros(x.shape))


def test_dropout_of_probability_zero_is_the_identity() -> None:
    x = meta.ones((3,))
    assert nn.Dropout(0.0)(x) is x


def test_transposed_convolutions_reach_a_wanted_size() -> None:
    layer, theirs = nn.ConvTranspose2d(2, 3, 3, stride=3), torch.nn.ConvTranspose2d(2, 3, 3, stride=3)
    layer.load_torch_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 2)).astype(np.float32)
    y = layer(meta.array(x), (10, 7))
    assert y.shape == (1, 3, 10, 7)
    assert_close(y.detach(), theirs(torch.tensor(x), output_size=(10, 7)))


@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_pooling_of_random_places(rank: int) -> None:
    layer = getattr(nn, f"FractionalMaxPool{rank}d")(2, output_ratio=0.5, return_indices=True)
    x = meta.random.normal((2, 3, *(6,) * rank))
    y, indices = layer(x)
    assert tuple(y.shape) == (2, 3, *(3,) * rank)
    flat = x.numpy().reshape(2, 3, -1)
    np.testing.assert_array_equal(
        np.take_along_axis(flat, indices.numpy().reshape(2, 3, -1), 2), y.numpy().reshape(2, 3, -1)
    )


def test_alpha_dropout_of_channels() -> None:
    layer = nn.FeatureAlphaDropout(0.5)
    y = layer(meta.zeros((4, 6, 5))).numpy()
    assert (y == y[:, :, :1]).all()
    assert layer.infer_mode()(meta.ones((2, 2, 2))).numpy().all()


class Scaled(FunctionLayer, function="leaky_relu"):
    """A layer of one function."""

    slope: float = 0.5


class Same(Scaled):
    """A layer that inherits function and options."""


@pytest.mark.parametrize("layer", [Scaled, Same])
def test_layers_of_one_function_have_its_options_as_parameters(layer: type[Scaled]) -> None:
    x = meta.array([-2.0, 4.0])
    np.testing.assert_array_equal(layer()(x).numpy(), [-1.0, 4.0])
    np.testing.assert_array_equal(layer(slope=0.25)(x=x).numpy(), [-0.5, 4.0])
    assert str(inspect.signature(layer.build)) == "(self, slope: float = 0.5)"
    with pytest.raises(ArgumentError, match=rf"\[{layer.__name__}\] argument 'x' is missing"):
        layer()()
