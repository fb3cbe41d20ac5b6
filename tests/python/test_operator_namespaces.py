"""Operators in the namespaces of packages: `meta.define("mypkg::swiglu", ...)` and `meta.ops.mypkg.swiglu`."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from tvm import topi

import meta
from meta.errors import IRError, RegistryError
from meta.ir.equality import structural_equal
from meta.ir.parser import parse
from meta.op import registry
from meta.schema import Arg, Float, Schema, Tensor

SCALE = Schema("scale", Arg("x", Tensor), Arg("by", Float, 2.0))


pytestmark = pytest.mark.usefixtures("remove_operators")


def define(name: str, factor: float = 1.0, **facts: Any) -> Any:
    """x * by * factor."""
    facts = {"reference": lambda x, by: x * np.float32(by * factor), **facts}
    return meta.define(name, SCALE, **facts)(lambda x, by: x)


def te(factor: float) -> Any:
    return lambda x, by: topi.cast(topi.multiply(x, by * factor), x.dtype)


def test_the_function_is_in_the_namespace() -> None:
    op = define("one_package::scale")
    assert meta.ops.one_package.scale is op
    assert (op.__name__, op.__module__) == ("scale", __name__)
    assert "one_package" in dir(meta.ops)
    assert dir(meta.ops.one_package) == ["scale"]
    assert repr(meta.ops.one_package) == "<operators of one_package: scale>"
    assert not hasattr(meta, "scale")
    assert op(meta.ones((2,))).tolist() == [2.0, 2.0]


def test_operators_of_two_packages_do_not_meet() -> None:
    facts = {"gradient": {"x": "dy * by"}}
    ops = [define(f"package{i}::scale", i, tvm=te(i), pattern="elemwise", **facts) for i in (3, 5)]
    x = meta.ones((2,))
    assert [op(x).tolist() for op in ops] == [[6.0, 6.0], [10.0, 10.0]]
    executor = meta.vm.compile(meta.trace(lambda x: (ops[0](x), ops[1](x))))
    assert [y.tolist() for y in executor(x)] == [[6.0, 6.0], [10.0, 10.0]]
    with meta.with_dialect("reference"):
        assert [op(x).tolist() for op in ops] == [[6.0, 6.0], [10.0, 10.0]]
        executor = meta.vm.compile(meta.trace(lambda x: (ops[0](x), ops[1](x))))
        assert [y.tolist() for y in executor(x)] == [[6.0, 6.0], [10.0, 10.0]]


def test_formulas_name_operators_of_a_namespace() -> None:
    define("one_package::scale_dx", gradient="non_differentiable")
    op = define("one_package::scale", gradient={"x": "one_package::scale_dx(dy, by)"}, tvm=te(1.0), pattern="elemwise")
    x = meta.array([1.0, 2.0], requires_grad=True)
    op(x, 3.0).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]

    @meta.trace
    def step(x: Any) -> Any:
        op(x, 3.0).sum().backward()
        return x.grad

    assert "one_package::scale_dx(" in step.ir(x)
    assert meta.vm.compile(step)(x).tolist() == [3.0, 3.0]
    with pytest.raises(
        RegistryError, match=r"in 'one_package::scale_dy\(dy\)': .*did you mean 'one_package::scale_dx'"
    ) as caught:
        define("one_package::other", gradient={"x": "one_package::scale_dy(dy)"})
    assert str(caught.value).count("(at ") == 1


def test_ir_text_prints_and_parses_the_name() -> None:
    op = define("one_package::scale", tvm=te(1.0))
    module = meta.trace(lambda x: op(x, by=3.0) + 1.0).record(meta.ones((2,))).module
    text = str(module)
    assert "= one_package::scale(%x, by=3.0)" in text
    assert structural_equal(parse(text), module)
    dispatched = parse(text.replace("= one_package::", "= tvm.one_package::"))
    assert "tvm.one_package::scale(" in str(dispatched)
    assert meta.vm.compile(dispatched)(meta.ones((2,)))[0].tolist() == [4.0, 4.0]
    with pytest.raises(IRError, match=r"is called 'one_package::scald'.*did you mean 'one_package::scale'"):
        parse(text.replace("::scale", "::scald"))


def test_explain_and_pickle() -> None:
    op = define("one_package::scale")
    assert str(meta.explain(op, meta.ones((2,)))) == str(meta.explain("one_package::scale", meta.ones((2,))))
    assert str(meta.explain(op, meta.ones((2,)))).startswith("one_package::scale: reference")
    assert pickle.loads(pickle.dumps(registry.get("one_package::scale"))) is registry.get("one_package::scale")


def test_autocast() -> None:
    op = define("one_package::scale", tvm=te(1.0), amp="always", gradient={"x": "dy * by"})
    with meta.amp.autocast():
        assert op(meta.ones((2,))).dtype == "bfloat16"
        assert meta.vm.compile(meta.trace(lambda x: op(x)))(meta.ones((2,))).dtype == "bfloat16"


def test_operators_of_the_package_are_also_in_ops() -> None:
    op = define("scale_without_a_namespace")
    assert meta.ops.softmax is meta.softmax
    assert meta.ops.scale_without_a_namespace is op is meta.scale_without_a_namespace
    with pytest.raises(AttributeError, match=r"no operator or namespace 'sofmax'. did you mean 'softmax'"):
        _ = meta.ops.sofmax
    define("one_package::scale")
    with pytest.raises(AttributeError, match=r"no operator is called 'one_package::scael'. did you mean 'scale'"):
        _ = meta.ops.one_package.scael


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one_package::scale", "meta.ops.one_package.scale exists already; expected a new name; pass override=True"),
        ("softmax", "meta.softmax exists already; expected a new name"),
        ("trace", "meta.trace exists already; expected a new name"),
        ("softmax::scale", "the namespace 'softmax' is the name of an operator"),
        ("one_package", "'one_package' is a namespace of operators"),
        ("one_package::_scale", "the name 'one_package::_scale' begins with an underscore"),
        ("_package::scale", "begins with an underscore"),
        ("a::b::c", "an operator cannot be called 'a::b::c'"),
        ("::scale", "an operator cannot be called '::scale'"),
        ("one-package::scale", "an operator cannot be called 'one-package::scale'"),
        ("one_package::class", "an operator cannot be called"),
        (3, "the name is of class int"),
    ],
)
def test_names_that_are_taken_or_invalid(name: Any, text: str) -> None:
    define("one_package::scale")
    before = {op.name for op in registry.all_ops()}
    with pytest.raises(RegistryError, match=text):
        define(name)
    assert {op.name for op in registry.all_ops()} == before
