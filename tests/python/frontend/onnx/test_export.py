"""Programs of meta as ONNX models: onnxruntime computes what meta does."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError, NotSupportedError
from meta.frontend.onnx import UnsupportedError, from_onnx, to_onnx
from meta.frontend.onnx.export_ops._table import complex_table, table
from meta.op.decomposition import all_decompositions
from meta.op.registry import all_ops, get, names
from tests.python.frontend.sample_program import sample_program
from tests.python.op.samples import first_rows

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


DECOMPOSED = {name for name in all_decompositions() if not get(name).inplace} - {"dropout"}
"""The decomposition of dropout ends in random numbers."""


def run(model, *inputs):
    """The outputs of a model in onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    arrays = [x.numpy() if hasattr(x, "numpy") else x for x in inputs]
    return session.run(None, {i.name: x for i, x in zip(model.graph.input, arrays, strict=True)})


def kinds(model):
    return [node.op_type for node in model.graph.node]


def check_model(model, *inputs, opset=23, rtol=1e-5, **options):
    """Export a model in inference mode; its results in onnxruntime agree. Returns the ONNX model."""
    model.infer_mode()
    expected = model(*map(meta.array, inputs))
    exported = to_onnx(model, *inputs, opset=opset, **options)
    results = [expected] if hasattr(expected, "numpy") else list(expected)
    for ours, theirs in zip(results, run(exported, *inputs), strict=True):
        np.testing.assert_allclose(theirs, ours.numpy(), rtol=rtol, atol=1e-5)
    return exported


def test_every_row_converts_an_operator():
    assert set(table.names()) | set(complex_table.names()) <= names()
    assert names() >= DECOMPOSED


def test_the_page_lists_what_has_no_expression():
    page = (Path(__file__).parents[4] / "docs/to-onnx.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", page.partition("<!-- refused -->")[2].partition("<!-- /refused -->")[0]))
    operators = {op.name for op in all_ops() if not op.namespace}
    assert listed == operators - set(table.names()) - set(complex_table.names()) - DECOMPOSED


@pytest.mark.parametrize("opset", [18, 23])
def test_nodes_compute_what_operators_do(opset):
    """The first sample of every operator with a row, all in one model."""
    exported = set(table.names()) | DECOMPOSED
    samples = [s for s in first_rows() if s.op in exported and s.op not in _WITHOUT_A_FIRST_SAMPLE]
    assert len(samples) > 190
    program, arrays, check = sample_program(samples)
    inputs = [x for each in arrays for x in each]
    model = to_onnx(program, arrays, opset=opset)
    check(run(model, *inputs), "ONNX")
    with meta.with_dialect("reference"):
        check(from_onnx(model).interpret(*inputs), "meta, read back")


_WITHOUT_A_FIRST_SAMPLE = {"conv2d_int8", "conv2d_transpose", "ones", "zeros", "floor_divide"}


class Residual(meta.Model):
    def build(self):
        self.conv1 = meta.nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm1 = meta.nn.BatchNorm2d(4)
        self.conv2 = meta.nn.Conv2d(4, 4, 3, padding=1)
        self.head = meta.nn.Linear(4, 5)

    def forward(self, x):
        y = meta.max_pool2d(meta.relu(self.norm1(self.conv1(x))), 3, 2, 1)
        y = meta.relu(self.conv2(y) + y)
        return self.head(meta.adaptive_avg_pool2d(y, 1).reshape((x.shape[0], 4)))


class Encoder(meta.Model):
    def build(self):
        self.words = meta.nn.Embedding(11, 8)
        self.norm = meta.nn.LayerNorm(8)
        self.qkv = meta.nn.Linear(8, 24)
        self.out = meta.nn.Linear(8, 8)

    def forward(self, ids):
        x = self.norm(self.words(ids))
        q, k, v = (
            part.reshape((*x.shape[:2], 2, 4)).transpose((0, 2, 1, 3)) for part in meta.split(self.qkv(x), 3, -1)
        )
        y = meta.attention(q, k, v).transpose((0, 2, 1, 3)).reshape((*x.shape[:2], 8))
        return meta.gelu(self.out(y) + x)


def test_a_residual_network():
    x = np.random.RandomState(0).randn(2, 3, 8, 8).astype("float32")
    model = Residual()
    exported = check_model(model, x, dynamic={"x": {0: "batch"}})
    assert exported.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert {t.name for t in exported.graph.initializer} >= set(model.state_dict())
    assert {"Conv", "BatchNormalization", "MaxPool", "GlobalAveragePool", "Gemm"} <= set(kinds(exported))
    ours, theirs = model(meta.array(x[:1])), run(exported, x[:1])[0]
    np.testing.assert_allclose(theirs, ours.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("opset", "node"), [(18, "Softmax"), (23, "Attention")])
def test_an_encoder_with_open_sizes(opset, node):
    ids = np.array([[1, 2, 3], [4, 5, 6]])
    exported = check_model(Encoder(), ids, opset=opset, dynamic={"ids": {0: "batch", 1: "length"}})
    assert node in kinds(exported)
    assert "LayerNormalization" in kinds(exported)


def test_a_recurrent_network():
    x = np.random.RandomState(0).randn(3, 4, 5).astype("float32")

    @meta.trace
    def cell(x):
        w = meta.array(np.random.RandomState(1).randn(5, 5).astype("float32"))
        h = meta.zeros((4, 5))
        for i in range(3):
            h = meta.tanh(meta.matmul(x[i], w) + meta.sigmoid(h) * h)
        return {"last": h, "twice": (h, h * 2.0)}

    results = run(to_onnx(cell, x), x)
    for ours, theirs in zip([cell(meta.array(x))["last"], *cell(meta.array(x))["twice"]], results, strict=True):
        np.testing.assert_allclose(theirs, ours.numpy(), rtol=1e-5, atol=1e-6)


def test_branches_and_state(tmp_path):
    count = meta.array(np.zeros((), "float32"))

    @meta.trace
    def step(x):
        count.update(count + 1.0)
        return meta.cond(x.sum() > 0, lambda: meta.exp(x), lambda: x - 1.0)

    x = np.array([1, 2], "float32")
    model = to_onnx(step, x, path=tmp_path / "step.onnx")
    assert [o.name for o in model.graph.output] == ["output", "new_count"]
    for value, expected in ((x, np.exp(x)), (-x, -x - 1)):
        result, counted = run(model, value, np.array(4, "float32"))
        np.testing.assert_allclose(result, expected, rtol=1e-6)
        assert counted == 5
    assert onnx.load(tmp_path / "step.onnx") == model


def test_the_way_back():
    x = np.random.RandomState(0).randn(2, 3, 8, 8).astype("float32")
    model = Residual().infer_mode()
    again = from_onnx(to_onnx(model, x))
    result = again(meta.array(x))
    np.testing.assert_allclose(np.asarray(result[0] if isinstance(result, tuple) else result),
                               model(meta.array(x)).numpy(), rtol=1e-5, atol=1e-6)  # fmt: skip


def check_loop(function, *inputs, kind, **options):
    exported = to_onnx(function, *inputs, **options)
    assert kind in kinds(exported)
    expected = function(*map(meta.array, inputs))
    for ours, theirs in zip(expected, run(exported, *inputs), strict=True):
        np.testing.assert_allclose(theirs, ours.numpy(), rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(expected, from_onnx(exported)(*inputs), strict=True):
        np.testing.assert_allclose(theirs.numpy(), ours.numpy(), rtol=1e-5, atol=1e-6)
    return exported


@pytest.mark.parametrize("reverse", [False, True])
def test_scans(reverse):
    @meta.trace
    def recurrent(xs, w):
        def step(h, x):
            h = meta.tanh(meta.matmul(h, w) + x)
            return h, h * 2.0

        return meta.scan(step, meta.zeros((3,)), xs, reverse=reverse)

    rng = np.random.RandomState(0)
    xs, w = rng.randn(5, 3).astype("float32"), rng.randn(3, 3).astype("float32")
    exported = check_loop(recurrent, xs, w, kind="Scan", dynamic={"xs": {0: "steps"}})
    ours, theirs = recurrent(meta.array(xs[:2]), meta.array(w)), run(exported, xs[:2], w)
    np.testing.assert_allclose(theirs[1], ours[1].numpy(), rtol=1e-5)


def test_loops_of_known_and_unknown_length():
    @meta.trace
    def doubled(x):
        return meta.while_loop(
            lambda s: s[0].sum() < 100.0, lambda s: (s[0] * 2.0, s[1] + 1), (x, meta.zeros((), "int64"))
        )

    @meta.trace
    def powers(x):
        return meta.scan(lambda c, _: (c * x, c), meta.ones((2,)), None, length=4)

    check_loop(doubled, np.ones(3, "float32"), kind="Loop")
    check_loop(powers, np.array([2, 3], "float32"), kind="Loop")


def test_gradients_of_a_network():
    rng = np.random.RandomState(0)
    x, target = rng.randn(4, 3, 8, 8).astype("float32"), np.array([0, 4, 2, 1])
    w, v = rng.randn(6, 3, 3, 3).astype("float32"), rng.randn(5, 6).astype("float32")

    @meta.trace
    def gradients(x, target, w, v):
        w, v = w.detach(), v.detach()
        w.requires_grad = v.requires_grad = True
        y = meta.gelu(meta.conv2d(x, w, 2, 1)).mean((2, 3))
        loss = meta.cross_entropy(meta.dense(y, v), target)
        return (loss, *meta.autograd.grad(loss, [w, v]))

    arrays = (x, target, w, v)
    exported = to_onnx(gradients, *arrays)
    for ours, theirs in zip(gradients(*map(meta.array, arrays)), run(exported, *arrays), strict=True):
        np.testing.assert_allclose(theirs, ours.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_refusals():
    x = meta.ones((3, 3))
    with pytest.raises(UnsupportedError, match=r"2 operators have no expression in ONNX's opset 23: qr \(1\), svd"):
        to_onnx(meta.trace(lambda x: (meta.linalg.svd(x), meta.linalg.qr(x))), x)
    with pytest.raises(UnsupportedError, match=r"(?s)take \(1\).* take with x=Tensor.*mode='wrap' \(at .*test_export"):
        to_onnx(meta.trace(lambda x: meta.take(x, meta.array([5]), mode="wrap")), x)
    with pytest.raises(NotSupportedError, match=r"\[to_onnx\] the program takes or returns complex64; expected real"):
        to_onnx(meta.trace(lambda x: meta.fft.fft(x)), x)
    with pytest.raises(ArgumentError, match=r"\[to_onnx\] opset is 12; expected 18 to 23"):
        to_onnx(meta.trace(lambda x: x), x, opset=12)
    with pytest.raises(ArgumentError, match=r"got the class Residual; expected a Model, .*pass an instance"):
        to_onnx(Residual, x)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_searches(dtype, right):
    """Of a vector and of rows, with values beyond both ends, equal ones and NaN, which is larger than every number."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(-3, 4, (2, 6)).astype(dtype), -1)
    values = rng.integers(-5, 6, (2, 9)).astype(dtype)
    if dtype == "float32":
        rows[0, -2:] = values[0, 3] = values[1, 0] = np.nan
    program = meta.trace(
        lambda row, rows, values: (
            meta.binary_search(row, values, right=right), meta.binary_search(rows, values, right=right)
        )
    )  # fmt: skip
    inputs = rows[0], rows, values
    for ours, theirs in zip(program(*map(meta.array, inputs)), run(to_onnx(program, *inputs), *inputs), strict=True):
        np.testing.assert_array_equal(theirs, ours.numpy())
