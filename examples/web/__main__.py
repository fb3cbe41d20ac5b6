"""LeNet-5 trains in a browser and classifies what the visitor draws: `python -m examples.web -o out/`.

The folder has two programs in WebAssembly, a training step and the classification of an image, with the first weights,
and 1797 handwritten digits. Serve it: `python -m http.server -d out`.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import meta
from examples import common, lenet
from meta.deploy import browser

BATCH: Final = 32
TRAINED: Final = 1500
"""The number of digits that are trained on; the others are held out."""
FILES: Final = ("index.html", "app.css", "app.js", "training.js")


def model() -> meta.Model:
    """LeNet with its first weights."""
    meta.random.seed(0)
    return meta.nn.Sequential(*lenet.layers(meta.nn))


def training_step(net: meta.Model) -> Any:
    """A step on images (BATCH, 1, 28, 28) and labels (BATCH,), int64, that returns the loss."""
    optimizer = meta.optim.SGD(net, 0.05, momentum=0.9)

    def step(images: Any, labels: Any) -> Any:
        loss = common.classify(net, images, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()  # gradients that are left would be results
        return loss

    return meta.trace(step)


def classification(net: meta.Model) -> Any:
    """The probabilities (1, 10) of the classes of an image (1, 1, 28, 28)."""
    return meta.trace(lambda image: meta.softmax(net(image), -1))


def digits() -> dict[str, np.ndarray[Any, Any]]:
    """Images (n, 8, 8) with 0 to 16, and labels (n,), in random order."""
    images, labels = common.digits()
    order = np.random.default_rng(0).permutation(len(labels))
    pixels, classes = np.uint8(16 * images[order, 0]), np.uint8(labels[order])
    return {
        "trained.images": pixels[:TRAINED], "trained.labels": classes[:TRAINED],
        "held_out.images": pixels[TRAINED:], "held_out.labels": classes[TRAINED:],
    }  # fmt: skip


def write(folder: Path) -> None:
    """Write the page with its programs and data."""
    net, image = model(), meta.zeros((1, 1, 28, 28))
    with meta.with_dialect("tvm"):
        step = meta.vm.compile(training_step(net), target="wasm32")
        step.program(meta.zeros((BATCH, 1, 28, 28)), meta.zeros((BATCH,), "int64"))
        classify = meta.vm.compile(classification(net), target="wasm32")
        classify.program(image)
    step.save(folder / "step", format="web")
    classify.save(folder / "classify", format="web")
    meta.save(folder / "digits.safetensors", {name: meta.array(x) for name, x in digits().items()})
    for source in (*(Path(__file__).with_name(name) for name in FILES), browser.FOLDER / "page.css"):
        shutil.copy(source, folder)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.web", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to write")
    folder = parser.parse_args(argv).output
    write(folder)
    size = sum((folder / name / "program.wasm").stat().st_size for name in ("step", "classify"))
    print(f"{folder}: programs {size:,} bytes; serve it: python -m http.server -d {folder}")


if __name__ == "__main__":
    main()
