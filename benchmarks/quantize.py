"""Models in 8-bit integers: products against float32 and onnxruntime, accuracy of digits, and a training step.

python -m benchmarks.quantize [products] [accuracy] [--rounds 40] [--seeds 3]

Each product is an ONNX file that onnxruntime quantises (QDQ, uint8 inputs, int8 weights with a scale for each channel).
meta and onnxruntime run it in turn on one thread, and meta the float32 file too; the least time of all rounds counts.
The digits network is LeNet: a quarter of the images is held out, ptq calibrates on four batches, qat trains for three
more epochs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

import meta  # noqa: E402
from examples import lenet  # noqa: E402
from meta.frontend.onnx import from_onnx  # noqa: E402

PRODUCTS: dict[str, tuple[tuple[int, ...], list[tuple[int, int, int]]]] = {
    "dense 1x1024, 1024": ((1, 1024), [(1024, 0, 0)]),
    "dense 64x768, 3072": ((64, 768), [(3072, 0, 0)]),
    "dense 512x1024, 1024": ((512, 1024), [(1024, 0, 0)]),
    "conv 56x56x64, 3x3": ((1, 64, 56, 56), [(64, 3, 1)]),
    "conv 14x14x256, 3x3": ((1, 256, 14, 14), [(256, 3, 1)]),
    "conv 56x56x256, 1x1 to 64": ((1, 256, 56, 56), [(64, 1, 1)]),
    "conv 28x28x128, 3x3 stride 2": ((8, 128, 28, 28), [(256, 3, 2)]),
    "six convs and a dense": ((4, 3, 64, 64), [(32, 3, 2), (64, 3, 1), (64, 3, 2), (128, 3, 1), (128, 3, 2),
                                              (256, 3, 2), (10, 0, 0)]),
}  # fmt: skip
"""Name -> shape of the input, and (outputs, window or 0 for dense, stride) of the layers, with bias and relu."""


def written(path: Path, shape: Sequence[int], layers: Sequence[tuple[int, int, int]]) -> None:
    """Write a float32 model."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    nodes: list[Any] = []
    weights: list[Any] = []
    x, size = "x", list(shape)
    for i, (outs, window, stride) in enumerate(layers):
        if not window and len(size) > 2:
            nodes.append(helper.make_node("Flatten", [x], [f"f{i}"]))
            x, size = f"f{i}", [size[0], int(np.prod(size[1:]))]
        kernel = (outs, size[1], window, window) if window else (outs, size[1])
        scale = np.float32((2 / np.prod(kernel[1:])) ** 0.5)
        weights.append(numpy_helper.from_array(rng.standard_normal(kernel).astype(np.float32) * scale, f"w{i}"))
        weights.append(numpy_helper.from_array(rng.standard_normal(outs).astype(np.float32), f"b{i}"))
        pad = window // 2
        attributes: dict[str, Any] = {"pads": [pad] * 4, "strides": [stride] * 2} if window else {"transB": 1}
        nodes.append(helper.make_node("Conv" if window else "Gemm", [x, f"w{i}", f"b{i}"], [f"p{i}"], **attributes))
        nodes.append(helper.make_node("Relu", [f"p{i}"], [f"y{i}"]))
        x = f"y{i}"
        size = [size[0], outs, *((n + 2 * pad - window) // stride + 1 for n in size[2:])] if window else [size[0], outs]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))]
    outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, size)]
    graph = helper.make_graph(nodes, "products", inputs, outputs, weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))


def rounded(path: Path, source: Path, x: Any, activations: str = "QUInt8") -> None:
    """Write the model of `source` as onnxruntime quantises it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter([{"x": x}])

        def get_next(self) -> Any:
            return next(self.batches, None)

    quantize_static(str(source), str(path), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType[activations], weight_type=QuantType.QInt8)  # fmt: skip


def session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def least(works: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """The least seconds of each function; they take turns."""
    for work in works:
        work()
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for i, work in enumerate(works):
            begin = time.perf_counter()
            for _ in range(3):
                work()
            best[i] = min(best[i], (time.perf_counter() - begin) / 3)
    return best


def product(shape: tuple[int, ...], layers: list[tuple[int, int, int]], rounds: int) -> list[float]:
    """Seconds of the integers in meta, the floats in meta and the integers in onnxruntime. Raises ValueError if results
    differ by more than a step of the last rounding."""
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain.onnx", Path(folder) / "small.onnx"
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        written(plain, shape, layers)
        rounded(small, plain, x)
        ours, floats, theirs, array = from_onnx(small), from_onnx(plain), session(small), meta.array(x)
    (expected,) = theirs.run(None, {"x": x})
    difference = float(np.abs(ours(array).numpy() - expected).max() / np.abs(expected).max())
    if difference > 0.02:
        raise ValueError(f"results differ by {difference:.1e}")
    return least([lambda: ours(array), lambda: floats(array), lambda: theirs.run(None, {"x": x})], rounds)


def products(rounds: int) -> None:
    print("| product | int8, us | float32, us | int8 / float32 | onnxruntime int8, us | meta / onnxruntime |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, (shape, layers) in PRODUCTS.items():
        a, b, c = product(shape, layers, rounds)
        row = f"| {name} | {a * 1e6:.1f} | {b * 1e6:.1f} | {a / b:.2f} | {c * 1e6:.1f} | {a / c:.2f} |"
        print(row, flush=True)


class Digits:
    """LeNet on the digits, a quarter of them held out."""

    def __init__(self, seed: int) -> None:
        meta.random.seed(seed)
        self.rng = np.random.default_rng(seed)
        images, labels = lenet.data()
        order = self.rng.permutation(len(images))
        self.count = len(images) * 3 // 4
        self.images, self.labels = images[order], labels[order]

    def train(self, model: Any, epochs: int, rate: float) -> float:
        """Train, and return the least seconds of a step."""
        optimizer = meta.optim.SGD(model, lr=rate, momentum=0.9)
        step = meta.vm.compile(meta.optim.TrainStep(model, optimizer, meta.cross_entropy))
        best = float("inf")
        for _ in range(epochs):
            order = self.rng.permutation(self.count)
            for i in range(0, self.count - 31, 32):
                batch = [meta.array(data[order[i : i + 32]]) for data in (self.images, self.labels)]
                begin = time.perf_counter()
                step(*batch).numpy()
                best = min(best, time.perf_counter() - begin)
        return best

    def accuracy(self, model: Any) -> float:
        """The share of the images held out that a model gets right, in percent."""
        scores = meta.vm.compile(model.infer_mode())(meta.array(self.images[self.count :])).numpy()
        return 100 * float((scores.argmax(-1) == self.labels[self.count :]).mean())

    def row(self) -> list[float]:
        model, again = (meta.nn.Sequential(*lenet.layers(meta.nn)) for _ in range(2))
        plain_step = self.train(model, 20, 0.05)
        again.load_state_dict(model.state_dict())
        shares = [self.accuracy(model)]
        batches = [meta.array(self.images[i : i + 128]) for i in range(0, 512, 128)]
        shares.append(self.accuracy(meta.quantize.ptq(model, batches)))
        qat_step = self.train(meta.quantize.qat(again), 3, 0.005)
        shares.append(self.accuracy(again))
        shares.append(self.accuracy(meta.quantize.convert(again)))
        return [*shares, qat_step / plain_step]


def accuracy(seeds: int) -> None:
    print("| seed | float32, % | ptq | qat | int8 after qat | qat step / float step |")
    print("| --- | --- | --- | --- | --- | --- |")
    for seed in range(seeds):
        print(f"| {seed} | {' | '.join(f'{x:.2f}' for x in Digits(seed).row())} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["products", "accuracy"], choices=["products", "accuracy"])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if "products" in options.parts:
        products(options.rounds)
    if "accuracy" in options.parts:
        accuracy(options.seeds)


if __name__ == "__main__":
    main()
