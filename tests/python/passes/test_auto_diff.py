"""The pass auto_diff: gradients of programs compared with the tape and with finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta import passes
from meta.errors import ArgumentError, GradientError
from meta.interpreter.run import run
from meta.ir.analysis import op_counts
from meta.ir.expr import MUTATES
from meta.ir.type import tensor_type
from meta.op import registry
from meta.schema import binary
from tests.python.passes.programs import parse_program, program, random_module
from tests.python.recorded import array, assert_equal, check_ir

X = (2, 3)


def adjoint(module, names=None):
    with passes.PassContext(verify=True):
        return check_ir(passes.auto_diff(names)(module))


def eager_gradients(function, arrays, dys):
    leaves = [x.detach() for x in arrays]
    for leaf in leaves:
        leaf.requires_grad = leaf.dtype.startswith(("float", "bfloat"))
    results = function(*leaves)
    ys = [y for y in (results if isinstance(results, tuple) else (results,)) if y.requires_grad]
    meta.autograd.backward(ys, list(dys))
    return [meta.zeros(x.shape) if x.grad is None else x.grad for x in leaves if x.requires_grad]


PROGRAMS = {
    "mlp": (lambda x, w, b: meta.softmax(meta.relu(x @ w + b) * 2.0), [X, (3, 4), (4,)]),
    "one value used often": (lambda x, y, z: x * x + x * y - meta.tanh(x) / (z * z + 1.0), [X, X, X]),
    "tuples": (lambda x, y, z: meta.concatenate([meta.split(x, 3, 1)[2], y, y], 1) * z, [X, (2, 1), (2, 3)]),
    "several results": (lambda x, y, z: (meta.exp(x), x * y, z.sum()), [X, X, X]),
    "a result twice": (lambda x, y, z: (x * y, x * y, meta.tanh(z)), [X, X, X]),
    "normalisation": (lambda x, w, b: meta.layer_norm(x, w, b), [X, (3,), (3,)]),
    "broadcasting": (lambda x, y, z: (x + y) * z, [X, (3,), ()]),
    "stopped": (lambda x, y, z: x.detach() * y + z, [X, X, X]),
    "integers between": (lambda x, y, z: x * (y > 0).cast("float32") + z, [X, X, X]),
}


@pytest.fixture(scope="module")
def without_gradients():
    """Operators without gradients, removed after the test."""
    names = ("odd_0", "odd_1", "odd_2")
    for name in names:
        meta.define(name, binary.binary, gradient="not_implemented: not asked for")(lambda x1, x2: x1)
    yield names
    for name in names:
        registry.remove(name)
        delattr(meta, name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_agree_with_the_tape(name):
    function, shapes = PROGRAMS[name]
    arrays = [array(*s, seed=i) for i, s in enumerate(shapes)]
    module = adjoint(program(function, *shapes))
    count = len(program(function, *shapes).main.body.results)
    dys = [array(*p.type.shape, seed=9 + i) for i, p in enumerate(module.main.params[3:])]
    actual = run(module, *arrays, *dys)[count:]
    assert_equal(list(actual), eager_gradients(function, arrays, dys), 1e-5)


def test_names_of_output_gradients():
    assert [p.name for p in adjoint(program(lambda x: x * 2.0, X)).main.params] == ["x", "dy"]
    names = [p.name for p in adjoint(program(lambda dy0: (dy0 * 2.0, dy0), X)).main.params]
    assert names == ["dy0", "dy_0", "dy_1"]


def test_only_requested_parameters_get_gradients():
    module = adjoint(program(lambda x, y, n: x * y + n, X, X, tensor_type(X, "int64")), ["y"])
    assert len(module.main.body.results) == 2
    with pytest.raises(
        ArgumentError, match=r"no floating parameter is called 'yy'; expected one of x, y; did you mean"
    ):
        adjoint(program(lambda x, y: x * y, X, X), ["yy"])
    with pytest.raises(ArgumentError, match="no floating parameter is called 'n'"):
        adjoint(program(lambda x, n: x * n, X, tensor_type(X, "int64")), ["n"])


def test_unused_parameters_have_gradients_of_zeros():
    module = adjoint(program(lambda x, unused: x * 2.0, X, tensor_type((4,), "float64")))
    _, dx, du = run(module, array(*X), array(4, dtype="float64"), meta.ones(X))
    assert_equal(dx, meta.full(X, 2.0))
    assert_equal(du, meta.zeros((4,), "float64"))


def test_written_state_has_no_output_gradient():
    w = array(3)
    from meta import tracing

    def step(x):
        w.update(x * 2.0)
        return x * w

    record = tracing.record(step, (array(3),), {})
    module = adjoint(record.module)
    assert [p.name for p in module.main.params] == ["x", "w", "dy"]
    assert module.main.attrs[MUTATES] == {1: 1}


def test_second_order_is_the_pass_applied_twice():
    def f(x, w):
        return meta.tanh(x @ w)

    def gradient(x, w, dy):
        x, w = x.detach(), w.detach()
        w.requires_grad = True
        (dw,) = meta.autograd.grad(f(x, w), [w], dy, create_graph=True)
        return dw, meta.autograd.grad((dw * dw).sum(), [w])[0]

    x, w, dy = array(2, 3), array(3, 4, seed=1), array(2, 4, seed=2)
    first = adjoint(program(f, (2, 3), (3, 4)), ["w"])
    second = adjoint(first, ["w"])
    dw, expected = gradient(x, w, dy)
    names = [p.name for p in second.main.params]
    zeros = [meta.zeros(p.type.shape) for p in second.main.params[3:]]
    results = run(second, x, w, dy, *zeros[:-1], dw.detach() * 2.0)
    assert names[:3] == ["x", "w", "dy"]
    assert_equal(results[1], dw.detach(), 1e-5)
    assert_equal(results[-1], expected, 1e-4)


BRANCHES = """
def main(%x: T, %y: T) -> T {
  %s = sum(%x)
  %c = greater(%s, 0.0)
  %p = (%x, %y)
  %z = if %c {
    %a = tanh(%x)
    %q = %p[1]
    %b = multiply(%a, %q)
    %k = if %c {
      %e = exp(%b)
      %e
    } else {
      %b
    }
    (%k, %y, %a, %a)
  } else {
    %d = multiply(%x, 3.0)
    (%x, %d, %d, %x)
  }
  %u = %z[0]
  %v = %z[1]
  %w = %z[2]
  %m = multiply(%u, %v)
  %n = add(%m, %w)
  %r = multiply(%n, %x)
  %r
}"""


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_differentiates_the_taken_branch_of_conditionals(sign):
    module = adjoint(parse_program(BRANCHES))
    x, y, dy = meta.abs(array(*X)) * sign, array(*X, seed=1), array(*X, seed=2)

    def eager(x, y):
        if sign > 0:
            a = meta.tanh(x)
            u, v, w = meta.exp(a * y), y, a
        else:
            u, v, w = x, x * 3.0, x * 3.0
        return (u * v + w) * x

    actual = run(module, x, y, dy)[1:]
    assert_equal(list(actual), eager_gradients(eager, [x, y], [dy]), 1e-5)


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_gradients_of_random_programs_agree_with_finite_differences(seed):
    module = passes.inline_calls(random_module(seed))
    if any(name in op_counts(module.main) for name in ("stop_gradient", "cast")):
        module = passes.drop_stop_gradient(module)
    if "cast" in op_counts(module.main):
        return  # rounding on purpose: finite differences do not see through it
    with meta.with_dialect("reference"), meta.no_grad():
        points = [meta.array(np.random.default_rng(seed + i).uniform(0.3, 0.9, X).astype("float32")) for i in range(3)]
        direction = [array(*X, seed=seed + 5 + i) for i in range(3)]
        gradient = adjoint(module)
        dys = [meta.full(X, 0.5), meta.full(X, -0.25)]
        results = run(gradient, *points, *dys)
        along = sum(float((g * d).sum()) for g, d in zip(results[2:], direction, strict=True))

        def value(step):
            ys = run(module, *[p + d * step for p, d in zip(points, direction, strict=True)])
            return sum(float((y.cast("float64") * dy).sum()) for y, dy in zip(ys, dys, strict=True))

        h = 2e-3
        forward, backward = (value(h) - value(0)) / h, (value(0) - value(-h)) / h
        numeric = (forward + backward) / 2
    if abs(forward - backward) > 0.05 * max(1.0, abs(numeric)):
        return  # a kink between the two points
    assert abs(along - numeric) <= 0.03 * max(1.0, abs(numeric))


def test_names_all_missing_gradients_at_once(without_gradients):
    missing = without_gradients
    with pytest.raises(GradientError) as error:
        passes.auto_diff()(
            parse_program(
                """
        def main(%x: T, %y: T) -> T {{
          %a = {0}(%x, %y)
          %b = {1}(%a, %x)
          %c = {1}(%b, %y)
          %s = sum(%c)
          %k = greater(%s, 0.0)
          %d = if %k {{
            %e = {2}(%c, %y)
            %e
          }} else {{
            %c
          }}
          %d
        }}""".format(*missing)
            )
        )
    rows = str(error.value).split("\n")
    assert [row.split("]")[0] for row in rows] == ["[odd_2", "[odd_1", "[odd_0"]
    assert all("argument 'x1' has no gradient (not asked for); detach it" in row for row in rows)


def test_unused_gradients_can_be_missing(without_gradients):
    odd = without_gradients[0]
    module = adjoint(program(lambda x, y: x * getattr(meta, odd)(y.detach(), y.detach()), X, X))
    assert len(module.main.body.results) == 3


def test_recursion_has_no_gradient():
    module = parse_program("""
    def loop(%x: T) -> T {
      %y = @loop(%x)
      %y
    }
    def main(%x: T) -> T {
      %y = @loop(%x)
      %y
    }""")
    with pytest.raises(GradientError, match=r"\[autodiff\] a gradient goes through the call of a function; .*inline"):
        passes.auto_diff()(module)


def test_skips_results_without_gradient():
    module = adjoint(program(lambda x: meta.dropout(x, meta.array([1, 2]), 0.5)[0] * 2.0, X))
    assert "dropout_dx" in op_counts(module.main)
    module = adjoint(program(lambda x: (x, meta.argmax(x, 1)), X))
    assert [p.name for p in module.main.params] == ["x", "dy"]
