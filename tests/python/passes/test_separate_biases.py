"""Biases of products on the CPU, added by the elementwise operators that read the products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.ir.expr import Call
from meta.ir.type import tensor_type
from meta.ir.visitor import walk
from meta.passes import separate_biases
from tests.python.backend.tvm.processors import choose_for
from tests.python.vm.programs import program

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def processor_of_products_by_a_library(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """One on which a library computes products."""
    choose_for("avx512f", monkeypatch, request)


X, W, B = (8, 16, 48), (80, 48), (80,)
Y = (8, 16, 80)


def calls(body: Callable[..., list[Any]], dtype: str = "float32", **shapes: tuple[int, ...]) -> list[tuple[str, bool]]:
    """The operators of a program after the pass, and whether each is a product with a bias."""
    types = {name: tensor_type(shape, dtype) for name, shape in ({"x": X, "w": W, "b": B} | shapes).items()}
    after = separate_biases(program(types, body))
    calls = [b.value for b in walk(after.main) if isinstance(b.value, Call)]
    return [(c.op_name, c.op_name == "dense" and c.args[2] is not None) for c in calls]


def test_each_reader_adds_the_bias() -> None:
    def body(ops: Any, x: Any, w: Any, b: Any, dy: Any) -> list[Any]:
        y = ops.dense(x, w, b)
        return [ops.gelu(y), ops.gelu_dx(y, dy)]

    assert calls(body, dy=Y) == [
        ("dense", False), ("add", False), ("gelu", False), ("add", False), ("gelu_dx", False)
    ]  # fmt: skip


def test_products_of_tvm_keep_their_bias(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    choose_for("sse4a", monkeypatch, request)
    assert calls(lambda ops, x, w, b: [ops.relu(ops.dense(x, w, b))]) == [("dense", True), ("relu", False)]


@pytest.mark.parametrize(
    "body",
    [
        lambda ops, x, w, b: [ops.dense(x, w, b)],
        lambda ops, x, w, b: [y := ops.dense(x, w, b), ops.relu(y)],
        lambda ops, x, w, b: [ops.softmax(ops.dense(x, w, b))],
        lambda ops, x, w, b: [ops.relu(y := ops.dense(x, w, b)), ops.tanh(y), ops.exp(y)],
        lambda ops, x, w, b: [ops.relu(ops.dense(x, w, ops.negative(b)))],
        lambda ops, x, w, b: [ops.relu(ops.reshape(ops.dense(x, w, b), (128, 80)))],
    ],
    ids=["a result", "a result and its relu", "a softmax", "three readers", "a computed bias", "a view"],
)
def test_the_library_adds_the_bias_of_others(body: Callable[..., list[Any]]) -> None:
    assert ("dense", True) in calls(body)


@pytest.mark.parametrize(("dtype", "kept"), [("float64", False), ("bfloat16", True)])
def test_halves_are_rounded_once(dtype: str, kept: bool) -> None:
    assert (("dense", True) in calls(lambda ops, x, w, b: [ops.relu(ops.dense(x, w, b))], dtype)) == kept


def test_small_products_which_tvm_computes_keep_their_biases() -> None:
    assert ("dense", True) in calls(lambda ops, x, w, b: [ops.relu(ops.dense(x, w, b))], x=(2, 3), w=(4, 3), b=(4,))


def test_a_program_fuses_the_bias_with_each_reader_and_agrees_with_eager_calls() -> None:
    rng = np.random.default_rng(0)
    x, w, b, dy = (meta.array(rng.standard_normal(shape).astype(np.float32)) for shape in (X, W, B, Y))

    def step(x: Any, w: Any, b: Any, dy: Any) -> Any:
        y = meta.dense(x, w, b)
        return meta.gelu(y), meta.gelu_dx(y, dy), meta.relu(meta.dense(x, w, b) + dy)

    compiled = meta.vm.compile(meta.trace(step))
    for ours, expected in zip(compiled(x, w, b, dy), step(x, w, b, dy), strict=True):
        np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)

    def layer(x: Any, w: Any, b: Any, dy: Any) -> Any:
        y = meta.dense(x, w, b)
        return meta.gelu(y), meta.gelu_dx(y, dy)

    compiled = meta.vm.compile(meta.trace(layer))
    compiled(x, w, b, dy)
    with meta.profiler.profile() as profile:
        compiled(x, w, b, dy)
    kernels = [e.operators for e in profile.events if e.kind == "kernel"]
    assert sorted(kernels) == [("torch.dense",), ("tvm.add", "tvm.gelu"), ("tvm.add", "tvm.gelu_dx")]
