"""Errors about shapes, types and devices hold code with the actual values, and that code runs.

A row: a line that fails, the piece of its message to look for, and the line with that piece in its place.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.cli import main
from meta.errors import MetaError

SETUP = """
import numpy as np, torch, meta
from meta import nn
from meta.schema import Arg, Schema, Tensor

x = meta.array(np.linspace(-1.0, 1.0, 32).reshape(4, 8), dtype="float32")
w = meta.array(np.linspace(0.0, 1.0, 24).reshape(8, 3), dtype="float32")
cube, image, kernel = meta.ones((2, 3, 4)), meta.ones((3, 8, 8)), meta.ones((4, 3, 3, 3))
flat = nn.Sequential(nn.Linear(192, 5))
"""

ROWS = [
    # products
    ("meta.matmul(x, x)", "transpose_b=True", "meta.matmul(x, x, transpose_b=True)"),
    ("meta.matmul(w, x)", "transpose_a=True (x1.mT) and transpose_b=True (x2.mT)", "meta.matmul(w, x, True, True)"),
    ("meta.matmul(x, w, transpose_a=True)", "transpose_a=False", "meta.matmul(x, w, transpose_a=False)"),
    ("x @ w.T", "x2.mT", "x @ w.T.mT"),
    ("meta.mm(x, x)", "x2.mT", "meta.mm(x, x.mT)"),
    ("meta.bmm(cube, cube)", "x2.mT", "meta.bmm(cube, cube.mT)"),
    ("meta.addmm(meta.ones((4, 4)), x, x)", "x2.mT", "meta.addmm(meta.ones((4, 4)), x, x.mT)"),
    ("meta.dense(x, w)", "w.T", "meta.dense(x, w.T)"),
    # batches and channels
    ("meta.conv2d(image, kernel)", "x[None]", "meta.conv2d(image[None], kernel)"),
    ("meta.conv1d(x, meta.ones((5, 4, 3)))", "x[None]", "meta.conv1d(x[None], meta.ones((5, 4, 3)))"),
    ("meta.conv2d_transpose(image, kernel[:3])", "x[None]", "meta.conv2d_transpose(image[None], kernel[:3])"),
    ("meta.max_pool2d(image, 2)", "x[None]", "meta.max_pool2d(image[None], 2)"),
    ("meta.avg_pool2d(image, 2)", "x[None]", "meta.avg_pool2d(image[None], 2)"),
    ("nn.BatchNorm2d(3)(image)", "x[None]", "nn.BatchNorm2d(3)(image[None])"),
    (
        "meta.conv2d(meta.ones((2, 8, 8, 3)), kernel)",
        "meta.moveaxis(x, -1, 1)",
        "meta.conv2d(meta.moveaxis(meta.ones((2, 8, 8, 3)), -1, 1), kernel)",
    ),
    # layers
    ("nn.Linear(7, 2)(x)", "Linear(8, 2)", "nn.Linear(8, 2)(x)"),
    ("nn.Linear(7, out_features=2, bias=False)(x)", "Linear(8, 2, False)", "nn.Linear(8, 2, False)(x)"),
    ("nn.Conv2d(1, 4, 3)(image[None])", "Conv2d(3, 4, 3)", "nn.Conv2d(3, 4, 3)(image[None])"),
    ("nn.Conv2d(1, 4, 3)(image)", "Conv2d(3, 4, 3)", "nn.Conv2d(3, 4, 3)(image)"),
    ("nn.BatchNorm2d(5)(image[None])", "BatchNorm2d(3)", "nn.BatchNorm2d(3)(image[None])"),
    ("nn.LayerNorm(7)(x)", "LayerNorm(8)", "nn.LayerNorm(8)(x)"),
    ("nn.LSTM(3, 8)(cube)", "LSTM(4, 8)", "nn.LSTM(4, 8)(cube)"),
    (
        "nn.TransformerEncoderLayer(8, 2)(cube)",
        "TransformerEncoderLayer(4, 2)",
        "nn.TransformerEncoderLayer(4, 2)(cube)",
    ),
    (
        "nn.Sequential(nn.Linear(8, 4), nn.Linear(8, 2))(x)",
        "Linear(4, 2)",
        "nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))(x)",
    ),
    ("flat(image[None])", "x.flatten(1)", "flat(image[None].flatten(1))"),
    ("nn.Sequential([nn.Linear(8, 4)])", "*layers", "nn.Sequential(*[nn.Linear(8, 4)])"),
    # keywords of functions of tensors
    ("meta.add(x, other=x)", "write x2=", "meta.add(x, x2=x)"),
    ("x.maximum(other=x)", "write x2=", "x.maximum(x2=x)"),
    ("meta.relu(input=x)", "write x=", "meta.relu(x=x)"),
    ("meta.relu(x, inplace=True)", "leave out inplace=", "meta.relu(x)"),
    ("meta.exp(x, out=x)", "leave out out=", "meta.exp(x)"),
    ("meta.where(x > 0.0, input=x, other=x)", "write x=..., write y=...", "meta.where(x > 0.0, x=x, y=x)"),
    ("meta.dense(x, weight=w.T)", "write w=", "meta.dense(x, w=w.T)"),
    # what a newcomer passes to the wrong place, or in another order
    ("meta.embedding(meta.array([0]), w)", "meta.embedding(weight, indices)", "meta.embedding(w, meta.array([0]))"),
    ("meta.random.bernoulli(0.5, (3,))", "meta.random.bernoulli((3,), 0.5)", "meta.random.bernoulli((3,), 0.5)"),
    ("meta.pad(x, (1, 2))", "pad_width=((0, 0), (1, 2))", "meta.pad(x, pad_width=((0, 0), (1, 2)))"),
    ("meta.trace(flat, image)", "(x)", "meta.trace(flat)(image[None].flatten(1))"),
    ("meta.vm.compile(flat, image)", "meta.vm.compile(model)(x)", "meta.vm.compile(flat)(image[None].flatten(1))"),
    ("meta.vm.compile(torch.nn.Linear(8, 3))", 'torch.compile(module, backend="meta")',
     "torch.compile(torch.nn.Linear(8, 3), backend='meta')"),
    ("meta.define('mine', lambda x: x)", 'Schema("mine", Arg("x", Tensor)', "Schema('mine', Arg('x', Tensor))"),
    ("nn.Conv2d(3, 4, 3, stride=2, padding='same')", "padding=(1, 1)", "nn.Conv2d(3, 4, 3, stride=2, padding=(1, 1))"),
    ("flat.load_state_dict(torch.nn.Sequential(torch.nn.Linear(192, 5)).state_dict())", "load_torch_state_dict(state)",
     "flat.load_torch_state_dict(torch.nn.Sequential(torch.nn.Linear(192, 5)).state_dict())"),
    ("layer = nn.Linear(8, 3); layer.w = np.ones((3, 8))", "model.w = meta.array(value, requires_grad=True)",
     "layer = nn.Linear(8, 3); layer.w = meta.array(np.ones((3, 8)), requires_grad=True)"),
    ("layer = nn.Linear(8, 3); layer.w = torch.ones(3, 8)", "meta.array(value, requires_grad=True)",
     "layer = nn.Linear(8, 3); layer.w = meta.array(torch.ones(3, 8), requires_grad=True)"),
    ("meta.optim.SGD(flat.parameters, lr=0.1)", "model.parameters()", "meta.optim.SGD(flat.parameters(), lr=0.1)"),
    ("meta.optim.SGD(flat[0].w, lr=0.1)", "[x]", "meta.optim.SGD([flat[0].w], lr=0.1)"),
    ("meta.optim.StepLR(meta.optim.SGD(flat, lr=0.1))", "step_size=",
     "meta.optim.StepLR(meta.optim.SGD(flat, lr=0.1), step_size=2)"),
    ("meta.optim.TrainStep(flat, meta.optim.SGD(flat, lr=0.1), meta.mse_loss, max_norm=1.0)", "clip_norm=1.0",
     "meta.optim.TrainStep(flat, meta.optim.SGD(flat, lr=0.1), meta.mse_loss, clip_norm=1.0)"),
    ("meta.cross_entropy(x, meta.ones((4, 8)))", "target.argmax(1)",
     "meta.cross_entropy(x, meta.ones((4, 8)).argmax(1))"),
    ("meta.cross_entropy(x, meta.zeros((4, 1), 'int64'))", "target.squeeze(1)",
     "meta.cross_entropy(x, meta.zeros((4, 1), 'int64').squeeze(1))"),
    ("meta.one_hot(meta.array([0]))", "depth=", "meta.one_hot(meta.array([0]), depth=3)"),
    ("x.cumsum()", "axis=", "x.cumsum(axis=1)"),
    ("nn.MultiHeadAttention(8, 2)(x)", "query[None]", "nn.MultiHeadAttention(8, 2)(x[None])"),
    # shapes and axes
    ("x + meta.ones((4,))", "[:, None]", "x + meta.ones((4,))[:, None]"),
    ("meta.zeros(2, 3)", "shape=(2, 3)", "meta.zeros(shape=(2, 3))"),
    ("meta.reshape(x, 8, 4)", "shape=(8, 4)", "meta.reshape(x, shape=(8, 4))"),
    ("cube.transpose(1, 2)", "x.swap_axis(1, 2)", "cube.swap_axis(1, 2)"),
    ("meta.transpose(x, 0, 1)", "x.swap_axis(0, 1)", "x.swap_axis(0, 1)"),
    ("x.split(3, 1)", "list(range(3, 8, 3))", "x.split(list(range(3, 8, 3)), 1)"),
    ("meta.stack(x, x)", "[x, ...]", "meta.stack([x, x])"),
    # values and dtypes
    ("bool(x)", "x.any()", "bool(x.any())"),
    ("bool(x)", "x.all()", "bool(x.all())"),
    ("float(x)", "float(x.sum())", "float(x.sum())"),
    ("x.item()", "x.sum().item()", "x.sum().item()"),
    ("x.to('float16')", 'dtype="float16"', "x.to(dtype='float16')"),
    ("x.to(np.dtype('float64'))", 'dtype="float64"', "x.to(dtype='float64')"),
    ("nn.Linear(2, 2).to('float64')", 'dtype="float64"', "nn.Linear(2, 2).to(dtype='float64')"),
    ("x.type('float16')", 'x.cast("float16")', "x.cast('float16')"),
    ("meta.array([1], requires_grad=True)", 'dtype="float32"', "meta.array([1], dtype='float32', requires_grad=True)"),
    # attention
    (
        "meta.scaled_dot_product_attention(q=cube, k=cube, v=cube)", "write query=",
        "meta.scaled_dot_product_attention(query=cube, key=cube, value=cube)",
    ),
    ("meta.attention(x, x, x, is_causal=True)", "causal=True", "meta.attention(x, x, x, causal=True)"),
    # random numbers
    ("meta.random.randint(0, 10, (3,))", "meta.random.randint((3,), 0, 10)", "meta.random.randint((3,), 0, 10)"),
    ("meta.random.normal(0.0, 1.0, (3,))", "meta.random.normal((3,), 0.0, 1.0)", "meta.random.normal((3,), 0.0, 1.0)"),
    ("meta.dropout(x, 0.5)", "meta.random.next_key()", "meta.dropout(x, meta.random.next_key(), 0.5)"),
    ("meta.dropout(x)", "meta.random.next_key()", "meta.dropout(x, meta.random.next_key())"),
    # names of operators
    ("meta.define('a-b', ...)", "'a_b'", "pass"),
    ("meta.define('class', ...)", "'op_class'", "pass"),
]  # fmt: skip


def run(code: str) -> None:
    names: dict[str, Any] = {}
    exec(SETUP, names)
    exec(code, names)


@pytest.mark.parametrize(("wrong", "piece", "right"), ROWS, ids=[wrong for wrong, *_ in ROWS])
def test_the_message_holds_code_that_runs(wrong: str, piece: str, right: str) -> None:
    with pytest.raises(MetaError) as caught:
        run(wrong)
    assert piece in str(caught.value)
    assert caught.value.location.startswith(__file__)
    run(right)


def test_calls_of_other_libraries_that_work() -> None:
    x, w = meta.ones((4, 8)), meta.ones((8, 3))
    np.testing.assert_array_equal(meta.einsum("ij,jk->ik", [x, w]).numpy(), (x @ w).numpy())
    assert x.device == "cpu"
    assert x.device != "cuda:0"
    assert x.device != "gpu"
    optimizer = meta.optim.SGD(nn.Linear(2, 2), lr=0.1)
    optimizer.lr = 0.5
    assert optimizer.learning_rate == optimizer.param_groups[0]["lr"] == optimizer.lr == 0.5
    with pytest.raises(AttributeError, match=r"module 'meta.functional' has no attribute 'relu'; write meta\.relu"):
        meta.functional.relu(x)


def test_a_remedy_ties_no_symbolic_sizes() -> None:
    """`same_dim` ties the sizes that it compares; a remedy that is looked up beforehand must not."""
    layer = nn.Linear(8, 3)
    for batch in (3, 5):
        assert meta.vm.compile(layer, dynamic={"x": {0: "n"}})(meta.ones((batch, 8))).shape == (batch, 3)
    np.testing.assert_array_equal((meta.ones((3, 8)) @ meta.ones((8, 8))).numpy(), np.full((3, 8), 8.0))


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["import", "model.onnx", "--size", "batch"], "write --size batch=2"),
        (["import", "model.onnx", "--input", "x"], "write --input x=x.npy"),
        (["explain", "matmul", "(2, 3)"], 'write "(2, 3) float32"'),
        (["explain", "sofmax", "(2, 3)"], "did you mean 'softmax'"),
        (["explain", "softmax", "(2, 3) float32", "dim=1"], "write axis=1"),
        (["op", "new", "my-op"], "write 'my_op'"),
        (["ops", "--mising", "grad"], "did you mean '--missing'"),
    ],
)
def test_the_command_line_says_what_to_write(arguments: list[str], remedy: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "meta", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode in (1, 2)
    assert remedy in run.stderr


def test_explain_takes_arguments_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "softmax", "(2, 3) float32", "axis=0"]) == 0
    assert capsys.readouterr().out.startswith("softmax: ")
