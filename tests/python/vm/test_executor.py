"""meta.vm.compile: results, updates in place, errors."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import meta
from meta._generated import limits
from meta.errors import ArgumentError, IRError
from meta.interpreter.run import run
from meta.ir.builder import Module
from meta.ir.parser import parse

from .programs import assert_same, copies, program, randoms


def mlp() -> Module:
    def body(ops, x, w1, b1, w2, b2):
        hidden = ops.tanh(ops.add(ops.matmul(x, w1), b1))
        return ops.softmax(ops.add(ops.matmul(hidden, w2), b2))

    return program({"x": (3, 8), "w1": (8, 16), "b1": (16,), "w2": (16, 4), "b2": (4,)}, body)


@pytest.mark.parametrize("fuse", [True, False])
def test_agrees_with_the_interpreter(fuse: bool) -> None:
    module, inputs = mlp(), randoms((3, 8), (8, 16), (16,), (16, 4), (4,))
    assert_same(meta.vm.compile(module, fuse=fuse)(*inputs), run(module, *inputs))


def test_accepts_inputs_by_name() -> None:
    executor = meta.vm.compile(program({"x": (2, 3), "y": (2, 3)}, lambda ops, x, y: ops.subtract(x, y)))
    x, y = randoms((2, 3), (2, 3))
    assert_same(executor(y=y, x=x), x - y)


def test_replaced_parameters_keep_their_memory() -> None:
    def body(ops, w, dw):
        return [ops.sum(dw), ops.subtract(w, ops.multiply(dw, 0.5))]

    module = program({"w": (4, 5), "dw": (4, 5)}, body, {1: 0})
    w, dw = randoms((4, 5), (4, 5))
    expected = w - dw * 0.5
    address = w.numpy().ctypes.data
    total, replaced = meta.vm.compile(module)(w, dw)
    assert replaced is w
    assert w.numpy().ctypes.data == address
    assert_same([total, w], [dw.sum(), expected])


def test_refuses_traced_values() -> None:
    executor = meta.vm.compile(lambda x: meta.relu(x))
    with pytest.raises(ArgumentError, match=r"\[vm\] a compiled program is traced: 'argument 0' is a traced value; "):
        meta.trace(lambda x: executor(x)).record(meta.ones((2,)))


def test_module_is_what_the_passes_leave() -> None:
    executor = meta.vm.compile(lambda x: meta.matmul(x, x), passes=meta.passes.auto_cast("bfloat16"))
    assert "bfloat16" in str(executor.module(np.ones((2, 2), "float32")))


def test_names_wrong_inputs() -> None:
    executor = meta.vm.compile(program({"x": (2, 3), "y": (2, 3)}, lambda ops, x, y: ops.add(x, y)))
    x, wrong = randoms((2, 3), (3, 3))
    with pytest.raises(
        ArgumentError, match=r"\[vm\] input 'y' is Tensor\[\(3, 3\), \"float32\"\]; expected Tensor\[\(2, 3\)"
    ):
        executor(x, wrong)
    with pytest.raises(ArgumentError, match=r"\[vm\] missing a required argument: 'y'; expected \(x, y\)"):
        executor(x)
    fresh = meta.vm.compile(program({"x": (2, 3), "y": (2, 3)}, lambda ops, x, y: ops.add(x, y)))
    with pytest.raises(ArgumentError, match=r"\[vm\] 'y' is float 3.0; expected Tensor\[\(2, 3\), \"float32\"\]"):
        fresh(x, 3.0)
    with pytest.raises(ArgumentError, match=r"\[vm\] 'y' is str 'a'; expected Tensor"):
        executor(x, y="a")


def test_takes_numpy_arrays() -> None:
    """They are inputs like the arrays that `meta.asarray` makes of them, not constants."""

    @meta.trace
    def function(pair: Any, scale: float = 1.0) -> Any:
        return pair["x"] * scale + pair["y"][0]

    executor = meta.vm.compile(function)
    first, second = np.arange(6.0, dtype="float32").reshape(2, 3), np.full((3, 2), 2.0, "float32").T
    for k in (1.0, 3.0):
        nested = {"x": first * k, "y": [second]}
        np.testing.assert_array_equal(executor(nested, scale=2.0).numpy(), first * k * 2.0 + second)
    programs = [executor.program({"x": x, "y": [x]}) for x in (first, first + 1, meta.array(first))]
    assert programs[0] is programs[1] is programs[2]
    flat = meta.vm.compile(meta.trace(lambda x: x + 1.0))
    for x in (first, second, first[:, ::2], meta.array(first), first.astype("float64"), first.astype("int32")):
        np.testing.assert_array_equal(flat(x).numpy(), np.asarray(x) + 1)
        assert flat(x).dtype == flat(meta.array(x)).dtype


def test_does_not_write_to_numpy_arrays() -> None:
    @meta.trace
    def function(x: Any) -> None:
        x.update(x + 1.0)

    executor = meta.vm.compile(function)
    x = meta.zeros((2,))
    executor(x)
    assert x.tolist() == [1.0, 1.0]
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"\[vm\] 'x' is an array of another library, which the program overw"):
            executor(np.zeros(2, "float32"))


def test_interpreter_and_vm_agree_on_copies_of_state() -> None:
    module = program({"w": (3,)}, lambda ops, w: [ops.multiply(w, w), ops.add(w, 1.0)], {1: 0})
    (w,) = randoms((3,))
    square, new = run(module, *copies([w]))
    executor = meta.vm.compile(module)
    assert_same(executor(w), (square, new))


def test_refuses_modules_with_false_types() -> None:
    text = str(meta.trace(lambda x: meta.transpose(x) * 2.0).record(meta.ones((2, 3))).module)
    module = parse(text.replace("(3, 2)", "(300, 200)"))
    with pytest.raises(IRError, match=r"inferred is .*look in '%0 = transpose\(%x\)' of @main .*py:\d+"):
        meta.vm.compile(module)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [("(3, 2)", "(300, 200)", "inferred is"), ("(2, 3)", "(2, 4)", "inferred is")],
)
def test_refuses_false_types_from_passes(old: str, new: str, problem: str) -> None:
    def change(module: Module) -> Module:
        return parse(str(module).replace(old, new))

    executor = meta.vm.compile(meta.trace(lambda x: meta.transpose(x) * 2.0), passes=change)
    with pytest.raises(IRError, match=problem):
        executor(meta.ones((2, 3)))


def test_refuses_other_parameters_from_passes() -> None:
    def change(module: Module) -> Module:
        return parse(str(module).replace("(2, 3)", "(20, 30)"))

    executor = meta.vm.compile(meta.trace(lambda x: x * 2.0), passes=change)
    with pytest.raises(IRError, match="a pass changed the parameters of main"):
        executor(meta.ones((2, 3)))


@pytest.mark.parametrize("kernels", [1, 600])
def test_results_belong_to_the_caller_alone(kernels: int) -> None:
    assert 1 < limits.COMPILED_BINDINGS < 600  # compiled calls, bytecode
    memory = np.ones(16, np.float32)

    def unchanged(x: Any) -> Any:
        y = x
        for _ in range(kernels):
            y = meta.cumsum(y, axis=0)
        return x, y

    executor = meta.vm.compile(meta.trace(unchanged))
    references = sys.getrefcount(memory)
    x = meta.from_dlpack(memory)
    results = executor(x)
    assert sys.getrefcount(memory) == references + 1
    del x, results
    assert sys.getrefcount(memory) == references
