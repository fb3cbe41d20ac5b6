"""The demo's data, scikit-learn's handwritten digits, and its network."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import meta
from meta.eager.ndarray import NDArray, array
from meta.model.model import Model
from meta.nn import Conv2d, Linear, MaxPool2d
from meta.records import record


@record
class Digits:
    """Images (n, 1, 8, 8) float32, standardised by the training set, and labels (n,) int64, in a fixed split."""

    train_images: Any
    train_labels: Any
    test_images: Any
    test_labels: Any

    def batches(self, epoch: int, size: int, device: str = "cpu") -> list[tuple[NDArray, NDArray]]:
        """The training set, shuffled by `epoch`, in batches of exactly `size`; drops the remainder."""
        import numpy as np

        order = np.random.default_rng(1000 + epoch).permutation(len(self.train_images))
        rows = [order[i : i + size] for i in range(0, len(order) - size + 1, size)]
        return [(array(self.train_images[r], device=device), array(self.train_labels[r], device=device)) for r in rows]


def load() -> Digits:
    """The digits in a fixed order."""
    train = 1437  # Number of training images; the other 360 of the 1797 are test images.
    import numpy as np

    datasets: Any = import_module("sklearn.datasets")
    raw: Any = datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(raw.images))
    images = raw.images[order].astype(np.float32)[:, None]
    images = (images - images[:train].mean()) / images[:train].std()
    labels = raw.target[order].astype(np.int64)
    return Digits(images[:train], labels[:train], images[train:], labels[train:])


class DigitsNet(Model):
    """Two 3x3 convolutions, max pooling, and two dense layers: (n, 1, 8, 8) -> (n, 10) scores."""

    def build(self, channels: int = 16, hidden: int = 64) -> None:
        self.conv1 = Conv2d(1, channels, 3, padding=1)
        self.conv2 = Conv2d(channels, 2 * channels, 3, padding=1)
        self.pool = MaxPool2d(2)
        self.dense1 = Linear(2 * channels * 16, hidden)
        self.dense2 = Linear(hidden, 10)

    @meta.model.trace
    def forward(self, x: Any) -> Any:
        x = meta.relu(self.conv1(x))
        x = self.pool(meta.relu(self.conv2(x)))
        x = meta.relu(self.dense1(x.reshape((x.shape[0], -1))))
        return self.dense2(x)


def accuracy(model: Model, images: object, labels: object) -> tuple[float, Any]:
    """The fraction of `images` that the model classifies correctly, and its predictions."""
    device = model.parameters()[0].device
    model.infer_mode()
    with meta.no_grad():
        predicted = meta.argmax(model(array(images, device=device)), 1).numpy()
    model.train_mode()
    return float((predicted == labels).mean()), predicted
