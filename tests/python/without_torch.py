"""Programs that must work without torch: `python -m tests.python.without_torch NAME` runs one of them."""

import pickle
import sys
from pathlib import Path
from typing import Any

from tests.python.hide_torch import hide_torch

hide_torch()

import numpy as np  # noqa: E402  # nothing may be imported before torch is hidden
import numpy.typing as npt  # noqa: E402

import meta  # noqa: E402
from meta.errors import MetaError  # noqa: E402
from meta.op.registry import get  # noqa: E402
from meta.optim.sgd import with_sgd  # noqa: E402
from meta.testing.arrays import to_numpy  # noqa: E402
from meta.testing.call import OperatorCall, flat_results  # noqa: E402
from meta.testing.generic import check_types  # noqa: E402
from meta.testing.tolerance import compare  # noqa: E402

_RNG = np.random.default_rng(0)


def _floats(*shape: int) -> npt.NDArray[np.float32]:
    return _RNG.standard_normal(shape).astype(np.float32)


def softmax_with_gradient() -> None:
    values, dy = _floats(4, 5), _floats(4, 5)
    x = meta.array(values)
    x.requires_grad = True
    y = meta.softmax(x)
    y.backward(meta.array(dy))
    powers = np.exp(values - values.max(-1, keepdims=True))
    expected = powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    gradient = expected * (dy - (dy * expected).sum(-1, keepdims=True))
    np.testing.assert_allclose(x.grad.numpy(), gradient, rtol=1e-5, atol=1e-6)


def matmul_with_gradient() -> None:
    a, b, dy = _floats(3, 4), _floats(4, 5), _floats(3, 5)
    x1, x2 = meta.array(a), meta.array(b)
    x1.requires_grad = x2.requires_grad = True
    y = meta.matmul(x1, x2)
    y.backward(meta.array(dy))
    np.testing.assert_allclose(y.detach().numpy(), a @ b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(x1.grad.numpy(), dy @ b.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(x2.grad.numpy(), a.T @ dy, rtol=1e-5, atol=1e-6)


def conv2d_with_gradient() -> None:
    values, kernel = _floats(2, 3, 6, 6), _floats(4, 3, 3, 3)
    x, w = meta.array(values), meta.array(kernel)
    x.requires_grad = w.requires_grad = True
    y = meta.conv2d(x, w)
    windows = np.lib.stride_tricks.sliding_window_view(values, (3, 3), axis=(2, 3))
    np.testing.assert_allclose(
        y.detach().numpy(), np.einsum("bchwij,ocij->bohw", windows, kernel), rtol=1e-4, atol=1e-4
    )
    dy = _floats(*y.shape)
    y.backward(meta.array(dy))
    np.testing.assert_allclose(w.grad.numpy(), np.einsum("bchwij,bohw->ocij", windows, dy), rtol=1e-4, atol=1e-4)
    padded = np.pad(dy, ((0, 0), (0, 0), (2, 2), (2, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    flipped = kernel[:, :, ::-1, ::-1]
    np.testing.assert_allclose(x.grad.numpy(), np.einsum("bohwij,ocij->bchw", windows, flipped), rtol=1e-4, atol=1e-4)


def network_on_the_vm() -> None:
    """Training steps with convolutions, attention and products, eager and compiled."""
    images, labels = meta.array(_floats(32, 8, 12, 12)), meta.array(_RNG.integers(0, 10, 32))

    def trainer() -> Any:
        meta.random.seed(0)
        return with_sgd(learning_rate=0.05, momentum=0.9)(_Network(), loss=meta.cross_entropy)

    eager, compiled = trainer(), meta.vm.compile(trainer())
    for _ in range(4):
        np.testing.assert_allclose(compiled(images, labels).numpy(), eager(images, labels).numpy(), rtol=1e-5)


class _Network(meta.Model):
    def build(self) -> None:
        self.first = meta.nn.Conv2d(8, 32, 3, padding=1)
        self.second = meta.nn.Conv2d(32, 4, 3, padding=1, stride=2)
        self.last = meta.nn.Linear(4 * 6 * 6, 10)

    def forward(self, x: Any) -> Any:
        h = meta.max_pool2d(meta.relu(self.first(x)), 3, 1, 1)
        h = meta.relu(self.second(h)).reshape((-1, 4, 36))
        attended, _ = meta.attention_with_lse(h, h, h)
        h = meta.concatenate([h, attended], 2)[:, :, 18:54]
        return self.last(h.reshape((-1, 144)))


def gradient_on_the_vm() -> None:
    def loss_and_gradient(x: meta.NDArray, w: meta.NDArray) -> tuple[meta.NDArray, meta.NDArray]:
        w.requires_grad = True
        loss = meta.softmax(meta.relu(meta.matmul(x, w))).max()
        loss.backward()
        return loss, w.grad

    x, w = meta.array(_floats(4, 5)), meta.array(_floats(5, 6))
    compiled = meta.vm.compile(meta.trace(loss_and_gradient))(x, w)
    for ours, eager in zip(compiled, loss_and_gradient(x, w), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), eager.detach().numpy(), rtol=1e-5, atol=1e-6)


def every_operator(recording: str) -> None:
    """Repeat the calls that test_without_torch.py recorded and compare with torch's results."""
    failures: list[str] = []
    for name, args, kwargs, expected, exact, tolerances in pickle.loads(Path(recording).read_bytes()):
        call = OperatorCall(get(name), args, kwargs).to_meta()
        try:
            result = call.run()
            check_types(call, result)
            for ours, theirs, oracle in zip(flat_results(result), expected, exact, strict=False):
                if theirs is not None:
                    compare(name, to_numpy(ours), theirs, oracle=oracle, tolerance=tolerances.get(ours.dtype))
        except (AssertionError, MetaError) as error:
            failures.append(f"{name}: {error}")
    assert not failures, "\n".join(failures)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    if "torch" in sys.modules:
        sys.exit("torch was imported although it is hidden")
