"""Errors name the line of the user that called an operator, and the operator's own line beside it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import meta
from meta import errors
from meta.errors import GradientError, KernelError, TypeInferenceError
from meta.op import registry, rules
from meta.schema import Arg, Schema, Tensor

_MODULE = """
import meta
from meta.op import rules
from meta.schema import Arg, Schema, Tensor

@meta.define("NAME", Schema("halved", Arg("x", Tensor)), reference=lambda x: x / 2,
             gradient={"x": lambda dy: meta.matmul(dy, dy)})
def halved(x):
    rules.require_float("x", x)
    return x

def halved_twice(x):
    return meta.NAME(meta.NAME(x))

def rows_that_sum_to_one(x, axis):
    return meta.softmax(x, axis=axis)
"""


_numbers = count()


def line() -> int:
    """The line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def leaf(*shape: int) -> meta.NDArray:
    return meta.array(np.ones(shape, "float32"), requires_grad=True)


@pytest.fixture(autouse=True)
def _remove_operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(errors, "_operator_modules", ())
    before = {op.name for op in registry.all_ops()}
    yield
    for name in {op.name for op in registry.all_ops()} - before:
        registry.remove(name)
        meta.__dict__.pop(name, None)


@pytest.fixture
def package(tmp_path: Path) -> Any:
    """A module of operators, as another package would be."""
    path = tmp_path / "halving.py"
    module = ModuleType("halving")
    module.__file__ = str(path)
    # Dialects keep the implementations of removed operators.
    name = f"halved{next(_numbers)}_of_a_module"
    exec(compile(_MODULE.replace("NAME", name), str(path), "exec"), module.__dict__)
    return module


def test_a_type_function_in_the_module_of_the_caller() -> None:
    @meta.define("halved_here", Schema("halved", Arg("x", Tensor)), reference=lambda x: x / 2)
    def halved_here(x: Any) -> Any:
        rules.require_float("x", x)
        return x

    start = inspect.getsourcelines(test_a_type_function_in_the_module_of_the_caller)[1]
    for run in (lambda x: halved_here(x), meta.trace(lambda x: halved_here(x))):
        with pytest.raises(TypeInferenceError) as caught:
            run(meta.array([1]))
        assert caught.value.location == f"{__file__}:{start + 7}"
        assert caught.value.within == ("halved_here", f"{__file__}:{start + 3}")
        places = f"(at {__file__}:{start + 7}, in halved_here at {__file__}:{start + 3})"
        assert str(caught.value).endswith(f'cast it: x.cast("float32") {places}')


@pytest.mark.parametrize(
    ("call", "function", "text"),
    [
        (lambda m: m.halved(meta.array([1])), "", "rules.require_float"),
        (lambda m: m.halved_twice(meta.array([1])), "", "rules.require_float"),
        (lambda m: m.rows_that_sum_to_one(meta.array([1.0]), 3), "rows_that_sum_to_one", "meta.softmax"),
    ],
)
def test_a_module_of_operators_is_a_library(package: Any, call: Any, function: str, text: str) -> None:
    """The location is the line that called the module; the line inside it comes second."""
    source = _MODULE.splitlines()
    own = next(i for i, each in enumerate(source, 1) if text in each)
    with pytest.raises(TypeInferenceError) as caught:
        call(package)
    assert caught.value.location == f"{__file__}:{call.__code__.co_firstlineno}"
    assert caught.value.within == (function or package.halved.__name__, f"{package.__file__}:{own}")


def test_a_gradient_is_located_where_backward_was_called(package: Any) -> None:
    result = package.halved(leaf(2, 3)).sum()
    with pytest.raises(TypeInferenceError, match=r"^\[matmul\] shapes \(2, 3\)") as caught:
        result.backward()
    assert caught.value.location == f"{__file__}:{line() - 1}"
    assert caught.value.within == (f"the gradient of {package.halved.__name__}", f"{package.__file__}:7")


def test_an_error_while_a_module_of_operators_is_imported_is_located_there(tmp_path: Path) -> None:
    errors.add_operator_module("doubling")
    code = compile("import meta\nmeta.softmax(1.0)", str(tmp_path / "doubling.py"), "exec")
    with pytest.raises(meta.errors.ArgumentError) as caught:
        exec(code, {"__name__": "doubling"})
    assert caught.value.location == f"{tmp_path / 'doubling.py'}:2"


def test_spans_of_programs_show_the_caller_of_a_module_of_operators(package: Any) -> None:
    step = meta.trace(lambda x: package.halved_twice(x))
    spans = {str(binding.span) for binding in step.record(meta.ones((2,))).module.main.body.bindings}
    assert spans == {f"{__file__}:{line() - 2}"}


def test_a_module_of_operators_run_by_a_runner_alone_is_the_users() -> None:
    """This file defines operators and pytest calls it: nothing else is the user's."""
    errors.add_operator_module(__name__)
    with pytest.raises(TypeInferenceError) as caught:
        meta.softmax(meta.ones((2,)), axis=4)
    assert caught.value.location == f"{__file__}:{line() - 1}"
    assert caught.value.within == ("", "")


class Doubled(meta.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, how: str = "") -> Any:
        if how == "python":
            return int(how)
        return meta.softmax(x, axis=7) if how else x * 2.0

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy + undefined_name  # type: ignore[name-defined]  # noqa: F821


def test_an_exception_in_a_function_names_its_class_and_line() -> None:
    x = leaf(2)
    start = inspect.getsourcelines(Doubled)[1]
    with pytest.raises(KernelError, match=r"^\[Doubled\] its forward raised ValueError: invalid literal") as caught:
        Doubled.apply(x, "python")
    assert caught.value.location == f"{__file__}:{start + 4}"
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(TypeInferenceError, match=r"^\[softmax\] axis 7 (.|\n)*\nin Doubled.forward$"):
        Doubled.apply(x, "operator")
    text = r"^\[Doubled\] its backward raised NameError: name 'undefined_name' is not defined"
    with pytest.raises(GradientError, match=text) as failed:
        Doubled.apply(x).sum().backward()
    assert failed.value.location == f"{__file__}:{start + 9}"
    assert meta.autograd.is_grad_enabled()


@pytest.mark.parametrize(
    ("dtypes", "remedy"),
    [
        (("int64", "float32"), 'cast it: x.cast("float32")'),
        (("float32", "int64"), 'cast it: w.cast("float32")'),
        (("bool", "int32"), 'cast it: x.cast("int32")'),
        (("bfloat16", "bool"), 'cast it: w.cast("bfloat16")'),
        (("float32", "float64"), 'cast one: x.cast("float64")'),
    ],
)
def test_the_operand_to_cast_is_not_cut_off(dtypes: tuple[str, str], remedy: str) -> None:
    x, w = (meta.zeros((2, 2), dtype=dtype) for dtype in dtypes)
    with pytest.raises(TypeInferenceError) as caught:
        meta.dense(x, w)
    assert caught.value.problem == f"'x' is {dtypes[0]}, 'w' is {dtypes[1]}"
    assert caught.value.remedy == remedy


def test_names_the_operand_of_a_product_of_bools() -> None:
    x = meta.zeros((2, 2), dtype="bool")
    with pytest.raises(TypeInferenceError, match=r"\[matmul\] 'x1' has dtype bool; .*cast it: x1\.cast"):
        meta.matmul(x, x)


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        (lambda y, c: [y, c], "output 1 does not require grad and was not .*; leave it out, or set requires_grad"),
        (lambda y, c: c, "the tensor does not require grad and was not computed .*; set requires_grad = True on an in"),
        (lambda y, c: [y, y * meta.ones((3,))], r"output 1 has shape \(3,\) and no gradient was given"),
        (lambda y, c: [y, 3], "outputs hold int at 1"),
    ],
)
def test_names_the_output_without_a_gradient(outputs: Any, text: str) -> None:
    x = leaf(1)
    with pytest.raises(meta.errors.MetaError, match=rf"\[grad\] {text}"):
        meta.autograd.grad(outputs(x * 2.0, meta.ones((1,))), x)


def test_names_the_output_without_a_gradient_in_a_trace() -> None:
    def step(x: Any) -> Any:
        meta.autograd.backward([(x * 2.0).sum(), meta.ones(())])
        return x.grad

    with pytest.raises(GradientError, match=r"\[backward\] output 1 does not require grad"):
        meta.trace(step).record(leaf(2))


def test_names_the_input_without_a_gradient_and_the_dy_of_another_type() -> None:
    x, constant = leaf(2), meta.ones((2,))
    y = x * constant
    with pytest.raises(
        GradientError, match=r"\[grad\] input 1 does not require grad .*; set requires_grad = True on it"
    ):
        meta.autograd.grad(y, [x, constant], meta.ones((2,)))
    with pytest.raises(TypeInferenceError, match=r"\[grad\] dy of output 1 is Tensor\[\(1,\)"):
        meta.autograd.grad([y, y], x, [meta.ones((2,)), meta.ones((1,))])


@pytest.mark.parametrize(("heads", "near"), [(5, 4), (0, 1), (100, 12), (-2, 1)])
def test_heads_divide_features(heads: int, near: int) -> None:
    text = rf"\[MultiHeadAttention\] num_heads is {heads}, embed_dim is 12; .*; use num_heads={near} \(at "
    for layer in (meta.nn.MultiHeadAttention, lambda f, h: meta.nn.TransformerEncoderLayer(f, h, 8)):
        with pytest.raises(meta.errors.ArgumentError, match=text):
            layer(12, heads)


@pytest.mark.parametrize("facts", [{"patern": "elemwise"}, {"outputs_": ("a",)}])
def test_an_unknown_fact_of_an_operator(facts: dict[str, Any]) -> None:
    hint = {"patern": "pattern", "outputs_": "outputs"}[next(iter(facts))]
    allowed = "(family, doc|pattern, amp), .*"
    text = rf"^\[halved_wrong\] unknown fact '{next(iter(facts))}'; expected {allowed}; did you mean '{hint}'"
    schema = Schema("halved", Arg("x", Tensor))
    for define in (meta.define, lambda *parts, **facts: registry.declare(parts[0], schema=parts[1], **facts)):
        with pytest.raises(meta.errors.RegistryError, match=text) as caught:
            define("halved_wrong", schema, **facts)
        assert caught.value.location.startswith(__file__)


@pytest.mark.parametrize(
    ("gradient", "text"),
    [
        ({"x": "dy", "output_diferentiability": [True]}, "'output_diferentiability' is not a tensor argument of halved"
         r".*; expected x, forward, output_differentiability, .*where; did you mean 'output_differentiability'"),
        ({"x": "dy", "output_differentiability": [True, False]}, "output_differentiability has 2 values; expected one "
         "for each of 1 results"),
    ],
)  # fmt: skip
def test_an_unknown_fact_of_a_gradient(gradient: dict[str, Any], text: str) -> None:
    schema = Schema("halved", Arg("x", Tensor))
    with pytest.raises(meta.errors.RegistryError, match=text):
        meta.define("halved_wrong", schema, gradient=gradient)(lambda x: x)


def _without(packages: str, statement: str) -> str:
    """The output of a statement in a process without some packages."""
    hide = f"import sys; sys.modules.update(dict.fromkeys({packages.split()!r})); "
    completed = subprocess.run([sys.executable, "-c", hide + statement], capture_output=True, text=True)
    assert "Traceback" not in completed.stderr, completed.stderr
    return completed.stdout + completed.stderr


@pytest.mark.parametrize(("hidden", "name"), [("sklearn", "sklearn"), ("matplotlib", "matplotlib"), ("rich", "rich")])
def test_the_demo_names_the_extra_to_install(hidden: str, name: str) -> None:
    pytest.importorskip("sklearn", reason="it is imported before the others")
    text = _without(hidden, "from meta.cli import main; sys.exit(main(['demo']))")
    assert text == (
        f"error: [demo] the package {name} is not installed; expected the packages of the extra 'demo'; "
        "pip install 'meta-tvm[demo]'\n"
    )


@pytest.mark.parametrize("command", ["env", "ops softmax", "explain softmax '(2,) float32'", "relay --help"])
def test_the_other_commands_need_no_extra(command: str) -> None:
    import shlex

    hidden = "sklearn matplotlib rich torch cuda cudnn"
    statement = f"from meta.cli import main; main({shlex.split(command)!r})"
    assert _without(hidden, f"import contextlib\nwith contextlib.suppress(SystemExit): {statement}")


def test_a_dialect_that_is_off_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "from tests.python.hide_torch import hide_torch; hide_torch(); import meta\n"
        "try:\n  with meta.with_dialect('torch'): meta.softmax(meta.ones((2,)))\n"
        "except meta.errors.DispatchError as error: print(error)"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        "torch is off: torch is not installed; install it: pip install 'meta-tvm[torch]'; tvm (plevel"
        in completed.stdout
    )
