"""meta.define: errors at the registration of an operator and in its calls."""

from __future__ import annotations

import inspect
from itertools import count
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx, topi

import meta
from meta.errors import KernelError, MetaError, RegistryError, TypeInferenceError
from meta.schema import Arg, Float, Int, Schema, Tensor

_numbers = count()


pytestmark = pytest.mark.usefixtures("remove_operators")


def define(name: str | None = None, declare: Any = lambda x, by: x, **facts: Any) -> Any:
    """Define an operator with a new name, because dialects keep the implementations of removed operators."""
    name = f"operator{next(_numbers)}_of_a_test" if name is None else name
    return meta.define(name, Schema("scaled", Arg("x", Tensor), Arg("by", Float, 2.0)), **facts)(declare)


@pytest.mark.parametrize("name", ["a-b", "class", "", "1st"])
def test_rejects_invalid_operator_names(name: str) -> None:
    with pytest.raises(RegistryError, match=r"an operator cannot be called .*; expected names as Python's"):
        define(name)


@pytest.mark.parametrize("name", ["a-b", "class", ""])
def test_rejects_invalid_argument_names(name: str) -> None:
    with pytest.raises(ValueError, match="an argument cannot be called"):
        Schema("scaled", Arg("x", Tensor), Arg(name, Int, 1))


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"pattern": "elemwse"}, "pattern is 'elemwse'; expected elemwise, .*; did you mean 'elemwise'"),
        ({"amp": "sometimes"}, "amp is 'sometimes'; expected always, never, infer, keep"),
    ],
)
def test_rejects_invalid_facts_without_registering_the_operator(facts: dict[str, Any], text: str) -> None:
    with pytest.raises(RegistryError, match=text):
        define("scaled_by_this_test", **facts)
    define("scaled_by_this_test")


def test_aliases_name_the_defined_operator() -> None:
    op = define(aliases=("scaled_by_another_name",), reference=lambda x, by: x * by)
    assert meta.scaled_by_another_name is op
    assert meta.explain("scaled_by_another_name", meta.ones((2,))).op == op.__name__


def test_rejects_names_that_are_taken() -> None:
    with pytest.raises(RegistryError, match=r"meta\.amax exists already"):
        define("amax")
    with pytest.raises(RegistryError, match=r"meta\.softmax exists already"):
        define("scaled_by_this_test", aliases=("softmax",))
    with pytest.raises(RegistryError, match="an operator cannot be called 'a-b'"):
        define("scaled_by_this_test", aliases=("a-b",))
    with pytest.raises(RegistryError, match="the name 'twice' belongs to operator 'twice'"):
        define("scaled_by_this_test", aliases=("twice", "twice"))


@pytest.mark.parametrize("result", [None, 3])
def test_rejects_type_functions_without_a_type(result: Any) -> None:
    op = define(declare=lambda x, by: result, reference=lambda x, by: x)
    with pytest.raises(RegistryError, match=rf"its type function returned {type(result).__name__}; expected a Tens"):
        op(meta.ones((2,)))


def test_rejects_references_of_another_shape() -> None:
    op = define(reference=lambda x, by: x[:1] * by)
    with pytest.raises(KernelError, match=r"returned shape \(1, 3\), its declaration says \(2, 3\)"):
        op(meta.ones((2, 3)))


def test_explain_accepts_functions_of_operators() -> None:
    op = define(reference=lambda x, by: x * by)
    assert op(meta.ones((2,))).tolist() == [2.0, 2.0]
    assert meta.explain(op, meta.ones((2,))).chosen == "reference"
    assert str(meta.explain(meta.softmax, meta.ones((2,)))) == str(meta.explain("softmax", meta.ones((2,))))
    with pytest.raises(RegistryError, match="the name is of class ndarray"):
        meta.explain(np.ones(2), meta.ones((2,)))  # type: ignore[arg-type]


def _fails(*args: Any, **kwargs: Any) -> Any:
    return int("one")


@pytest.mark.parametrize(
    ("parts", "error", "what"),
    [
        ({"tvm": _fails}, KernelError, "its TVM compute"),
        ({"reference": _fails}, KernelError, "its reference implementation"),
        ({"torch": _fails}, KernelError, "its torch implementation"),
        ({"declare": _fails, "reference": lambda x, by: x}, TypeInferenceError, "its type function"),
    ],
)
def test_errors_of_a_user_function_name_operator_dialect_and_line(
    parts: dict[str, Any], error: type[MetaError], what: str
) -> None:
    if "torch" in parts:
        pytest.importorskip("torch")
    op = define(**parts)
    line = _fails.__code__.co_firstlineno + 1
    with pytest.raises(error) as caught:
        op(meta.ones((2, 3)))
    assert caught.value.subject == op.__name__
    assert caught.value.problem == f"{what} raised ValueError: invalid literal for int() with base 10: 'one'"
    assert caught.value.location == f"{__file__}:{line}"
    assert isinstance(caught.value.__cause__, ValueError)


def test_errors_of_a_compute_in_a_program_name_operator_and_line() -> None:
    op = define(tvm=_fails)
    with pytest.raises(KernelError, match="its TVM compute raised ValueError") as caught:
        meta.vm.compile(meta.trace(lambda x: op(x)))(meta.ones((2,)))
    assert caught.value.location == f"{__file__}:{_fails.__code__.co_firstlineno + 1}"


def test_errors_of_the_compiler_of_tvm() -> None:
    def compute(x: Any, by: float) -> Any:
        return te.compute(x.shape, lambda *i: tirx.call_intrin(x.dtype, "tirx.tvm_call_packed_lowered", x(*i)))

    op = define(tvm=compute)
    text = r"TVM's compiler raised .*: .*; expected a kernel that TVM compiles; change the sizes"
    for call, subject in (op, op.__name__), (meta.vm.compile(meta.trace(lambda x: op(x))), "vm"):
        with pytest.raises(KernelError, match=text) as caught:
            call(meta.ones((3,)))
        assert caught.value.subject == subject
        assert caught.value.location.startswith(__file__)
        assert "\n" not in str(caught.value)


def test_an_error_inside_a_library_is_located_at_its_call() -> None:
    op = define(reference=lambda x, by: np.reshape(x, (7,)))
    with pytest.raises(KernelError, match="its reference implementation raised ValueError: cannot reshape") as caught:
        op(meta.ones((2,)))
    assert caught.value.location == f"{__file__}:{inspect.currentframe().f_lineno - 3}"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (lambda x, by: topi.sum(x), r"its TVM compute returned shape \[\] as result 0, the declaration says \[2, 3\]"),
        (lambda x, by: topi.cast(x, "int32"), "its TVM compute returned int32 as result 0, the declaration says float"),
        (
            lambda x, by: te.compute((x.shape[0] + 1, x.shape[1]), lambda i, j: x[0, j]),
            r"its TVM compute returned shape \[3, 3\] as result 0, the declaration says \[2, 3\]",
        ),
        (lambda x, by: None, "its TVM compute returned NoneType as result 0, the declaration says a tensor"),
    ],
)
def test_a_compute_returns_the_declared_types(compute: Any, text: str) -> None:
    with pytest.raises(KernelError, match=text) as caught:
        define(tvm=compute)(meta.ones((2, 3)))
    assert caught.value.location == f"{__file__}:{compute.__code__.co_firstlineno}"


@pytest.mark.parametrize(("result", "text"), [(None, "returned None"), ((1, 2), "returned 2 results")])
def test_a_reference_returns_the_declared_number_of_arrays(result: Any, text: str) -> None:
    with pytest.raises(KernelError, match=f"its reference implementation {text}"):
        define(reference=lambda x, by: result)(meta.ones((2, 3)))
