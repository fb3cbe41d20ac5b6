"""The virtual machine agrees with the interpreter on programs of every form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.dim import sym
from meta.errors import ArgumentError, NotSupportedError
from meta.interpreter.run import run
from meta.ir.builder import Builder, Module
from meta.ir.expr import Constant, FunctionExpr, GlobalVar
from meta.ir.type import FunctionType, tensor_type

from .programs import Ops, assert_same, program, randoms

FUSE = pytest.mark.parametrize("fuse", [True, False])


def check(module: Module, *inputs: Any, fuse: bool = True, **tolerance: float) -> Any:
    """Compile and run a program, compare it with the interpreter, and return the result."""
    expected = run(module, *inputs)
    actual = meta.vm.compile(module, fuse=fuse)(*inputs)
    assert_same(actual, expected, **tolerance)
    return actual


@FUSE
def test_attention(fuse: bool) -> None:
    def body(ops, x, wq, wk, wv):
        def heads(w):
            return ops.transpose(ops.reshape(ops.matmul(x, w), (2, 5, 2, 4)), (0, 2, 1, 3))

        q, k, v = map(heads, (wq, wk, wv))
        weights = ops.softmax(ops.multiply(ops.matmul(q, k, transpose_b=True), 0.5), axis=-1)
        return ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (2, 5, 8))

    shapes = {"x": (2, 5, 8), "wq": (8, 8), "wk": (8, 8), "wv": (8, 8)}
    check(program(shapes, body), *randoms(*shapes.values()), fuse=fuse, rtol=1e-5, atol=1e-6)


@FUSE
def test_convolutional_network(fuse: bool) -> None:
    def body(ops, x, w, b, dense):
        h = ops.relu(ops.add(ops.conv2d(x, w, padding=1), ops.reshape(b, (1, 4, 1, 1))))
        h = ops.max_pool2d(h, 2)
        return ops.matmul(ops.reshape(h, (2, 64)), dense)

    shapes = {"x": (2, 3, 8, 8), "w": (4, 3, 3, 3), "b": (4,), "dense": (64, 5)}
    check(program(shapes, body), *randoms(*shapes.values()), fuse=fuse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dialect", ["tvm", "torch", "reference"])
def test_each_dialect(dialect: str) -> None:
    module = program({"x": (64, 64), "w": (64, 64)}, lambda ops, x, w: ops.matmul(x, w))
    x, w = randoms((64, 64), (64, 64))
    with meta.with_dialect(dialect):
        executor = meta.vm.compile(module)
    assert_same(executor(x, w), run(module, x, w), rtol=1e-4, atol=1e-4)
    assert f"{dialect}.matmul" in executor.explain(x, w)


@FUSE
def test_several_outputs_and_lists(fuse: bool) -> None:
    def body(ops, x, y):
        both = ops.concatenate([x, y], axis=1)
        parts = ops.split(both, 3, axis=1)
        first, last = (ops.builder.get_item(parts, i) for i in (0, 2))
        return [ops.add(first, last), parts, ops.builder.tuple([first, x])]

    module = program({"x": (2, 4), "y": (2, 2)}, body)
    result = check(module, *randoms((2, 4), (2, 2)), fuse=fuse)
    assert len(result) == 3
    assert len(result[1]) == 3
    assert len(result[2]) == 2


def test_views_share_memory_with_inputs_as_they_do_eagerly() -> None:
    module = program({"x": (2, 6)}, lambda ops, x: [ops.reshape(x, (3, 4)), ops.stop_gradient(x)])
    (x,) = randoms((2, 6))
    reshaped, same = check(module, x)
    assert reshaped.numpy().ctypes.data == x.numpy().ctypes.data == same.numpy().ctypes.data


@FUSE
def test_scalars_are_constants_of_their_kernels(fuse: bool) -> None:
    def body(ops, x, n):
        return [ops.add(x, 1.5), ops.subtract(2, x), ops.multiply(n, 3), ops.add(n, 0.5), ops.power(x, 2)]

    n = meta.array(np.arange(4, dtype="int64"))
    module = program({"x": (4,), "n": n.type}, body)
    check(module, *randoms((4,)), n, fuse=fuse)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_float_types(dtype: str) -> None:
    def body(ops, x, w):
        return ops.softmax(ops.tanh(ops.matmul(x, w)))

    inputs = randoms((3, 4), (4, 5), dtype=dtype)
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-12}[dtype]
    check(program({"x": inputs[0].type, "w": inputs[1].type}, body), *inputs, rtol=tolerance, atol=tolerance)


@FUSE
def test_empty_tensors(fuse: bool) -> None:
    def body(ops, x):
        y = ops.exp(ops.add(x, 1.0))
        return [y, ops.sum(y, axis=0), ops.reshape(y, (3, 0))]

    check(program({"x": (0, 3)}, body), *randoms((0, 3)), fuse=fuse)


def test_constants_are_stored_apart_and_results_are_copies() -> None:
    captured = meta.array(np.arange(3, dtype="float32"))

    def body(ops, x):
        constant = Constant(captured, captured.type)
        return [ops.add(x, constant), constant]

    module = program({"x": (3,)}, body)
    (x,) = randoms((3,))
    _, constant = check(module, x)
    constant[...] = 7.0
    np.testing.assert_array_equal(captured.numpy(), [0.0, 1.0, 2.0])


@FUSE
def test_conditional(fuse: bool) -> None:
    def body(ops, x, y):
        positive = ops.greater(ops.sum(x), 0.0)

        def then():
            return ops.tanh(ops.multiply(x, y))

        return ops.add(ops.builder.if_(positive, then, lambda: ops.negative(y)), x)

    module = program({"x": (3,), "y": (3,)}, body)
    x, y = (meta.array(np.array(v, "float32")) for v in ([1, 2, 3], [4, 5, 6]))
    check(module, x, y, fuse=fuse)
    check(module, -x, y, fuse=fuse)


def test_conditional_that_returns_a_tuple_and_captures_a_constant() -> None:
    captured = meta.array(np.full((3,), 2.0, "float32"))

    def body(ops, x):
        def then():
            return ops.builder.tuple([ops.multiply(x, Constant(captured, captured.type)), x])

        def orelse():
            return ops.builder.tuple([x, ops.exp(x)])

        branch = ops.builder.if_(ops.less(ops.sum(x), 0.0), then, orelse)
        return ops.add(ops.builder.get_item(branch, 0), ops.builder.get_item(branch, 1))

    module = program({"x": (3,)}, body)
    for sign in (1.0, -1.0):
        check(module, meta.array(np.full((3,), sign, "float32")))


def closure_program(returned: bool) -> Module:
    """main(x) calls a closure that captures x, twice; or returns it."""
    builder = Builder()
    ops = Ops(builder)
    kind = tensor_type((3,))
    with builder.function("main", [("x", kind)]) as main:
        (x,) = main.params
        scaled = ops.multiply(x, 2.0)
        with builder.function("add_scaled", [("y", kind)]) as inner:
            inner.ret(ops.add(inner.params[0], scaled))
        closure = builder.emit(inner.function)
        once = builder.call_function(closure, [x])
        main.ret(closure if returned else builder.call_function(closure, [once]))
    return Module({"main": main.function})


def test_closures_are_called() -> None:
    check(closure_program(returned=False), *randoms((3,)))


def test_closures_are_not_values() -> None:
    with pytest.raises(
        NotSupportedError, match=r"\[vm\] 'main' uses the function '.*' as a value; expected calls of functions only"
    ):
        meta.vm.compile(closure_program(returned=True))(*randoms((3,)))


def test_recursion() -> None:
    """countdown(x, n) = n > 0 ? countdown(x * 2, n - 1) : x"""
    builder = Builder()
    ops = Ops(builder)
    x_type, n_type = tensor_type((2,)), tensor_type((), "int64")
    itself = GlobalVar("countdown", FunctionType((x_type, n_type), x_type))
    with builder.function("countdown", [("x", x_type), ("n", n_type)]) as scope:
        x, n = scope.params

        def again():
            return builder.call_function(itself, [ops.multiply(x, 2.0), ops.subtract(n, 1)])

        scope.ret(builder.if_(ops.greater(n, 0), again, lambda: x))
    with builder.function("main", [("x", x_type), ("n", n_type)]) as main:
        main.ret(builder.call_function(itself, main.params))
    functions: dict[str, FunctionExpr] = {"main": main.function, "countdown": scope.function}
    result = check(Module(functions), meta.array(np.array([1.0, 3.0], "float32")), meta.array(np.array(5, "int64")))
    np.testing.assert_array_equal(result.numpy(), [32.0, 96.0])


def batched(n: Any) -> Module:
    """A program on n rows."""

    def body(ops, x, w):
        h = ops.tanh(ops.matmul(x, w))
        both = ops.concatenate([h, h], axis=0)
        return [ops.softmax(h), ops.sum(h, axis=0), ops.reshape(both, (n, 2, 5))]

    return program({"x": tensor_type((n, 4)), "w": (4, 5)}, body)


@FUSE
def test_symbolic_sizes(fuse: bool) -> None:
    executor = meta.vm.compile(batched(sym("n")), fuse=fuse)
    for rows in (1, 3, 8):
        x, w = randoms((rows, 4), (4, 5))
        assert_same(executor(x, w), run(batched(rows), x, w), rtol=1e-5)


def test_symbolic_sizes_must_agree() -> None:
    n = sym("n")
    types = {"x": tensor_type((n, 2)), "y": tensor_type((n, 2))}
    executor = meta.vm.compile(program(types, lambda ops, x, y: ops.add(x, y)))
    with pytest.raises(ArgumentError, match=r"\[vm\] input 'y' is Tensor\[\(4, 2\).* with n = 3"):
        executor(*randoms((3, 2), (4, 2)))


def test_no_result_but_updates() -> None:
    module = program({"w": (3,)}, lambda ops, w: [ops.add(w, 1.0)], {0: 0})
    w = meta.array(np.zeros(3, "float32"))
    (same,) = meta.vm.compile(module)(w)
    assert same is w
    np.testing.assert_array_equal(w.numpy(), [1.0, 1.0, 1.0])


@pytest.mark.parametrize("shape", [(70, 65), (64, 65), (40, 40), (3, 50)])
def test_tails_of_64_bit_loops(shape: tuple[int, int]) -> None:
    """TVM narrows one side of the bounds check of a tail: such loops have none."""
    x = np.arange(np.prod(shape)).reshape(shape) * 37 % 101
    sort = meta.trace(lambda x: meta.sort(x, 0))
    transpose = meta.trace(lambda x: meta.transpose(x) + 1)
    keyed = meta.trace(lambda key: meta.randint(key, shape, -(2**61), 2**62))
    key = meta.array([1, 2], dtype="int64")
    with meta.with_dialect("tvm"):
        np.testing.assert_array_equal(meta.vm.compile(sort)(meta.array(x)).numpy(), np.sort(x, 0))
        np.testing.assert_array_equal(meta.vm.compile(transpose)(meta.array(x)).numpy(), x.T + 1)
        numbers = meta.vm.compile(keyed)(key).numpy()
    np.testing.assert_array_equal(numbers, meta.randint(key, shape, -(2**61), 2**62).numpy())


def test_one_class_of_one_example_is_compared_as_int64() -> None:
    run = meta.trace(lambda k: meta.logical_not(meta.one_hot(meta.reshape(k, (1,)), 1, "bool")))
    assert meta.vm.compile(run)(meta.array(0)).tolist() == [[False]]
    assert meta.vm.compile(run)(meta.array(1)).tolist() == [[True]]
