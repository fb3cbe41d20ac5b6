"""Dialects from outside of the package: wrong registrations and implementations, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import KernelError, RegistryError
from meta.interpreter.run import run
from tests.python.op.user_dialect import ran, sevens, softmax
from tests.python.recorded import array


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": "tvm"}, "a dialect called 'tvm' exists already; expected a new name"),
        ({"name": "a-b"}, "a dialect cannot be called 'a-b'; expected a name as Python's, such as 'mine'"),
        ({"name": "class"}, "a dialect cannot be called 'class'; expected"),
        ({"name": 3}, "a dialect cannot be called 3; expected"),
        ({"plevel": "high"}, "plevel is 'high'; expected an int; tvm has 10, and a dialect with 0 or below runs only"),
        ({"plevel": True}, "plevel is True; expected an int"),
        ({"plevel": 1.5}, "plevel is 1.5; expected an int"),
        ({"devices": "gpu"}, "no kind of device is called 'gpu'; expected cpu or cuda"),
        ({"devices": ("cpu", "cdua")}, "no kind of device is called 'cdua'; expected .*; did you mean 'cuda'"),
        ({"devices": ()}, "devices is empty; expected at least one of cpu, cuda"),
        ({"devices": None}, "devices is None; expected kinds of devices: cpu, cuda"),
        ({"devices": [0]}, r"devices is \[0\]; expected kinds of devices: cpu, cuda"),
        ({"devices": "cuda"}, r"NumPy arrays cannot be on cuda; expected devices=\(\"cpu\",\); pass tensors="),
        ({"tensors": "pytorch"}, "tensors is 'pytorch'; expected one of numpy, torch, dlpack; did you mean 'torch'"),
        ({"accepts": "all"}, "accepts is str 'all'; expected a function of a CallInfo that returns None or a reason"),
        ({"probe": True}, "probe is bool True; expected a function without parameters that returns None or a reason"),
        ({"private_memory": 1}, "private_memory is int 1; expected a function of a device"),
    ],
)
def test_rejects_wrong_arguments(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(RegistryError, match=rf"\[register_dialect\] {text}") as caught:
        meta.register_dialect(**{"name": "mine", "plevel": 20, **arguments})
    assert caught.value.location.startswith(__file__)
    with pytest.raises(RegistryError, match="no dialect is called 'mine'"):
        meta.dialect("mine")


def test_rejects_a_second_dialect_of_a_name(mine: Any) -> None:
    with pytest.raises(RegistryError) as caught:
        meta.register_dialect("mine", plevel=3)
    assert caught.value.summary == (
        "[register_dialect] a dialect called 'mine' exists already; expected a new name; take another one, or call "
        "meta.unregister_dialect('mine') first"
    )


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (("tahn", sevens), {}, "none of .* operators is called 'tahn'; did you mean .*'tanh'"),
        ((3, sevens), {}, "the name is of class int"),
        (("tanh", 3), {}, r"\[mine.tanh\] its implementation is int 3; expected a function of the arguments and `out`"),
        (("tanh", sevens), {"plevel": "1"}, r"\[mine.tanh\] plevel is '1'; expected an int"),
        (("tanh", sevens), {"accepts": 1}, r"\[mine.tanh\] accepts is int 1; expected a function of a CallInfo"),
        (("tanh", sevens), {"confirm": 1}, r"\[mine.tanh\] confirm is int 1; expected a function of a CallInfo"),
    ],
)
def test_rejects_wrong_implementations(
    mine: Any, arguments: tuple[Any, ...], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(RegistryError, match=text):
        mine.implement(*arguments, **options)
    assert not ran()


def test_rejects_a_second_implementation_of_an_operator(mine: Any) -> None:
    mine.implement("tanh", softmax)
    with pytest.raises(RegistryError) as caught:
        mine.implement("tanh", sevens)
    assert caught.value.summary == (
        "[mine.tanh] is registered already; expected one implementation of an operator in a dialect; pass "
        "override=True to replace it"
    )
    mine.implement("tanh", sevens, override=True)
    assert ran()


def test_rejects_changes_of_what_is_not_registered(mine: Any) -> None:
    with pytest.raises(RegistryError, match=r"\[mine.tanh\] is not registered"):
        mine.remove("tanh")
    with pytest.raises(RegistryError, match=r"\[mine.tanh\] is not registered"):
        mine.set_plevel(3, "tanh")
    with pytest.raises(RegistryError, match=r"\[mine\] plevel is None"):
        mine.set_plevel(None)
    mine.unregister()
    with pytest.raises(RegistryError, match=r"\[mine.tanh\] dialect 'mine' was unregistered"):
        mine.implement("tanh", sevens)
    with pytest.raises(RegistryError, match=r"no dialect is called 'mine'; expected one of cudnn, torch, .*reference"):
        mine.unregister()
    with pytest.raises(RegistryError, match="'tvm' is a dialect of meta; expected one that register_dialect returned"):
        meta.unregister_dialect("tvm")


def test_rejects_results_that_are_returned(mine: Any) -> None:
    def returning(x: Any, *, out: Any) -> Any:
        return np.tanh(x)

    mine.implement("tanh", returning)
    with pytest.raises(KernelError) as caught:
        meta.tanh(array(2))
    assert caught.value.summary == (
        "[tanh] its mine implementation returned ndarray; expected nothing, or `out`; write the result into `out`: "
        "out[...] = result"
    )
    assert caught.value.location == f"{__file__}:{returning.__code__.co_firstlineno}"


def test_errors_of_implementations_and_makers_name_their_lines(mine: Any) -> None:
    def failing(x: Any, *, out: Any) -> None:
        raise ValueError("no")

    mine.implement("tanh", failing)
    with pytest.raises(KernelError, match=r"\[tanh\] its mine implementation raised ValueError: no") as caught:
        meta.tanh(array(2))
    assert caught.value.location == f"{__file__}:{failing.__code__.co_firstlineno + 1}"
    mine.implement_maker("tanh", lambda call: None, override=True)
    with pytest.raises(KernelError, match=r"the maker of its mine implementation returned NoneType; expected a func"):
        meta.tanh(array(2))
    mine.implement_maker("tanh", lambda call: 1 / 0, override=True)
    with pytest.raises(KernelError, match=r"the maker of its mine implementation raised ZeroDivisionError"):
        meta.tanh(array(2))


def test_kernels_of_one_signature_may_be_written_without_out_as_a_keyword(mine: Any) -> None:
    mine.implement("tanh", lambda x, out: np.tanh(x, out=out))
    x = array(2, 3)
    np.testing.assert_allclose(meta.tanh(x).numpy(), np.tanh(x.numpy()), rtol=1e-6)
    assert meta.explain("tanh", x).chosen == "mine"


def test_programs_raise_the_errors_of_eager_calls(mine: Any) -> None:
    def failing(x: Any, *, out: Any) -> None:
        if x[0] > 0:
            raise ValueError("no")
        out[...] = x

    mine.implement("tanh", failing)
    traced = meta.trace(lambda x: meta.tanh(x) + 1.0)
    module = traced.record(meta.ones((2,))).module
    compiled, whole = meta.vm.compile(traced), meta.vm.compile(module)
    state = meta.zeros((2,))
    writing = meta.vm.compile(meta.trace(lambda x: state.update(meta.tanh(x))))
    for call in (meta.tanh, compiled, whole, writing, lambda x: run(module, x)):
        with pytest.raises(KernelError, match=r"\[tanh\] its mine implementation raised ValueError: no") as caught:
            call(meta.ones((2,)))
        assert caught.value.location == f"{__file__}:{failing.__code__.co_firstlineno + 2}"
        assert isinstance(caught.value.__cause__, ValueError)
        call(-meta.ones((2,)))
    assert state.tolist() == [-1.0, -1.0]
