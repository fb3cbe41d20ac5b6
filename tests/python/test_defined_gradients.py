"""Gradients passed to `meta.define`: functions that it takes or refuses, and checks of their results."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

import meta
from meta.dim import sym
from meta.errors import GradientError, RegistryError, TypeInferenceError
from meta.ir.type import tensor_type
from meta.op import registry
from meta.schema import Arg, Float, Schema, Tensor, TensorList

_numbers = count()
SCALE = Schema("scale", Arg("x", Tensor), Arg("by", Float, 2.0))
PRODUCT = Schema("product", Arg("a", Tensor), Arg("b", Tensor))


pytestmark = pytest.mark.usefixtures("remove_operators")


def scale(**facts: Any) -> Any:
    """A new operator x * by."""
    name = f"scale{next(_numbers)}_with_a_gradient"
    return meta.define(name, SCALE, reference=lambda x, by: x * np.float32(by), **facts)(lambda x, by: x)


def product(**facts: Any) -> Any:
    """A new operator a * b for two tensors of one shape."""
    name = f"product{next(_numbers)}_with_a_gradient"
    return meta.define(name, PRODUCT, reference=lambda a, b: a * b, **facts)(lambda a, b: a)


def _tangent_of_scale(by: float, x_t: Any) -> Any:
    return x_t * by


@pytest.mark.parametrize("forward", [None, "linear", "x_t * by", _tangent_of_scale])
def test_forward_mode(forward: Any) -> None:
    facts = {} if forward is None else {"forward": forward}
    op = scale(gradient={"x": "dy * by", **facts})
    _, tangent = meta.autograd.jvp(op, (meta.array([1.0, 2.0]),), (meta.array([3.0, 4.0]),))
    assert tangent.tolist() == [6.0, 8.0]


def test_forward_mode_of_several_arguments() -> None:
    op = product(gradient={"a": "dy * b", "b": "dy * a", "forward": "multilinear"})
    a, b, t = meta.array([2.0]), meta.array([3.0]), meta.array([1.0])
    assert meta.autograd.jvp(op, (a, b), (t, t))[1].tolist() == [5.0]
    assert meta.autograd.jvp(op, (a, b), (None, t))[1].tolist() == [2.0]


def test_formulas_of_forward_mode_are_checked() -> None:
    with pytest.raises(RegistryError, match=r"in 'dx \* by': unknown name 'dx'"):
        scale(gradient={"x": "dy * by", "forward": "dx * by"})


def leaf(*values: float) -> meta.NDArray:
    return meta.array(values, requires_grad=True)


def gradients(op: Any, *leaves: meta.NDArray) -> list[list[float]]:
    op(*leaves).sum().backward()
    return [x.grad.tolist() for x in leaves]


def traced_backward(op: Any, *arrays: meta.NDArray) -> Any:
    """Gradients of the arguments, computed inside a trace."""

    @meta.trace
    def step(*xs: Any) -> Any:
        op(*xs).sum().backward()
        return tuple(x.grad for x in xs)

    return meta.vm.compile(step)(*arrays)


class Rule:
    def times(self, dy: Any, by: float) -> Any:
        return dy * by

    def __call__(self, dy: Any, by: float) -> Any:
        return dy * by


def _factor(dy: Any, factor: float) -> Any:
    return dy * factor


def _named(name: str) -> Callable[..., Any]:
    def function(dy: Any, by: float) -> Any:
        return dy * by

    function.__name__ = name
    return function


@pytest.mark.parametrize(
    "function",
    [
        lambda dy, by: dy * by,
        functools.partial(_factor, factor=2.0),
        Rule().times,
        Rule(),
        lambda by, /, *, dy: dy * by,
        lambda dy, factor=2.0: dy * factor,
        *map(_named, ["f", "meta", "grad_support", "dy", "x", "class", "_gradient_0"]),
    ],
)
def test_any_function_whose_parameters_name_what_it_reads(function: Callable[..., Any]) -> None:
    assert gradients(scale(gradient={"x": function}), leaf(1.0, 2.0)) == [[2.0, 2.0]]


def test_what_a_partial_has_bound_stays() -> None:
    op = scale(gradient={"x": functools.partial(lambda dy, by: dy * by, by=5.0)})
    assert gradients(op, leaf(1.0)) == [[5.0]]


def test_functions_of_one_name_are_two_functions() -> None:
    def pair() -> tuple[Any, Any]:
        def rule(dy: Any, b: Any) -> Any:
            return dy * b

        first = rule

        def rule(dy: Any, a: Any) -> Any:  # type: ignore[no-redef]
            return dy * a

        return first, rule

    for of_a, of_b in (pair(), (lambda dy, b: dy * b, lambda dy, a: dy * a)):
        op = product(gradient={"a": of_a, "b": of_b})
        assert gradients(op, leaf(2.0), leaf(3.0)) == [[3.0], [2.0]]


def test_formulas_share_the_values_that_where_defines() -> None:
    where = {"g": "dy * by", "twice": "g + g", "unused": "x * x"}
    op = scale(gradient={"where": where, "x": "twice - g"})
    assert gradients(op, leaf(3.0)) == [[2.0]]
    shared = product(gradient={"where": {"p": "a * b"}, "a": "dy * p / a", "b": "dy * p / b"})
    a, b = leaf(2.0), leaf(3.0)
    assert gradients(shared, a, b) == [[3.0], [2.0]]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"where": {"dy": "x"}, "x": "dy"}, "`where` defines 'dy'; expected an identifier that formulas do not use"),
        ({"where": {"a b": "x"}, "x": "dy"}, "`where` defines 'a b'"),
        ({"where": {"g": "h", "h": "dy"}, "x": "g"}, "unknown name 'h'"),
        ({"where": {"g": lambda dy: dy}, "x": "g"}, "`where` is .*; expected a mapping of names to formulas as text"),
        ({"where": "dy", "x": "dy"}, "`where` is 'dy'; expected a mapping"),
        ({"x": 3}, "a formula is int 3; expected text or a function"),
        ({"x": None}, "a formula is NoneType None; expected text or a function"),
        ({"x": lambda dy, factor: dy}, r"<lambda>\(\) has a parameter 'factor'; expected some of x, by, y, dy, needs"),
        ({"x": lambda *dy: dy}, r"has a parameter '\*dy'"),
        ({"x": lambda dy, **rest: dy}, r"has a parameter '\*\*rest'"),
        ({"x": dict.fromkeys}, "the parameters of the gradient function .* are unknown|has a parameter"),
        ({"y": "dy"}, "'y' is not a tensor argument"),
        ({}, "no formula for x"),
        (lambda dy: dy, "its entry is function"),
    ],
)
def test_an_unusable_gradient_is_refused_and_a_corrected_one_accepted(entry: Any, text: str) -> None:
    name = f"scale{next(_numbers)}_defined_twice"

    def define(gradient: Any) -> Any:
        return meta.define(name, SCALE, gradient=gradient, reference=lambda x, by: x)(lambda x, by: x)

    with pytest.raises(RegistryError, match=text):
        define(entry)
    assert not hasattr(meta, name)
    assert name not in {op.name for op in registry.all_ops()}
    assert gradients(define({"x": lambda dy: dy * 2.0}), leaf(1.0)) == [[2.0]]


@pytest.mark.parametrize("name", ["needs", "meta", "g0"])
def test_an_argument_name_that_formulas_need_is_refused(name: str) -> None:
    with pytest.raises(RegistryError, match=f"formulas use the argument name '{name}' themselves; expected another"):
        meta.define("scale_of_a_name", Schema("scale", Arg(name, Tensor)), gradient={name: "dy"})(lambda x: x)


@pytest.mark.parametrize("part", ["tvm", "torch", "reference"])
def test_an_implementation_is_a_function(part: str) -> None:
    wrong: dict[str, Any] = {part: 3}
    with pytest.raises(RegistryError, match=f"{part} is int; expected a function"):
        meta.define("scale_by_no_function", SCALE, **wrong)


def test_without_a_gradient_backward_raises() -> None:
    op, x = scale(), leaf(1.0)
    assert op(x).tolist() == [2.0]
    text = rf"\[{op.__name__}\] argument 'x' has no gradient .*pass gradient=.* or gradient=\"non_differentiable\""
    with pytest.raises(GradientError, match=text):
        op(x).sum().backward()
    with pytest.raises(GradientError, match=text):
        traced_backward(op, x)


def test_non_differentiable_stops_gradients() -> None:
    op, x = scale(gradient="non_differentiable"), leaf(1.0)
    (op(x) * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0]


WRONG = {
    "shape": (lambda dy: dy.sum(), r'Tensor\[\(\), "float32"\]', r"sum or reshape it to \(2,\)"),
    "rank": (lambda dy: dy.reshape((1, 2)), r'Tensor\[\(1, 2\), "float32"\]', r"sum or reshape it to \(2,\)"),
    "dtype": (lambda dy: dy.cast("float64"), r'Tensor\[\(2,\), "float64"\]', r'cast it: \.cast\("float32"\)'),
    "number": (lambda dy: 2.0, "of class float", "return a tensor"),
    "array": (lambda dy: np.ones(2, "float32"), "of class ndarray", "return a tensor"),
    "nothing": (lambda dy: None, "None", "return a tensor, or declare the argument non_differentiable"),
    "formula": ("sum(dy)", r'Tensor\[\(\), "float32"\]', r"sum or reshape it to \(2,\)"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("traced", [False, True])
def test_a_gradient_of_another_type_is_refused(case: str, traced: bool) -> None:
    gradient, problem, remedy = WRONG[case]
    op, x = scale(gradient={"x": gradient}), leaf(1.0, 2.0)
    expected = r'expected the argument\'s type Tensor\[\(2,\), "float32"\]'
    text = rf"^\[{op.__name__}\] the gradient of argument 'x' is {problem}; {expected}; {remedy} \(at {__file__}:\d+\)"
    with pytest.raises(GradientError, match=text):
        traced_backward(op, x) if traced else op(x).sum().backward()


def test_a_function_of_several_gradients_returns_them_all() -> None:
    good = product(gradient={"a, b": lambda a, b, dy: [dy * b, dy * a]})
    assert gradients(good, leaf(2.0), leaf(3.0)) == [[3.0], [2.0]]
    for wrong, shown in ((lambda dy: dy, "is of class NDArray"), (lambda dy: (dy, dy, dy), "has 3 gradients")):
        op = product(gradient={"a, b": wrong})
        with pytest.raises(GradientError, match=rf"function of a, b {shown}; expected a tuple or list of 2"):
            gradients(op, leaf(2.0), leaf(3.0))


@pytest.mark.parametrize(
    ("gradient", "text"),
    [
        (lambda dy: [dy], "the gradient of argument 'xs' has 1 gradients; expected a tuple or list of 2"),
        (lambda dy: dy, "the gradient of argument 'xs' is of class NDArray; expected a tuple or list"),
        (lambda dy: [dy, dy.sum()], r"the gradient of 'xs\[1\]' is Tensor\[\(\), .*; expected the argument's type"),
    ],
)
def test_a_list_of_tensors_has_a_list_of_gradients(gradient: Any, text: str) -> None:
    def define(gradient: Any) -> Any:
        name = f"total{next(_numbers)}_with_a_gradient"
        schema = Schema("total", Arg("xs", TensorList))
        return meta.define(name, schema, gradient={"xs": gradient}, reference=lambda xs: sum(xs))(lambda xs: xs[0])

    xs = [leaf(1.0, 2.0), leaf(3.0, 4.0)]
    define(lambda dy: (dy, dy * 2.0))(xs).sum().backward()
    assert [x.grad.tolist() for x in xs] == [[1.0, 1.0], [2.0, 2.0]]
    with pytest.raises(GradientError, match=text):
        define(gradient)(xs).sum().backward()


def test_an_array_from_outside_is_a_gradient_eagerly_and_traced() -> None:
    constant = meta.array([5.0, 7.0])
    op, x = scale(gradient={"x": lambda dy: constant}), leaf(1.0, 2.0)
    op(x).sum().backward()
    assert x.grad is not None
    x.grad[0] = 0.0
    assert constant.tolist() == [5.0, 7.0]
    x.grad = None
    assert traced_backward(op, x)[0].tolist() == [5.0, 7.0]


def test_gradients_run_outside_of_autocast() -> None:
    op = product(gradient={"a": "matmul(dy, b)", "b": "matmul(a, dy)"})
    a, b = meta.ones((2, 2)), meta.ones((2, 2))
    a.requires_grad = b.requires_grad = True
    with meta.amp.autocast():
        op(a, b).sum().backward()
    assert [x.grad.dtype for x in (a, b) if x.grad is not None] == ["float32", "float32"]


def test_gradients_with_symbolic_sizes() -> None:
    op = scale(gradient={"x": lambda dy, by: dy.reshape((1, *dy.shape)).reshape(dy.shape) * by})

    @meta.trace
    def step(x: Any) -> Any:
        return meta.autograd.grad(op(x).sum(), x)[0]

    executor = meta.vm.compile(step.record(tensor_type((sym("n"),), "float32")).module)
    assert executor(meta.ones((3,)))[0].tolist() == [2.0, 2.0, 2.0]


def test_an_error_in_a_gradient_names_the_operator_and_the_line_of_the_user() -> None:
    def fails(dy: Any) -> Any:
        return dy + undefined_name  # type: ignore[name-defined]  # noqa: F821

    op, x = scale(gradient={"x": fails}), leaf(1.0)
    line = inspect.getsourcelines(fails)[1] + 1
    for run in (lambda: op(x).sum().backward(), lambda: traced_backward(op, x)):
        with pytest.raises(GradientError, match="its gradient raised NameError: name 'undefined_name'") as caught:
            run()
        assert caught.value.subject == op.__name__
        assert caught.value.location == f"{__file__}:{line}"
        assert isinstance(caught.value.__cause__, NameError)


def test_an_error_of_meta_in_a_gradient_keeps_its_class() -> None:
    op = scale(gradient={"x": lambda dy: meta.matmul(dy, dy[:1])})
    with pytest.raises(TypeInferenceError, match=rf"\[matmul\] (.|\n)*in the gradient of {op.__name__}"):
        op(leaf(1.0, 2.0)).sum().backward()
