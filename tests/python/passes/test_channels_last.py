"""channels_last: which programs are converted, how their operators change, and that results stay."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

import meta
from meta import passes
from meta._generated import limits
from meta.dim import sym
from meta.interpreter.run import run
from meta.ir.builder import Builder, Module
from meta.ir.expr import Constant
from meta.ir.type import tensor_type
from meta.op.dispatch import implementations
from meta.op.registry import get
from meta.passes import channels_last
from tests.python.passes.programs import check_same_results, lines, program
from tests.python.recorded import array, assert_equal, check_ir

implementation = sys.modules["meta.passes.channels_last"]  # the package exports the pass of the same name
X, W, V = (2, 3, 6, 5), (4, 3, 3, 3), (4, 4, 1, 1)


@pytest.fixture(autouse=True)
def _prefers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every convolution prefers channels last, and transposes cost only their bytes."""

    def accepting(info, *, in_program):
        first = implementations(info.op)[0]
        return replace(first, options={"prefers_channels_last": lambda call: call.bind()["channels_last"]})

    monkeypatch.setattr(implementation, "first_accepting", accepting)
    monkeypatch.setattr(limits, "TRANSPOSE_CALL_BYTES", 0)


def converted(function, *types) -> Module:
    """The program after the pass and the simplifications behind it; its text and results are checked."""
    before = program(function, *types)
    return check_same_results(before, passes.dce(passes.simplify(channels_last(before))), rtol=1e-4)


def test_two_convolutions() -> None:
    def function(x, w, v):
        return meta.conv2d(meta.relu(meta.conv2d(x, w, padding=1)), v, stride=2)

    assert lines(converted(function, X, W, V))[-8:] == [
        "%0 = transpose(%x, axes=(0, 2, 3, 1))",
        "%1 = transpose(%w, axes=(0, 2, 3, 1))",
        "%2 = conv2d(%0, %1, padding=(1,), channels_last=True)",
        "%3 = relu(%2)",
        "%4 = reshape(%v, shape=(4, 1, 1, 4))",
        "%5 = conv2d(%3, %4, stride=(2,), channels_last=True)",
        "%6 = transpose(%5, axes=(0, 3, 1, 2))",
        "(%6,)",
    ]


def block(x, w, v, b, mean, var, scale, shift):
    """A residual block with everything that follows its operands."""
    h = meta.bias_add(meta.conv2d(x, w, padding=1), b)
    h = meta.relu(meta.batch_norm_infer(h, mean, var, scale, shift))
    y = meta.conv2d(h, v) + b.reshape((4, 1, 1)) + h * 2.0
    z = meta.concatenate([y, meta.where(y > 0.0, y, 0.0)], 1)
    return z.sum((2, 3)), z.mean((-1, -2), True), z.max(), z.sum((0, 2, 3)), z.sum(1, True)


def test_operators_between_convolutions_follow() -> None:
    """All but the images at the start, and the last result, stay with channels last."""
    after = converted(block, X, W, V, (4,), (4,), (4,), (4,), (4,))
    text = lines(after)
    assert [line.split(" = ")[1] for line in text if " = transpose" in line] == [
        "transpose(%x, axes=(0, 2, 3, 1))", "transpose(%w, axes=(0, 2, 3, 1))",
    ]  # fmt: skip
    assert any("batch_norm_infer" in line and "axis=3" in line for line in text)
    assert any("bias_add" in line and "axis=3" in line for line in text)
    assert any("concatenate" in line and "axis=3" in line for line in text)


def step(x, w, v, mean, var, scale, shift, target):
    """Loss and gradients of a block in train mode; some sizes are equal, so that shapes do not tell layouts apart."""
    for p in (w, v, scale, shift):
        p.requires_grad = True
    h, *_ = meta.batch_norm_train(meta.conv2d(x, w, padding=1), mean, var, scale, shift)
    y = meta.relu(meta.conv2d(meta.relu(h), v) + h)
    loss = meta.sum((meta.mean(y, (2, 3)) - target) ** 2)
    loss.backward()
    return loss, w.grad, v.grad, scale.grad, shift.grad


def test_training_step() -> None:
    types = ((4, 4, 4, 4), (4, 4, 3, 3), (4, 4, 1, 1), (4,), (4,), (4,), (4,), (4, 4))
    before = passes.standard()(program(step, *types))
    after = check_ir(passes.dce(passes.simplify(channels_last(before))))
    text = "\n".join(lines(after))
    assert text.count("channels_last=True") == text.count("conv2d") == 5
    assert text.count("axis=3") == 2
    assert text.count("batch_norm_train") == 2
    arrays = [array(*shape, seed=i) for i, shape in enumerate(types)]
    arrays[4] = meta.abs(arrays[4])
    expected = run(before, *arrays)
    assert_equal(run(after, *arrays), expected, 1e-4)
    assert_equal(meta.vm.compile(after)(*arrays), expected, 1e-4)


@pytest.mark.parametrize("pool", [
    lambda h: meta.max_pool2d(h, 3, 2, 1),
    lambda h: meta.max_pool2d(h, (2, 3), (), (1, 0, 0, 1), (1, 2), ceil_mode=True),
    lambda h: meta.avg_pool2d(h, 3, 2, 1, ceil_mode=True, count_include_pad=False),
], ids=["max", "max of different sides", "avg"])  # fmt: skip
def test_pools_between_convolutions_need_no_transposes(pool) -> None:
    """Forward and backward; the gradient of w is transposed at the end."""

    def function(x, w, v):
        w.requires_grad = v.requires_grad = True
        y = meta.conv2d(pool(meta.relu(meta.conv2d(x, w, padding=1))), v)
        meta.sum(y * y).backward()
        return w.grad, v.grad

    types = ((2, 3, 8, 9), (4, 3, 3, 3), (5, 4, 1, 1))
    before = program(function, *types)
    after = check_same_results(before, passes.standard()(before), rtol=1e-4)
    text = "\n".join(lines(after))
    assert "max_pool3d(" not in text  # one with the indices
    assert "pool3d" in text
    assert "pool2d" not in text
    assert text.count("= transpose(") == 3  # x, w, and the gradient of w
    arrays = [array(*shape, seed=i) for i, shape in enumerate(types)]
    assert_equal(meta.vm.compile(after)(*arrays), run(before, *arrays), 1e-4)


def test_pools_of_one_axis() -> None:
    def function(x, w):
        w.requires_grad = True
        y = meta.conv1d(meta.max_pool1d(meta.conv1d(x, w), 2), w)
        meta.sum(y * y).backward()
        return y, w.grad

    text = "\n".join(lines(converted(function, (2, 3, 12), (3, 3, 2))))
    assert text.count("max_pool2d_") == 2


def test_indices_that_the_program_returns_follow_its_layout() -> None:
    def function(x, w):
        y, indices = meta.max_pool2d_with_indices(meta.conv2d(x, w, padding=1), 2)
        return meta.conv2d(y, w, padding=1), indices

    assert "max_pool2d_with_indices" in "\n".join(lines(converted(function, (2, 3, 8, 8), (3, 3, 3, 3))))


def test_operators_along_an_axis_follow_by_their_declared_axes() -> None:
    def function(x, w):
        y = meta.layer_norm(meta.softmax(meta.conv2d(x, w, padding=1), 1), None, None, (-1, 2))
        y = meta.flip(meta.cumsum(y, 2), (1,)) * meta.ones((6, 5))
        return meta.conv2d(meta.gather(y, 1, meta.argsort(y, 1)), w, padding=1)

    text = lines(converted(function, (2, 3, 6, 5), (3, 3, 3, 3)))
    assert [line.split(" = ")[1] for line in text if "transpose" in line] == [
        "transpose(%x, axes=(0, 2, 3, 1))", "transpose(%w, axes=(0, 2, 3, 1))", "transpose(%12, axes=(0, 3, 1, 2))",
    ]  # fmt: skip
    axes = {
        "softmax": "axis=3",
        "layer_norm": "axis=(2, 1)",
        "cumsum": "axis=1",
        "flip": "axis=(3,)",
        "gather": "axis=3",
    }
    for name, axis in axes.items():
        assert any(f" = {name}(" in line and axis in line for line in text), text


def test_other_operators_take_tensors_as_before() -> None:
    def function(x, w):
        y = meta.conv2d(x, w, padding=1)
        z = meta.conv2d(y, w, padding=1)
        return meta.tril(z), z.reshape((2, -1)), z

    text = lines(converted(function, (2, 3, 6, 5), (3, 3, 3, 3)))
    assert sum("transpose" in line for line in text) == 3  # x, w, and z for all three results


def test_branches_take_tensors_as_before() -> None:
    builder = Builder()
    with builder.function("main", [("x", tensor_type((2, 3, 6, 5))), ("w", tensor_type((3, 3, 3, 3)))]) as scope:

        def call(name: str, *args):
            return builder.call(get(name), get(name).schema.bind(name, args, {}))

        x, w = scope.params
        z = call("conv2d", call("conv2d", x, w), w)
        positive = call("greater", call("sum", z), 0.0)
        scope.ret(builder.if_(positive, lambda: call("flip", z, 1), lambda: call("relu", z)))
    before = Module({"main": scope.function})
    after = check_same_results(before, channels_last(before))
    assert after is not before


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int) -> None:
    conv = {1: meta.conv1d, 3: meta.conv3d}[rank]

    def function(x, w):
        return conv(meta.relu(conv(x, w, padding=1)), w, padding=1)

    after = converted(function, (2, 3, *(4,) * rank), (3, 3, *(3,) * rank))
    assert sum("channels_last=True" in line for line in lines(after)) == 2


def test_a_program_that_does_not_gain_stays() -> None:
    """One convolution between other operators saves what the transposes cost; none saves anything."""
    one = program(lambda x, w: meta.softmax(meta.conv2d(x, w), 1), X, W)
    assert channels_last(one) is one
    none = program(meta.relu, X)
    assert channels_last(none) is none


def test_calls_of_transposes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSPOSE_CALL_BYTES", 1 << 16)
    two = program(lambda x, w, v: meta.conv2d(meta.conv2d(x, w), v), X, W, V)
    assert channels_last(two) is two


def test_symbolic_sizes_stay() -> None:
    two = program(lambda x, w, v: meta.conv2d(meta.conv2d(x, w), v), tensor_type((sym("n"), 3, 6, 5)), W, V)
    assert channels_last(two) is two


def test_constants_are_transposed_at_once() -> None:
    conv2d, builder, w = get("conv2d"), Builder(), tensor_type((3, 3, 3, 3))
    kernel = Constant(np.arange(81, dtype="float32").reshape(w.shape), w)
    with builder.function("main", [("x", tensor_type((2, 3, 8, 8)))]) as scope:
        y = builder.call(conv2d, conv2d.schema.bind("conv2d", (scope.params[0], kernel), {}))
        scope.ret(builder.call(conv2d, conv2d.schema.bind("conv2d", (y, kernel), {})))
    before = Module({"main": scope.function})
    after = check_same_results(before, channels_last(before))
    assert sum("transpose" in line for line in lines(after)) == 2


def test_transposes_of_the_program_go_away() -> None:
    """Of images that come and go with channels last, only those of the kernel are left."""

    def function(x, w):
        y = meta.relu(meta.conv2d(meta.transpose(x, (0, 3, 1, 2)), w, padding=1))
        return meta.transpose(y, (0, -2, -1, 1)), y.mean((2, 3))

    text = lines(converted(function, (2, 6, 5, 3), W))
    assert [line for line in text if "transpose" in line] == ["%0 = transpose(%w, axes=(0, 2, 3, 1))"]
    assert "%1 = conv2d(%x, %0, padding=(1,), channels_last=True)" in text
