"""expand_losses: which losses are taken apart, and that their values and gradients stay."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import meta
from meta import passes
from meta._generated import limits
from meta.interpreter.run import run
from meta.ir.expr import Call
from meta.ir.type import tensor_type
from meta.ir.visitor import walk
from tests.python.passes.programs import lines, program

implementation = sys.modules["meta.passes.expand_losses"]  # the package exports the pass of the same name
ROWS, CLASSES = 6, 11
X, LABELS = tensor_type((ROWS, CLASSES)), tensor_type((ROWS,), "int64")


@pytest.fixture(autouse=True)
def _small_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "LEAST_ELEMENTS", 1)


def loss_and_gradient(reduction: str, ignore_index: int):
    def function(x, target, dy):
        loss = meta.cross_entropy(x, target, None, reduction, ignore_index)
        return loss, meta.cross_entropy_dx(x, target, dy, None, reduction, ignore_index)

    return function


def expanded(module):
    return passes.standard()(passes.place("cuda")(module))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("labels", "ignore_index"),
    [([3, 0, 10, 5, 5, 1], -100), ([3, -100, 10, -100, 5, 1], -100), ([3, 2, 10, 2, 5, 1], 2), ([-100] * 6, -100)],
    ids=["labels", "ignored", "another ignored", "all ignored"],
)
def test_values_and_gradients(reduction: str, labels: list[int], ignore_index: int) -> None:
    dy = tensor_type((ROWS,) if reduction == "none" else ())
    before = program(loss_and_gradient(reduction, ignore_index), X, LABELS, dy)
    after = expanded(before)
    assert not any("cross_entropy" in line for line in lines(after))
    rng = np.random.default_rng(0)
    x = rng.normal(0, 30, X.shape)
    x[1] += 1e4  # the differences within a row decide
    arrays = [meta.array(x.astype("float32")), meta.array(labels), meta.array(rng.random(dy.shape).astype("float32"))]
    for ours, theirs in zip(run(passes.place("cpu")(after), *arrays), run(before, *arrays), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-6, atol=1e-7)


def of_logarithms(reduction: str, ignore_index: int):
    """As graphs of torch have it, which save the maxima and sums of rows for the gradient."""

    def function(x, target, dy):
        shifted = x - meta.max(x, (1,), True)
        logs = shifted - meta.log(meta.sum(meta.exp(shifted), (1,), True))
        loss = meta.nll_loss(logs, target, None, reduction, ignore_index)
        gradient = meta.nll_loss_dx(dy, target, None, X.shape, reduction, ignore_index)
        return loss, gradient - meta.exp(logs) * meta.sum(gradient, (1,), True)

    return function


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("labels", [[3, 0, 10, 5, 5, 1], [3, -100, 10, -100, 5, 1]], ids=["labels", "ignored"])
def test_losses_of_logarithms(reduction: str, labels: list[int]) -> None:
    dy = tensor_type((ROWS,) if reduction == "none" else ())
    before = program(of_logarithms(reduction, -100), X, LABELS, dy)
    after = expanded(before)
    text = lines(after)
    assert not any("nll_loss" in line for line in text)
    assert sum(" = gather(%x" in line for line in text) == 1  # of the logits: no logarithm is stored
    # Of exponentials, losses and labels; the gradient is summed without it.
    assert sum(" = sum(" in line for line in text) == {"mean": 3, "sum": 2, "none": 1}[reduction]
    rng = np.random.default_rng(0)
    arrays = [rng.normal(0, 3, X.shape).astype("float32"), np.array(labels), rng.random(dy.shape).astype("float32")]
    inputs = list(map(meta.array, arrays))
    for ours, theirs in zip(run(passes.place("cpu")(after), *inputs), run(before, *inputs), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-6, atol=1e-7)


def test_logits_that_were_reshaped_after_a_cast() -> None:
    """Models cast logits of rank 3 and reshape them for the loss: one element of each row is cast."""
    half = tensor_type((2, ROWS // 2, X.shape[1]), "bfloat16")

    def function(x, target, dy):
        wide = meta.reshape(meta.cast(x, "float32"), X.shape)
        return of_logarithms("mean", -100)(wide, target, dy)

    before = program(function, half, LABELS, tensor_type(()))
    after = passes.dce(expanded(before))
    gathers = [line for line in lines(after) if " = gather(" in line]
    (source,) = [line.split("gather(")[1].split(",")[0] for line in gathers]
    assert [line for line in lines(after) if line.startswith(f"{source} = reshape(%x")]
    rng = np.random.default_rng(0)
    inputs = [meta.array(rng.normal(0, 3, half.shape), "bfloat16"), meta.array([3, 0, 10, 5, 5, 1]), meta.array(1.0)]
    for ours, theirs in zip(run(passes.place("cpu")(after), *inputs), run(before, *inputs), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-6, atol=1e-7)


def test_labels_out_of_range_give_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    dy = tensor_type((ROWS,))
    after = passes.place("cpu")(expanded(program(loss_and_gradient("none", -100), X, LABELS, dy)))
    arrays = [meta.ones(X.shape), meta.array([3, CLASSES, -1, -100, 5, 1]), meta.ones((ROWS,))]
    loss, gradient = (out.numpy() for out in run(after, *arrays))
    assert np.isnan(loss).tolist() == [False, True, True, False, False, False]
    assert np.isnan(gradient).all(axis=1).tolist() == np.isnan(gradient).any(axis=1).tolist() == np.isnan(loss).tolist()
    assert not gradient[3].any()


def test_the_loss_and_its_gradient_share_the_reductions_of_rows() -> None:
    after = lines(expanded(program(loss_and_gradient("mean", -100), X, LABELS, tensor_type(()))))
    assert sum(" = max(" in line for line in after) == 1
    assert sum(" = sum(" in line for line in after) == 3  # exponentials, losses and labels


@pytest.mark.parametrize("shape", [(ROWS, 256), (2, 3, 256)], ids=["matrix", "rank 3"])
def test_reads_and_writes_the_rows_of_aligned_products(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits have 16 columns, of which 11 are classes; neither they nor their gradient are copied."""
    monkeypatch.setattr(limits, "ALIGNED_PRODUCTS", 1)
    monkeypatch.setattr(limits, "ALIGNED_TERMS", 1)
    rng = np.random.default_rng(0)
    h, w, b = (meta.array(rng.normal(0, 1, s).astype("float32")) for s in (shape, (CLASSES, 256), (CLASSES,)))
    inputs = h, w, b, meta.array([3, 0, CLASSES - 1, -100, 5, 1]), meta.array(0.5)

    def loss(h, w, b, target):
        return meta.cross_entropy(meta.dense(h, w, b).reshape((-1, CLASSES)), target)

    exact = passes.auto_diff()(program(loss, *(x.type for x in inputs[:-1])))
    rounded = passes.auto_cast("bfloat16")(exact)
    after = expanded(rounded)
    calls = [b.value for b in walk(after.main) if isinstance(b.value, Call)]
    assert sum(call.op_name == "pad" for call in calls) == 2  # w and b
    cut = [call.type.shape for call in calls if call.op_name == "strided_slice"]
    assert sorted(cut) == [(CLASSES,), (CLASSES, 256)]  # their gradients
    results = run(passes.place("cpu")(after), *inputs)
    for module, tolerance in ((rounded, 4e-3), (exact, 2e-2)):
        for ours, theirs in zip(results, run(module, *inputs), strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=tolerance, atol=tolerance)


def test_leaves_other_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(function, *types) -> int:
        return sum("cross_entropy" in line for line in lines(expanded(program(function, *types))))

    assert count(lambda x, t: meta.cross_entropy(x, t, label_smoothing=0.1), X, LABELS) == 1
    assert count(meta.cross_entropy, X, LABELS, tensor_type((CLASSES,))) == 1
    assert count(meta.cross_entropy, tensor_type((2, CLASSES, 3)), tensor_type((2, 3), "int64")) == 1
    module = program(meta.cross_entropy, X, LABELS)
    assert passes.expand_losses(module) is module  # on the CPU
    monkeypatch.setenv("META_CHECK", "1")  # labels are refused by the operator
    assert count(meta.cross_entropy, X, LABELS) == 1
    monkeypatch.delenv("META_CHECK")
    monkeypatch.setattr(implementation, "LEAST_ELEMENTS", ROWS * CLASSES + 1)
    assert count(meta.cross_entropy, X, LABELS) == 1
