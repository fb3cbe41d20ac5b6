"""Relax programs as programs of meta: functions, sizes, kernels, parameters, gradients, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.backend.tvm import adapter as tvm
from meta.errors import ArgumentError, GradientError
from meta.frontend.relax import RelaxError, UnsupportedError, examine, from_relax, load, to_relax

PROGRAM = """
# from tvm.script import ir as I
# from tvm.script import relax as R
# from tvm.script import tirx as T
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def shifted(x: T.handle, k: T.int64, out: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n, 3), "float32")
        Y = T.match_buffer(out, (n, 3), "float32")
        for i, j in T.grid(n, 3):
            with T.sblock("shifted"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = X[vi, vj] + T.Cast("float32", k)

    @T.prim_func(private=True, s_tir=True)
    def totals(x: T.handle, out: T.handle, largest: T.handle):
        n = T.int64()
        m = T.int64()
        X = T.match_buffer(x, (n, m), "float32")
        Y = T.match_buffer(out, (n,), "float32")
        Z = T.match_buffer(largest, (n,), "float32")
        for i, j in T.grid(n, m):
            with T.sblock("sum"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    Y[vi] = T.float32(0)
                Y[vi] = Y[vi] + X[vi, vj]
        for i, j in T.grid(n, m):
            with T.sblock("max"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    Z[vi] = T.float32(-1e30)
                Z[vi] = T.max(Z[vi], X[vi, vj])

    @R.function(private=True)
    def twice(a: R.Tensor(("k", 3), "float32")) -> R.Tensor(("k", 3), "float32"):
        k = T.int64()
        b: R.Tensor((k, 3), "float32") = R.add(a, a)
        return b

    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3,), "float32")):
        n = T.int64()
        cls = Module
        with R.dataflow():
            y = R.multiply(x, w)
            z = cls.twice(y)
            s = R.call_tir(cls.shifted, (z, n), out_ty=R.Tensor((n, 3), "float32"))
            t = R.call_tir(cls.totals, (s,), out_ty=[R.Tensor((n,), "float32"), R.Tensor((n,), "float32")])
            u = R.reshape(s, R.shape([n * 3]))
            R.output(t, u)
        return (t[0], t[1], u)

    @R.function
    def chosen(x: R.Tensor((2,), "float32"), flag: R.Tensor((), "bool")) -> R.Tensor((2,), "float32"):
        if flag:
            y = R.exp(x)
        else:
            y = R.negative(x)
        return y
"""


def parsed(source):
    tvm.load()
    import tvm as package

    return package.script.from_source(source, check_well_formed=False)


def function(body, params, results="", extra=""):
    """A module with one function of Relax."""
    lines = "\n".join(f"        {line}" for line in body.strip().split("\n"))
    return parsed(f"""
@I.ir_module
class Module:
{extra}
    @R.function
    def main({params}){results}:
{lines}
""")


@pytest.fixture(scope="module")
def module():
    return parsed(PROGRAM)


def expected(x, w):
    s = 2 * x * w + len(x)
    return s.sum(1), s.max(1), s.reshape(-1)


def test_kernels_functions_and_sizes(module):
    program = from_relax(module)
    text = str(program)
    assert 'x: Tensor[(n, 3), "float32"]' in text
    assert "relax::shifted_" in text
    compiled = meta.vm.compile(program)
    w = np.array([1, 2, 3], "float32")
    for count in (2, 5):
        x = np.random.RandomState(count).randn(count, 3).astype("float32")
        for results in (compiled(x, w), meta.interpreter.run.run(program, x, w)):
            for ours, theirs in zip(results, expected(x, w), strict=True):
                np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5)


def test_examine_lists_operators_with_their_bindings(module):
    report = examine(module)
    assert report.supported
    assert [(use.name, use.count) for use in report] == [("add", 1), ("call_tir", 2), ("multiply", 1), ("reshape", 1)]
    assert {use.name: use.places for use in report}["call_tir"] == ("s", "t")


def test_parameters_become_constants(module):
    w = np.array([1, 2, 3], "float32")
    program = from_relax(module, {"w": w}, shapes={"x": (2, 3)})
    assert [p.name for p in program.main.params] == ["x"]
    x = np.ones((2, 3), "float32")
    np.testing.assert_allclose(meta.interpreter.run.run(program, x)[0].numpy(), expected(x, w)[0])
    again = from_relax(module, {"main": [tvm.tensor(w)]})
    assert [p.name for p in again.main.params] == ["x"]


def test_other_entries_and_conditionals(module):
    program = meta.vm.compile(from_relax(module, entry="chosen"))
    x = np.array([1, 2], "float32")
    np.testing.assert_allclose(program(x, np.array(True)).numpy(), np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(program(x, np.array(False)).numpy(), -x)
    with pytest.raises(
        ArgumentError, match=r"\[relax\] there is no function @man; expected @chosen, @main, @twice; .*main"
    ):
        from_relax(module, entry="man")
    with pytest.raises(ArgumentError, match=r"the program is a builtins.str; expected a tvm.IRModule"):
        from_relax("module")
    with pytest.raises(ArgumentError, match=r"params has 'v', which is not a parameter of @main; expected one of x, w"):
        from_relax(module, {"v": 1})


def test_gradients():
    source = function("y = R.nn.softmax(R.matmul(x, w), axis=-1)\nz = R.sum(R.multiply(y, y))\nreturn z",
                      'x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3, 2), "float32")')  # fmt: skip
    program = meta.passes.auto_diff(["w"])(from_relax(source))
    rng = np.random.RandomState(0)
    x, w = rng.randn(4, 3).astype("float32"), meta.array(rng.randn(3, 2).astype("float32"), requires_grad=True)
    y = meta.softmax(meta.matmul(meta.array(x), w))
    (y * y).sum().backward()
    results = meta.interpreter.run.run(program, x, w.detach(), np.ones((), "float32"))
    gradient = results[-1]
    gradient = gradient[-1] if isinstance(gradient, tuple) else gradient
    np.testing.assert_allclose(gradient.numpy(), w.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_a_kernel_has_no_gradient_unless_a_function_computes_it(module):
    program = from_relax(module)
    w = meta.array([1.0, 2.0, 3.0], requires_grad=True)
    results = meta.interpreter.run.run(program, np.ones((2, 3), "float32"), w)
    with pytest.raises(GradientError, match=r"relax::(shifted|totals)_\w+"):
        results[2].sum().backward()
    functions = {"shifted": lambda x, k: x + k, "totals": lambda x: (x.sum(1), x.max(1))}
    program = from_relax(module, functions=functions, shapes={"x": (2, 3)})
    results = meta.interpreter.run.run(program, np.ones((2, 3), "float32"), w)
    results[0].sum().backward()
    assert w.grad.tolist() == [4.0, 4.0, 4.0]


def test_quotients_and_remainders_of_sizes_are_truncated():
    sizes = "T.Div(n - 9, T.int64(2)) + 9, T.truncmod(n - 9, T.int64(2)) + 9"
    source = function(
        f"n = T.int64()\nreturn R.full(R.shape([{sizes}]), R.const(1.0, 'float32'))", 'x: R.Tensor(("n",), "float32")'
    )
    program = from_relax(source)
    for size, shape in ((4, (7, 8)), (9, (9, 9)), (12, (10, 10))):
        assert meta.interpreter.run.run(program, np.ones(size, "float32")).shape == shape


def test_sizes_that_must_be_equal_become_one():
    source = function("n = T.int64()\nz = R.match_cast(y, R.Tensor((n, 3), 'float32'))\nreturn R.add(x, z)",
                      'x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("m", 3), "float32")')  # fmt: skip
    program = from_relax(source)
    shapes = {str(p.type.shape) for p in program.main.params}
    assert len(shapes) == 1
    x = np.ones((4, 3), "float32")
    assert meta.interpreter.run.run(program, x, x).tolist() == [[2.0] * 3] * 4
    with pytest.raises(ArgumentError, match="n"):
        meta.interpreter.run.run(program, x, x[:2])
    with pytest.raises(ArgumentError, match=r"shape \(2,\) for 'x'; expected a shape for R.Tensor\(\(n, 3\)"):
        from_relax(source, shapes={"x": (2,)})
    with pytest.raises(RelaxError, match=r"@main, binding 'z': a size is 3; expected n = 2"):
        from_relax(source, shapes={"x": (2, 3), "y": (3, 3)})


def test_shapes_and_numbers_among_the_parameters():
    source = function("y = R.reshape(x, s)\nz = R.zeros(R.shape([k]), 'float32')\nreturn (y, z)",
                      'x: R.Tensor(("n", 4), "float32"), s: R.Shape(["n", 2, 2]), k: R.Prim("int64")')  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"'k' of @main is the size k, which no tensor has; pass .*shapes=\{'k'"):
        from_relax(source)
    program = from_relax(source, shapes={"k": 3})
    y, z = meta.interpreter.run.run(program, np.ones((5, 4), "float32"))
    assert y.shape == (5, 2, 2)
    assert z.tolist() == [0.0, 0.0, 0.0]


def test_refusals_name_everything_at_once():
    source = function(
        """a = R.call_dps_packed("my.scale", (x,), out_ty=R.Tensor((2,), "float32"))
b = R.call_pure_packed("my.shift", a, ty_args=(R.Tensor((2,), "float32"),))
c = R.print(b, format="{}")
d = R.strided_slice(x, axes=[0], begin=[0], end=[1])
return d""",
        'x: R.Tensor((2,), "float32")',
    )
    with pytest.raises(
        UnsupportedError, match=r"3 operators are not supported: my.scale \(once: node a; a packed"
    ) as error:
        from_relax(source)
    assert error.value.operators == {"my.scale": 1, "my.shift": 1, "print": 1}
    report = str(examine(source))
    assert "MISSING  my.shift" in report
    assert "it has an effect" in report


def test_packed_functions_that_are_given():
    source = function('a = R.call_dps_packed("my.scale", (x,), out_ty=R.Tensor((2,), "float32"))\nreturn a',
                      'x: R.Tensor((2,), "float32")')  # fmt: skip
    program = from_relax(source, functions={"my.scale": lambda x: x * 3})
    assert meta.interpreter.run.run(program, np.ones(2, "float32")).tolist() == [3.0, 3.0]


def test_errors_have_the_binding():
    kernel = """
    @T.prim_func(private=True, s_tir=True)
    def copy(x: T.Buffer((T.int64(2),), "float32"), y: T.Buffer((T.int64(2),), "float32")):
        for i in range(2):
            with T.sblock("copy"):
                vi = T.axis.spatial(2, i)
                y[vi] = x[vi]
"""
    source = function("y = R.call_tir(Module.copy, (x,), out_ty=R.Tensor((3,), 'float32'))\nreturn y",
                      'x: R.Tensor((3,), "float32")', extra=kernel)  # fmt: skip
    with pytest.raises(RelaxError, match=r"@main, binding 'y': call_tir: \[relax::copy_\w+\] x0 is .*\(3,\)"):
        from_relax(source)
    source = function("y = R.nn.attention(x, x, x, window_size=2)\nreturn y", 'x: R.Tensor((1, 3, 2, 4), "float32")')
    with pytest.raises(
        UnsupportedError, match=r"@main, binding 'y': nn.attention: window_size is 2; expected attention"
    ):
        from_relax(source)


def test_dtypes_that_meta_lacks():
    source = function('y = R.astype(x, "float8_e4m3fn")\nreturn y', 'x: R.Tensor((2,), "float32")')
    with pytest.raises(
        UnsupportedError, match=r"binding 'y': astype: the dtype float8_e4m3fn; expected a dtype of meta"
    ):
        from_relax(source)
    source = function("return x", 'x: R.Tensor((2,), "float8_e4m3fn")')
    with pytest.raises(UnsupportedError, match=r"the parameter 'x' of @main has dtype float8_e4m3fn; expected a dtype"):
        from_relax(source)


def test_results_that_depend_on_values():
    source = function("y = R.nonzero(x)\nreturn y", 'x: R.Tensor((2, 2), "float32")')
    program = from_relax(source)
    result = meta.interpreter.run.run(program, np.array([[0, 1], [2, 0]], "float32"))
    assert result.tolist() == [[0, 1], [1, 0]]


def test_a_written_program_reads_back_and_trains():
    model = meta.nn.Sequential(meta.nn.Linear(6, 8), meta.nn.BatchNorm1d(8), meta.nn.Linear(8, 3)).infer_mode()
    x = np.random.RandomState(0).randn(4, 6).astype("float32")
    exported = to_relax(model, x, params_as_inputs=True)
    network = load(exported).infer_mode()
    assert set(network.state_dict()) == set(model.state_dict())
    np.testing.assert_allclose(network(meta.array(x)).numpy(), model(meta.array(x)).numpy(), rtol=1e-5, atol=1e-6)
    network.train_mode()
    before = network(meta.array(x))
    (before * before).mean().backward()
    assert all(p.grad is not None for p in network.parameters())


# --- modules that TVM's inference of types has not seen ---------------------------------------------------------------


def refused(body, *params):
    """The error about a function that is built without TVM's inference of types."""
    tvm.load()
    relax = tvm.relax
    module = tvm.IRModule({"main": relax.Function(list(params), body, relax.AnyType())})
    with pytest.raises(RelaxError) as caught:
        from_relax(module)
    return str(caught.value)


def tensor(name, *shape, dtype="float32"):
    return tvm.RelaxVar(name, tvm.TensorType(list(shape), dtype))


def bound(name, value, kind=None):
    """A sequence of one binding, and its variable."""
    var = tvm.RelaxVar(name, kind or tvm.relax.AnyType())
    binding = tvm.VarBinding(var, value) if kind is None else tvm.MatchCast(var, value, kind)
    return tvm.SeqExpr([tvm.BindingBlock([binding])], var), var


def test_values_that_a_type_does_not_fit():
    x = tensor("x", 2, 3)
    pair, kind = tvm.RelaxTuple([x, x]), tvm.TensorType([2, 3], "float32")
    assert "@main, binding 'y' is a tuple; expected 1 field" in refused(bound("y", pair, tvm.TupleType([kind]))[0], x)
    shape = bound("y", tvm.ShapeExpr([2, 3]), tvm.ShapeType([2, 3, 4]))[0]
    assert "@main, binding 'y' has 2 sizes; expected 3" in refused(shape, x)


def test_values_of_a_branch_are_not_seen_outside():
    x, flag = tensor("x", 2), tensor("flag", dtype="bool")
    then, inner = bound("inner", tvm.RelaxCall(tvm.Op.get("relax.exp"), [x]))
    branch, _ = bound("y", tvm.RelaxIf(flag, then, tvm.SeqExpr([], x)))
    leaked = tvm.RelaxTuple([branch, inner])
    assert "'inner' has no value; expected bindings in the order of their uses" in refused(leaked, x, flag)


def test_nests_are_bounded():
    x = value = tensor("x", 2)
    for _ in range(500):
        value = tvm.RelaxTuple([value])
    text = refused(bound("y", value)[0], x)
    assert "@main, binding 'y': expressions nest deeper than Python's stack allows here" in text
    assert "bind the inner ones: tvm.relax.transform.Normalize()" in text
