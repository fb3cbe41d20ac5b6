"""expand_norms: which batch norms are taken apart, how they fuse with their neighbours, and that results stay."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import meta
from meta import passes
from meta.interpreter.run import run
from meta.ir.builder import Module
from meta.ir.type import TensorType, tensor_type
from meta.passes import expand_norms
from tests.python.backend.tvm.test_cuda_programs import plan
from tests.python.passes.programs import inputs, lines, program
from tests.python.recorded import check_ir

implementation = sys.modules["meta.passes.expand_norms"]  # the package exports the pass of the same name
ROWS, C = (3, 4, 5), (6,)


@pytest.fixture(autouse=True)
def _small_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "_LEAST_ELEMENTS", 1)


def step(x, z, mean, var, w, b):
    """The end of a residual block in train mode: results, new statistics and gradients."""
    for p in (x, z, w, b):
        p.requires_grad = True
    y, new_mean, new_var, *_ = meta.batch_norm_train(x, mean, var, w, b, momentum=0.3, eps=1e-3, axis=-1)
    u = meta.relu(y + z)
    loss = meta.sum(meta.square(meta.cast(u, "float32")))
    loss.backward()
    return u, new_mean, new_var, x.grad, z.grad, w.grad, b.grad


def types(dtype: str) -> list[TensorType]:
    x = tensor_type((*ROWS, *C), dtype)
    return [x, x, *(tensor_type(C) for _ in range(4))]


def expanded(module: Module) -> Module:
    return passes.standard()(passes.place("cuda")(module))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2), ("float64", 1e-12)])
def test_values_and_gradients(dtype: str, tolerance: float) -> None:
    kinds = types(dtype)
    if dtype == "float64":
        kinds = [k.with_dtype(dtype) for k in kinds]
    before = program(step, *kinds)
    after = check_ir(passes.place("cpu")(expanded(before)))
    text = lines(after)
    assert not any("batch_norm_train" in line for line in text)
    arrays = inputs(before)
    arrays[0] = arrays[0] + 3.0  # a mean far from 0
    arrays[3] = meta.abs(arrays[3])
    with meta.with_dialect("reference"):
        for ours, theirs in zip(run(after, *arrays), run(before, *arrays), strict=True):
            assert ours.type == theirs.type
            a, b = ours.cast("float64").numpy(), theirs.cast("float64").numpy()
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, abs(b).max()))


def test_without_weight_and_bias() -> None:
    def function(x, mean, var, dy):
        y, new_mean, new_var, m, s = meta.batch_norm_train(x, mean, var, axis=3)
        return y, new_mean, new_var, *meta.batch_norm_train_dxwb(dy, x, None, m, s, axis=3)

    x, c = tensor_type((*ROWS, *C)), tensor_type(C)
    before = program(function, x, c, c, x)
    after = passes.place("cpu")(expanded(before))
    assert not any("batch_norm_train" in line for line in lines(after))
    arrays = inputs(before)
    for ours, theirs in zip(run(after, *arrays), run(before, *arrays), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-5)


def test_channels_elsewhere_and_cpus_stay() -> None:
    x, c = tensor_type((*ROWS, *C)), tensor_type((5,))
    second = passes.place("cuda")(program(lambda x, m, v: meta.batch_norm_train(x, m, v, axis=2)[0], x, c, c))
    assert expand_norms(second) is second
    on_cpu = program(step, *types("float32"))
    assert expand_norms(on_cpu) is on_cpu


def test_small_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "_LEAST_ELEMENTS", 1 << 20)
    small = passes.place("cuda")(program(step, *types("float32")))
    assert expand_norms(small) is small


def test_what_follows_the_sums_is_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward: statistics, then normalisation, sum with the shortcut and relu. Backward: the gradient of relu, two
    sums, then dx. No kernel in between writes a tensor as large as the images."""
    after = expanded(program(step, *types("bfloat16")))
    kernels = plan(passes.place("cpu")(after), monkeypatch).kernels
    groups = [{op.removeprefix("tvm.") for op in ops} for ops in kernels.values()]
    (forward,) = [ops for ops in groups if "relu" in ops]
    assert forward - {"relu_dx"} == {"cast", "subtract", "multiply", "add", "relu"}
    (dx,) = [ops for ops in groups if {"subtract", "add", "cast"} <= ops and ops is not forward]
    assert dx == {"cast", "subtract", "multiply", "add"}
    assert not [ops for ops in groups if ops & {"batch_norm_stats", "batch_norm_sums"} and len(ops) > 1]
