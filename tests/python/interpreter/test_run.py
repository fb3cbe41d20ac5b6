"""The interpreter: agreement with eager code, control flow, closures, recursion, symbolic sizes."""

from __future__ import annotations

import weakref

import ml_dtypes
import numpy as np
import pytest

import meta
from meta import tracing
from meta.dim import sym
from meta.errors import ArgumentError, DispatchError, IRError
from meta.interpreter import run as interpreter
from meta.interpreter.run import MAX_CALLS, Closure, run
from meta.ir.builder import Builder, Module
from meta.ir.expr import MUTATES, Constant, GlobalVar
from meta.ir.parser import parse
from meta.ir.type import FunctionType, TupleType, tensor_type
from meta.modes import modes
from meta.op.registry import get
from tests.python.ir.programs import OPS, build
from tests.python.passes.programs import parse_program, program, with_named_dialect
from tests.python.recorded import array, assert_equal, check_ir

X = (2, 3)
T = tensor_type(X)


def op(builder, name, *args):
    op = get(name)
    return builder.call(op, op.schema.bind(name, args, {}))


def test_programs_agree_with_their_functions():
    def f(x, w):
        parts = meta.split(meta.softmax(x @ w), 2, 1)
        return parts[0] * 2.0 + parts[1], meta.concatenate(list(parts)), x.sum(0)

    x, w = array(*X), array(3, 4, seed=1)
    assert_equal(run(program(f, X, (3, 4)), x, w), f(x, w))


def test_inputs_are_converted_by_asarray():
    module = program(lambda x: x + 1.0, X)
    assert_equal(run(module, np.zeros(X, "float32"))[0], meta.ones(X))
    assert_equal(run(module.main, meta.zeros(X))[0], meta.ones(X))
    assert_equal(run(Module({"f": module.main}), meta.zeros(X), entry="f")[0], meta.ones(X))


def test_gradients_are_recorded():
    x = array(*X, grad=True)
    (y,) = run(program(lambda x: meta.tanh(x) * 2.0, X), x)
    y.backward(meta.ones(X))
    traced = x.grad
    x.grad = None
    (meta.tanh(x) * 2.0).backward(meta.ones(X))
    assert_equal(traced, x.grad)


def test_autocast_does_not_change_programs():
    module = program(lambda x: x @ x.transpose(), X)
    with meta.amp.autocast("bfloat16"):
        assert run(module, array(*X))[0].dtype == "float32"
        assert modes.autocast is not None


def test_dispatched_calls_run_on_their_dialect():
    calls = []
    module = with_named_dialect(program(lambda x: meta.relu(x) + 1.0, X), "reference")
    modes.observers = (lambda call, candidate: calls.append(candidate.implementation.name),)
    try:
        run(module, array(*X))
    finally:
        modes.observers = ()
    assert calls == ["reference.relu", "reference.add"]


def test_does_not_overwrite_inputs():
    w, v, dx = array(3), array(3, seed=1), array(3, seed=2)
    before = w.numpy().copy(), v.numpy().copy()

    def step(dx):
        old = w * 1.0
        meta.sgd(w, dx, v, 0.1, 0.9, 0.0)
        return old, w + 0.0

    record = tracing.record(step, (dx,), {})
    assert record.main.attrs[MUTATES]
    old, new, w2, v2 = run(record.module, dx, w, v)
    assert_equal([w, v, old], [*map(meta.array, before), meta.array(before[0])])
    assert_equal(new, w2)
    eager = step(dx)
    assert_equal([old, new, v2], [*eager, v])


# --- control flow ----------------------------------------------------------------------------------------------------

LOOP = """
def loop(%x: T, %n: Tensor[(), "int64"]) -> T {{
  %c = greater(%n, 0)
  %y = if %c {{
    %a = add(%x, 1.0)
    %m = subtract(%n, 1)
    %b = @loop(%a, %m)
    {0}
  }} else {{
    %x
  }}
  %y
}}

def main(%x: T, %n: Tensor[(), "int64"]) -> T {{
  %y = @loop(%x, %n)
  %y
}}"""


def test_tail_recursion_can_be_long():
    module = check_ir(parse_program(LOOP.format("%b")))
    with meta.with_dialect("reference"):
        assert_equal(run(module, meta.zeros(X), meta.array(3000)), meta.full(X, 3000.0))


def test_recursion_can_exceed_the_depth_of_pythons_stack():
    module = check_ir(parse_program(LOOP.format("%d = multiply(%b, 1.0)\n    %d")))
    with meta.with_dialect("reference"):
        assert_equal(run(module, meta.zeros(X), meta.array(2000)), meta.full(X, 2000.0))


def test_rejects_infinite_recursion():
    module = parse_program("""
    def main(%x: T) -> T {
      %y = @main(%x)
      %z = @main(%y)
      %z
    }""")
    with pytest.raises(IRError, match=rf"\[interpreter\] calls nest deeper than {MAX_CALLS}; expected programs"):
        run(module, meta.zeros(X))


def test_conditionals_evaluate_one_branch():
    module = parse_program("""
    def main(%x: T, %c: BOOL) -> (T, T) {
      %p = if %c {
        %a = relu(%x)
        (%a, %x)
      } else {
        %b = tanh(%x)
        (%x, %b)
      }
      %y = %p[0]
      %z = %p[1]
      (%y, %z)
    }""")
    x = array(*X)
    assert_equal(run(module, x, meta.array(True)), (meta.relu(x), x))
    assert_equal(run(module, x, meta.array(False)), (x, meta.tanh(x)))


def test_closures_capture_and_are_passed_and_returned():
    builder = Builder()
    kind = FunctionType((T,), T)
    with builder.function("twice", [("f", kind), ("x", T)]) as twice:
        f, x = twice.params
        twice.ret(builder.call_function(f, [builder.call_function(f, [x])]))
    with builder.function("main", [("x", T), ("y", T)]) as scope:
        x, y = scope.params
        with builder.function("add_y", [("u", T)]) as inner:
            inner.ret(op(builder, "add", inner.params[0], y))
        added = builder.emit(inner.function)
        with builder.function("make", [("u", T)]) as make:
            with builder.function("by_u", [("v", T)]) as by_u:
                by_u.ret(op(builder, "multiply", by_u.params[0], make.params[0]))
            make.ret(builder.emit(by_u.function))
        result = builder.call_function(builder.emit(make.function), [x])
        first = builder.call_function(GlobalVar("twice", twice.function.type), [added, x])
        scope.ret([first, builder.call_function(result, [y]), added])
    module = check_ir(Module({"twice": twice.function, "main": scope.function}))
    x, y = array(*X), array(*X, seed=1)
    first, second, closure = run(module, x, y)
    assert_equal([first, second], [x + y + y, y * x])
    assert isinstance(closure, Closure)
    assert_equal(run(module, closure, x, entry="twice"), x + y + y)


def test_recursive_closures():
    module = parse_program("""
    def main(%x: T) -> T {
      %f = fn(%u: T) -> T {
        %s = sum(%u)
        %c = less(%s, 100.0)
        %r = if %c {
          %v = add(%u, %x)
          %w = %f(%v)
          %w
        } else {
          %u
        }
        %r
      }
      %y = %f(%x)
      %y
    }""")
    assert_equal(run(check_ir(module), meta.ones(X)), meta.full(X, 17.0))


def test_tuples_as_arguments_and_results():
    pair = TupleType((T, TupleType((T,))))
    builder = Builder()
    with builder.function("main", [("p", pair)]) as scope:
        inner = builder.get_item(scope.params[0], 1)
        scope.ret(builder.tuple([inner, builder.get_item(scope.params[0], 0)]))
    x, y = array(*X), array(*X, seed=1)
    (again,), first = run(Module({"main": scope.function}), (x, (y,)))
    assert_equal([again, first], [y, x])
    with pytest.raises(ArgumentError, match=r"\[main\] input 'p.1' is Tensor.*; expected \(Tensor"):
        run(Module({"main": scope.function}), (x, y))


def test_constants_of_every_kind():
    builder = Builder()
    t = tensor_type((3,), "bfloat16")
    with builder.function("main", [("x", t)]) as scope:
        values = [np.array([1, 2, 3], ml_dtypes.bfloat16), meta.array([1.0, 2.0, 3.0], dtype="bfloat16")]
        out = scope.params[0]
        for value in values:
            out = op(builder, "add", out, Constant(value, t))
        scope.ret(out)
    y = run(Module({"main": scope.function}), meta.zeros((3,), "bfloat16"))
    assert y.dtype == "bfloat16"
    assert_equal(y, meta.array([2.0, 4.0, 6.0], dtype="bfloat16"))


# --- symbolic sizes --------------------------------------------------------------------------------------------------


def test_binds_symbolic_sizes_to_the_inputs():
    n, m = sym("n"), sym("m")

    def f(x, y):
        flat = x.reshape((n * m,))
        return meta.concatenate([flat, y]), meta.zeros(((n + 3) // 2, 2)), meta.broadcast_to(y.sum(), (n, m))

    module = check_ir(program(f, (n, m), (n * m - 1,)))
    for size in (2, 5):
        x, y = array(size, 3), array(size * 3 - 1)
        a, b, c = run(module, x, y)
        assert_equal(a, meta.concatenate([x.reshape((-1,)), y]))
        assert (b.shape, c.shape) == (((size + 3) // 2, 2), (size, 3))


def test_rejects_contradictory_sizes():
    n = sym("n")
    module = program(lambda x, y, z: (x + y, z), (n, 3), (n, 3), (n * 2,))
    with pytest.raises(ArgumentError, match=r"\[main\] input 'y' is Tensor\[\(4, 3\).*expected Tensor\[\(n, 3\)"):
        run(module, array(2, 3), array(4, 3), array(4))
    with pytest.raises(ArgumentError, match=r"\[main\] input 'z' is Tensor\[\(5,\).*expected Tensor\[\(2\*n,\).*n = 2"):
        run(module, array(2, 3), array(2, 3), array(5))


def test_calls_have_exactly_the_types_of_the_function():
    n = sym("n")
    module = program(lambda x: meta.ones((n,)) + x, (n,))
    builder = Builder()
    with builder.function("main", [("a", tensor_type((2,))), ("b", tensor_type((5,)))]) as scope:
        calls = []
        for p in scope.params:
            shared = FunctionType((p.type,), TupleType((p.type,)))
            call = builder.call_function(GlobalVar("f", shared), [p])
            calls.append(builder.get_item(call, 0))
        scope.ret(calls)
    with pytest.raises(IRError, match="globals_exist: @f is named with type"):
        run(Module({"f": module.main, "main": scope.function}), meta.zeros((2,)), meta.zeros((5,)))


# --- errors ----------------------------------------------------------------------------------------------------------


def test_inputs_are_checked():
    module = program(lambda x, y: x + y, X, X)
    with pytest.raises(ArgumentError, match=r"\[main\] 1 inputs; expected 2: x, y"):
        run(module, array(*X))
    with pytest.raises(ArgumentError, match=r"\[main\] input 'y' is Tensor\[\(2,\), .*expected Tensor\[\(2, 3\)"):
        run(module, array(*X), array(2))
    with pytest.raises(ArgumentError, match=r"\[main\] input 'x' is .*float64"):
        run(module, array(*X, dtype="float64"), array(*X))
    with pytest.raises(IRError, match=r"\[module\] there is no function 'mian'.*did you mean 'main'"):
        run(module, array(*X), array(*X), entry="mian")


def test_names_operators_without_an_implementation():
    module = Module({"main": build(lambda b, x: b.call(OPS["concat"], ((x, x), 0)), T)})
    with pytest.raises(DispatchError, match=r"\[concat\] no dialect accepts concat\(.*no dialect implements it"):
        run(module, array(*X))


def test_modes_are_restored_after_an_error():
    module = Module({"main": build(lambda b, x: b.call(OPS["concat"], ((x, x), 0)), T)})
    with meta.amp.autocast("float16"):
        policy = modes.autocast
        with pytest.raises(DispatchError):
            run(module, array(*X))
        assert modes.autocast is policy


def test_frees_values_after_their_last_use(monkeypatch):
    arrays, alive = [], []
    store = interpreter._Interpreter.store

    def watched(self, frame, value):
        arrays.append(weakref.ref(value))
        store(self, frame, value)
        alive.append(sum(r() is not None for r in arrays))

    def f(x):
        for _ in range(6):
            x = meta.tanh(x)
        return x

    monkeypatch.setattr(interpreter._Interpreter, "store", watched)
    run(program(f, X), array(*X))
    assert len(arrays) == 6
    assert max(alive) <= 2


def test_programs_are_verified_before_they_run():
    """A declared type that no operator infers: the text parses, and nothing runs."""
    text = 'def main(%x: Tensor[(2,), "float32"]) -> Tensor[(3,), "float32"] {\n'
    module = parse(text + '  %y: Tensor[(3,), "float32"] = negative(%x)\n  %y\n}')
    with pytest.raises(IRError, match="type_agrees: the value has type"):
        run(module, np.ones(2, "float32"))
    assert not module.verified
    module = parse(text.replace("(3,)", "(2,)") + "  %y = negative(%x)\n  %y\n}")
    run(module, np.ones(2, "float32"))
    assert module.verified
