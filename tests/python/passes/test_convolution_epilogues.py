"""fold_batch_norm and fuse_epilogues: batch norm, bias, sum and relu as parts of the convolution before them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import meta
from meta import passes
from meta.backend.memory import constants
from meta.interpreter.run import run
from meta.ir.builder import Builder, Module
from meta.ir.expr import Constant
from meta.ir.type import tensor_type
from meta.op.registry import get
from meta.passes import fold_batch_norm, fuse_epilogues
from tests.python.passes.programs import check_same_results, inputs, lines
from tests.python.recorded import assert_equal, check_ir

C = 4


class Network:
    """Builds a program whose weights are constants."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.random = np.random.default_rng(0)

    def constant(self, *shape: int, positive: bool = False) -> Constant:
        value = self.random.standard_normal(shape)
        value = np.abs(value) + 0.5 if positive else value
        return Constant(value.astype("float32"), tensor_type(shape))

    def call(self, name: str, *args: Any, **named: Any) -> Any:
        return self.builder.call(get(name), get(name).schema.bind(name, args, named))

    def norm(self, x: Any, axis: int = 1) -> Any:
        statistics = self.constant(C), self.constant(C, positive=True)
        return self.call("batch_norm_infer", x, *statistics, self.constant(C), self.constant(C), axis=axis)

    def conv(self, x: Any, channels_last: bool = False, groups: int = 1) -> Any:
        within = C // groups
        w = self.constant(*((C, 3, 3, within) if channels_last else (C, within, 3, 3)))
        return self.call("conv2d", x, w, padding=1, groups=groups, channels_last=channels_last)

    def module(self, shape: tuple[int, ...], body: Any) -> Module:
        with self.builder.function("main", [("x", tensor_type(shape))]) as scope:
            scope.ret(body(self, scope.params[0]))
        return Module({"main": scope.function})


def ops(module: Module) -> list[str]:
    return [line.split(" = ")[1].split("(")[0] for line in lines(module) if line.startswith("%") and " = " in line]


@pytest.mark.parametrize(("channels_last", "groups"), [(False, 1), (True, 1), (False, 2)])
def test_batch_norm_folds_into_the_convolution_before_it(channels_last: bool, groups: int) -> None:
    shape, axis = ((2, 5, 6, C), 3) if channels_last else ((2, C, 5, 6), 1)
    before = Network().module(shape, lambda n, x: n.norm(n.conv(x, channels_last, groups), axis))
    after = passes.dce(passes.fold_const(fold_batch_norm(before)))
    assert ops(after) == ["conv2d", "bias_add"]
    check_same_results(before, after, rtol=1e-5)


def test_without_scale_and_shift() -> None:
    def body(n: Network, x: Any) -> Any:
        return n.call("batch_norm_infer", n.conv(x), n.constant(C), n.constant(C, positive=True))

    before = Network().module((2, C, 5, 6), body)
    check_same_results(before, passes.dce(passes.fold_const(fold_batch_norm(before))), rtol=1e-5)


def test_other_batch_norms_stay() -> None:
    """Those whose convolution another operator reads, those of other axes and those of parameters."""

    def read_twice(n: Network, x: Any) -> Any:
        y = n.conv(x)
        return n.call("add", n.norm(y), y)

    for body in (read_twice, lambda n, x: n.norm(n.conv(x), 3), lambda n, x: n.norm(x)):
        module = Network().module((2, C, 5, C), body)
        assert fold_batch_norm(module) is module
    by_parameter = Network().module((C, C, 3, 3), lambda n, w: n.norm(n.call("conv2d", n.constant(1, C, 5, 5), w)))
    assert fold_batch_norm(by_parameter) is by_parameter


def block(n: Network, x: Any) -> Any:
    """A residual block."""
    h = n.call("relu", n.norm(n.conv(x, True), 3))
    return n.call("relu", n.call("add", n.norm(n.conv(h, True), 3), x))


def test_bias_sum_and_relu_fuse() -> None:
    """In ATen, which is named because dispatch has TVM compute convolutions as small as these."""
    pytest.importorskip("torch")
    before = Network().module((2, 5, 6, C), block)
    with meta.with_dialect(["torch", "tvm"]):
        after = check_ir(passes.dce(fuse_epilogues(passes.dce(passes.fold_const(fold_batch_norm(before))))))
    assert ops(after) == ["conv2d_epilogue", "conv2d_epilogue"]
    assert sum("relu=True" in line for line in lines(after)) == 2
    (x,) = inputs(before)
    with meta.with_dialect("reference"):
        expected = run(before, x)
        assert_equal(run(after, x), expected, 1e-5)
    with meta.with_dialect(["torch", "tvm"]):
        executor = meta.vm.compile(before)
        for _ in range(2):  # the second call takes packed kernels
            assert_equal(executor(x), expected, 1e-5)


def test_nan_passes_relu() -> None:
    pytest.importorskip("torch")
    executor = meta.vm.compile(Network().module((2, 5, 6, C), block))
    x = np.zeros((2, 5, 6, C), "float32")
    x[0, 0, 0, 0] = np.nan
    y = executor(meta.array(x))
    assert np.isnan(y.numpy()[0, :3, :3]).all()
    assert not np.isnan(y.numpy()[1]).any()


def test_what_others_read_and_other_layouts_stay() -> None:
    def read_twice(n: Network, x: Any) -> Any:
        y = n.conv(x, True)
        return n.call("multiply", n.call("relu", y), y)

    second = Network().module((2, C, 5, 6), lambda n, x: n.call("relu", n.conv(x)))
    for module in (Network().module((2, 5, 6, C), read_twice), second):
        assert fuse_epilogues(module) is module


def test_by_tvm_alone_nothing_fuses() -> None:
    module = Network().module((2, 5, 6, C), lambda n, x: n.call("relu", n.conv(x, True)))
    with meta.with_dialect("tvm"):
        assert fuse_epilogues(module) is module


class Owner:
    pass


def test_what_is_derived_from_a_constant_lives_as_long_as_its_holders() -> None:
    tensor, buffers = meta.ones((3,))._data, []
    first, second = Owner(), Owner()
    address = tensor.data_ptr()
    assert constants.derive(address, "key", lambda: 1) is None
    constants.hold([tensor], first)
    constants.hold([tensor, tensor], second)
    for _ in range(2):
        assert constants.derive(address, "key", lambda: buffers.append(1) or len(buffers)) == 1
    del first
    assert constants.derive(address, "key", lambda: 5) == 1
    del second
    assert not constants.is_held(address)
    assert constants.derive(address, "key", lambda: 5) is None


@pytest.mark.parametrize(("outs", "groups", "expected"), [(19, 1, "conv2d_packed"), (9, 9, "conv2d_epilogue")])
def test_kernels_of_tiles_are_packed(outs: int, groups: int, expected: str) -> None:
    """TVM's convolutions run with channels last; those with a kernel for each channel keep its layout."""

    def body(n: Network, x: Any) -> Any:
        for ins in (9, outs):
            w, bias = n.constant(outs, ins // groups, 3, 3), n.constant(outs)
            x = n.call("relu", n.call("bias_add", n.call("conv2d", x, w, padding=1, groups=groups), bias))
        return x

    before = Network().module((2, 9, 24, 28), body)
    (x,) = inputs(before)
    with meta.with_dialect(["tvm", "reference"]):
        after = check_ir(passes.standard()(before))
        assert ops(after) == ["transpose", expected, expected, "transpose"]
        result = meta.vm.compile(before)(x)
    with meta.with_dialect("reference"):
        reference: Any = run(before, x)
    scale = float(meta.max(meta.abs(reference)).item())
    assert_equal(result / scale, reference / scale, 1e-5)


def test_small_kernels_are_not_packed() -> None:
    with meta.with_dialect(["tvm", "reference"]):
        module = passes.standard()(Network().module((2, 12, 14, C), lambda n, x: n.conv(x, True)))
    assert ops(module) == ["conv2d"]


@pytest.mark.parametrize(
    ("bias", "transposed", "expected"), [((5,), True, "dense"), ((4, 5), True, "matmul"), ((5,), False, "matmul")]
)
def test_products_on_gpus_take_their_biases(
    monkeypatch: pytest.MonkeyPatch, bias: tuple[int, ...], transposed: bool, expected: str
) -> None:
    monkeypatch.setattr(importlib.import_module("meta.passes.fuse_epilogues"), "_is_by_library", lambda *_: True)
    x, w, b = (tensor_type(shape, "float32", "cuda") for shape in ((4, 5), (5, 5), bias))
    record = meta.tracing.record(lambda x, w, b: b + meta.matmul(x, w, False, transposed), (x, w, b), {})
    main = meta.passes.dce(meta.passes.fuse_epilogues(record.module)).main
    assert main.body.bindings[0].value.op_name == expected
