"""meta.define(override=True) and meta.unregister: what is replaced, what is dropped and what stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import topi

import meta
from meta.errors import GradientError, RegistryError
from meta.op import registry
from meta.schema import Arg, Float, Int, Schema, Tensor
from tests.python.kernels_in_memory import kernels_of

SCALE = Schema("scale", Arg("x", Tensor), Arg("by", Float, 2.0))


pytestmark = pytest.mark.usefixtures("remove_operators")


def with_reference(factor: float) -> dict[str, Any]:
    return {"reference": lambda x, by: x * np.float32(by * factor)}


def with_compute(factor: float) -> dict[str, Any]:
    return {"tvm": lambda x, by: topi.multiply(x, by * factor), "pattern": "elemwise"}


@pytest.fixture(params=["redefined", "redefined_package::redefined"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def define(name: str, **facts: Any) -> Any:
    return meta.define(name, SCALE, **facts)(lambda x, by: x)


def gradient_of(op: Any) -> list[float]:
    x = meta.ones((2,))
    x.requires_grad = True
    op(x).sum().backward()
    assert x.grad is not None
    return x.grad.tolist()


@pytest.mark.parametrize("parts", [with_reference, with_compute])
def test_a_redefinition_replaces_every_part(name: str, parts: Any) -> None:
    x = meta.ones((2,))
    old = define(name, gradient={"x": "dy * 10.0"}, **parts(1.0))
    assert old(x).tolist() == old(x).tolist() == [2.0, 2.0]
    assert gradient_of(old) == [10.0, 10.0]
    new = define(name, gradient={"x": "dy * 20.0"}, override=True, **parts(3.0))
    for op in (new, old, eval(registry.get(name).path)):
        for _ in range(2):
            assert op(x).tolist() == [6.0, 6.0]
        assert gradient_of(op) == [20.0, 20.0]
    assert meta.vm.compile(meta.trace(lambda x: old(x)))(x).tolist() == [6.0, 6.0]


def test_the_new_operator_may_have_other_arguments_dialects_and_no_gradient(name: str) -> None:
    x = meta.ones((2,))
    old = define(name, gradient={"x": "dy"}, **with_reference(1.0), **with_compute(1.0))
    old(x)
    schema = Schema("add", Arg("x", Tensor), Arg("y", Tensor), Arg("n", Int, 1))
    new = meta.define(name, schema, override=True, reference=lambda x, y, n: x + y + np.float32(n))(lambda x, y, n: x)
    assert new(x, x).tolist() == old(x, x).tolist() == [3.0, 3.0]
    assert [c.implementation.dialect.name for c in meta.explain(name, x, x).candidates] == ["reference"]
    with pytest.raises(GradientError, match="argument 'x' has no gradient"):
        gradient_of(lambda x: new(x, x))


@pytest.mark.parametrize("parts", [with_reference, with_compute])
def test_compiled_programs_keep_what_they_were_compiled_with(name: str, parts: Any) -> None:
    x = meta.ones((2,))
    op = define(name, **parts(1.0))
    traced = meta.trace(lambda x: op(x) + 1.0)
    executor = meta.vm.compile(traced)
    module = traced.record(x).module
    compiled = meta.vm.compile(module)
    assert executor(x).tolist() == compiled(x)[0].tolist() == [3.0, 3.0]
    define(name, override=True, **parts(3.0))
    assert executor(x).tolist() == compiled(x)[0].tolist() == [3.0, 3.0]
    assert meta.vm.compile(traced)(x).tolist() == [7.0, 7.0]
    assert executor(meta.ones((3,))).tolist() == [7.0, 7.0, 7.0]
    meta.unregister(name)
    assert executor(x).tolist() == [3.0, 3.0]


def test_a_recorded_program_does_not_mix_definitions(name: str) -> None:
    op = define(name, gradient={"x": "dy"}, **with_reference(1.0))
    module = meta.trace(lambda x: op(x)).record(meta.ones((2,))).module
    text = str(module)
    uses = (
        lambda: meta.vm.compile(module)(meta.ones((2,))),
        lambda: meta.interpreter.run.run(module, meta.ones((2,))),
        lambda: meta.passes.auto_diff()(module),
    )
    define(name, gradient={"x": "dy"}, override=True, **with_reference(3.0))
    for use in uses:
        with pytest.raises(
            RegistryError, match=rf"\[{name}\] the operator was redefined after the program was recorded"
        ):
            use()
    assert meta.vm.compile(meta.ir.parser.parse(text))(meta.ones((2,)))[0].tolist() == [6.0, 6.0]
    meta.unregister(name)
    for use in uses:
        with pytest.raises(RegistryError, match="was unregistered after the program was recorded"):
            use()


def test_the_graph_of_an_earlier_call_keeps_its_gradient(name: str) -> None:
    x = meta.ones((2,))
    x.requires_grad = True
    y = define(name, gradient={"x": "dy * 10.0"}, **with_reference(1.0))(x).sum()
    define(name, gradient={"x": "dy * 20.0"}, override=True, **with_reference(1.0))
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [10.0, 10.0]


def test_a_failed_redefinition_changes_nothing(name: str) -> None:
    x = meta.ones((2,))
    op = define(name, gradient={"x": "dy * 10.0"}, **with_reference(1.0))
    for wrong in ({"gradient": {"x": "dz"}}, {"pattern": "none"}, {"patern": "elemwise"}, {"reference": 3}):
        with pytest.raises(RegistryError):
            define(name, override=True, **wrong)
        assert op(x).tolist() == [2.0, 2.0]
        assert gradient_of(op) == [10.0, 10.0]


def test_kernels_of_the_old_compute_are_dropped(name: str) -> None:
    op = define(name, **with_compute(1.0))
    op(meta.ones((2,)))
    assert kernels_of(name) == 1
    define(name, override=True, **with_compute(3.0))
    assert kernels_of(name) == 0


def test_methods_are_replaced_and_removed() -> None:
    define("redefined", method=True, **with_reference(1.0))
    assert meta.ones((1,)).redefined().tolist() == [2.0]  # type: ignore[attr-defined]
    define("redefined", method=True, override=True, **with_reference(3.0))
    assert meta.ones((1,)).redefined().tolist() == [6.0]  # type: ignore[attr-defined]
    define("redefined", override=True, **with_reference(3.0))
    assert not hasattr(meta.NDArray, "redefined")


def test_unregister_removes_the_operator(name: str) -> None:
    op = define(name, gradient={"x": "dy"}, **with_reference(1.0), **with_compute(1.0))
    x = meta.ones((2,))
    op(x)
    meta.unregister(name)
    assert not hasattr(meta, name)
    assert not hasattr(meta.ops, "redefined_package")
    assert name not in {op.name for op in registry.all_ops()}
    for _ in range(2):
        with pytest.raises(RegistryError, match="the operator was unregistered; expected a registered operator"):
            op(x)
    with pytest.raises(RegistryError, match=f"operators is called '{name}'"):
        meta.unregister(name)
    again = define(name, **with_reference(3.0))
    assert again(x).tolist() == op(x).tolist() == [6.0, 6.0]


def test_operators_of_the_package_stay() -> None:
    for call in (lambda: meta.unregister("softmax"), lambda: define("softmax", override=True)):
        with pytest.raises(RegistryError, match=r"'softmax' is an operator of meta; expected operators of meta.define"):
            call()
    with pytest.raises(RegistryError, match=r"meta.trace exists already"):
        define("trace", override=True)


def test_aliases_come_and_go_with_the_operator(name: str) -> None:
    op = define(name, aliases=("redefined_too", "redefined_aliases::scale"), method=True, **with_reference(1.0))
    assert meta.redefined_too is op is meta.ops.redefined_aliases.scale
    assert meta.ones((1,)).redefined_too().tolist() == [2.0]  # type: ignore[attr-defined]
    with pytest.raises(RegistryError, match=r"meta.redefined_too exists already"):
        define("redefined_too")
    with pytest.raises(RegistryError, match=rf"'redefined_too' is an alias of '{name}'; .*; use '{name}'"):
        define("redefined_too", override=True)
    new = define(name, aliases=("redefined_too",), override=True, **with_reference(3.0))
    assert meta.redefined_too is new
    assert not hasattr(meta.ops, "redefined_aliases")
    meta.unregister(name)
    assert not hasattr(meta, "redefined_too")
