"""What must work where torch cannot be imported: `python -m tests.python.without_torch NAME` runs one program."""

import sys

from tests.python.hide_torch import hide_torch

hide_torch()

import numpy as np  # noqa: E402  # nothing may be imported before torch is hidden
import numpy.typing as npt  # noqa: E402

import meta  # noqa: E402

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


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    if "torch" in sys.modules:
        sys.exit("torch was imported although it is hidden")
