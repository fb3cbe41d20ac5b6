"""Dialects from outside of the package: registration, dispatch, `explain`, and removal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.memory.numpy_arrays import to_numpy
from meta.cli import main
from meta.device import CPU
from meta.errors import DispatchError
from meta.ir.expr import CallInfo
from meta.ir.type import tensor_type
from meta.testing import opcheck
from tests.python.op.user_dialect import ran, sevens, softmax
from tests.python.recorded import array

# --- implementations -------------------------------------------------------------------------------------------------


def test_runs_eagerly_differentiated_in_programs_and_in_the_interpreter(mine: Any) -> None:
    assert mine.implement("softmax", softmax) is softmax
    x = array(4, 5)
    expected = meta.softmax(x.detach(), axis=0).numpy()
    with meta.with_dialect("tvm"):
        np.testing.assert_allclose(expected, meta.softmax(x, axis=0).numpy(), rtol=1e-5)
    executor = meta.vm.compile(meta.trace(lambda x: meta.softmax(meta.tanh(x), axis=0) * 2.0))
    with meta.with_dialect("tvm"):
        by_tvm = meta.softmax(meta.tanh(x), axis=0).numpy() * 2.0
    np.testing.assert_allclose(executor(x).numpy(), by_tvm, rtol=1e-5)
    assert "mine.softmax(float32[4x5])  1      plevel 20 accepts" in executor.explain(x)
    (dialects,) = [finding for finding in opcheck("softmax", (x,)).findings if finding.check == "dialects"]
    assert dialects.status == "passed"


def test_opcheck_finds_a_wrong_implementation(mine: Any) -> None:
    mine.implement("tanh", sevens)
    with pytest.raises(AssertionError, match=r"dialects, sample 0: .*mine"):
        opcheck("tanh", (array(2, 3),))


def test_functions_of_operators_and_decorators(mine: Any) -> None:
    decorated = mine.implement(meta.tanh)(sevens)
    assert decorated is sevens
    assert ran("tanh")
    mine.remove(meta.tanh)
    assert not ran("tanh")


def test_receives_lists_absent_tensors_and_several_results(mine: Any) -> None:
    seen: list[Any] = []

    @mine.implement("concatenate")
    def concatenate(tensors: Any, axis: int, *, out: Any) -> None:
        seen.append(len(tensors))
        np.concatenate(tensors, axis, out=out)

    @mine.implement("dense")
    def dense(x: Any, w: Any, bias: Any, *, out: Any) -> None:
        seen.append(bias)
        np.matmul(x, w.T, out=out)

    @mine.implement("topk")
    def topk(x: Any, *attributes: Any, out: Any) -> None:
        seen.append(type(out))
        for result in out:
            result[...] = 0

    x = array(2, 3)
    assert meta.concatenate([x, x], 0).shape == (4, 3)
    np.testing.assert_allclose(meta.dense(x, x).numpy(), x.numpy() @ x.numpy().T, rtol=1e-5)
    assert [r.tolist() for r in meta.topk(x, 1)] == [[[0.0], [0.0]], [[0], [0]]]
    assert seen == [2, None, tuple]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "bool", "float64"])
def test_arrays_share_memory_in_every_dtype(mine: Any, dtype: str) -> None:
    @mine.implement("add")
    def add(x1: Any, x2: Any, *, out: Any) -> None:
        out[...] = np.add(x1, x2)

    x = meta.array([[0, 1, 1]], dtype=dtype)
    expected = np.add(x.numpy(), x.numpy()).astype(np.float64)
    assert meta.explain("add", x, x).chosen == "mine"
    assert np.array_equal(meta.add(x, x).numpy().astype(np.float64), expected)
    program = meta.vm.compile(meta.trace(lambda x: meta.add(x, x)))
    assert np.array_equal(program(x).numpy().astype(np.float64), expected)


def test_makers_see_the_call_once(mine: Any) -> None:
    calls: list[CallInfo] = []

    @mine.implement_maker("softmax")
    def make(call: CallInfo) -> Callable[..., None]:
        calls.append(call)
        axis = call.bind()["axis"]
        return lambda x, out: softmax(x, axis, out=out)

    for _ in range(3):
        meta.softmax(array(2, 3), axis=0)
    (call,) = calls
    assert (call.op.name, call.args, call.out, call.device) == (
        "softmax", (tensor_type((2, 3)), 0), tensor_type((2, 3)), CPU,
    )  # fmt: skip


def test_dlpack_tensors_are_the_tensors_of_the_kernels() -> None:
    with meta.register_dialect("raw", plevel=20, tensors="dlpack") as raw:

        @raw.implement("softmax")
        def on_raw_tensors(x: Any, axis: int, *, out: Any) -> None:
            assert hasattr(x, "__dlpack__")
            softmax(to_numpy(x, "float32", x.shape, CPU), axis, out=to_numpy(out, "float32", out.shape, CPU))

        assert meta.softmax(array(2, 3)).sum().item() == pytest.approx(2.0)
        assert meta.explain("softmax", array(2, 3)).chosen == "raw"


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    with meta.register_dialect("by_torch", plevel=20, devices=("cpu", "cuda"), tensors="torch") as dialect:

        @dialect.implement("softmax")
        def by_torch(x: Any, axis: int, *, out: Any) -> Any:
            return torch.softmax(x, axis, out=out)

        x = array(2, 3)
        np.testing.assert_allclose(meta.softmax(x).numpy(), torch.softmax(torch.from_dlpack(x), -1), rtol=1e-5)
        assert meta.explain("softmax", x).chosen == "by_torch"


def test_torch_dialects_are_off_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meta.op.user.dialects.find_spec", lambda name: None)
    with meta.register_dialect("by_torch", plevel=20, tensors="torch") as dialect:
        dialect.implement("tanh", sevens)
        assert "by_torch (plevel 20): off: torch is not installed" in str(meta.explain("tanh", array(2, 3)))


# --- choice ----------------------------------------------------------------------------------------------------------


def test_accepts_of_the_dialect_and_of_the_implementation() -> None:
    def only_matrices(call: CallInfo) -> str | None:
        return None if call.tensors()[0].ndim == 2 else "not a matrix"

    def small(call: CallInfo) -> str | None:
        return "too large" if call.tensors()[0].size > 6 else None

    with meta.register_dialect("mine", plevel=20, accepts=only_matrices) as mine:
        mine.implement("tanh", sevens, accepts=small)
        assert ran()
        for x, reason in ((array(3), "not a matrix"), (array(3, 4), "too large")):
            explained = meta.explain("tanh", x)
            assert explained.chosen == "tvm"
            assert f"mine (plevel 20): {reason}" in str(explained)
            np.testing.assert_allclose(meta.tanh(x).numpy(), np.tanh(x.numpy()), rtol=1e-5)
        gpu = tensor_type((2, 3), "float32", "cuda")
        assert "mine (plevel 20): not on cuda" in str(meta.explain("tanh", gpu))


@pytest.mark.parametrize("answer", [True, False, 3, "", ["no"]])
def test_a_check_returns_none_or_a_reason(mine: Any, answer: Any) -> None:
    def check(call: CallInfo) -> Any:
        return answer

    mine.implement("tanh", sevens, accepts=check)
    with pytest.raises(DispatchError) as caught:
        meta.tanh(array(2))
    assert caught.value.summary == (
        f"[mine.tanh] its check of a call returned {answer!r}; expected None to accept the call, or the reason to "
        "refuse it as a text; return None if something else than a reason is true"
    )
    assert caught.value.location == f"{__file__}:{check.__code__.co_firstlineno}"


def test_a_check_that_raises_is_named_with_its_line(mine: Any) -> None:
    def check(call: CallInfo) -> str | None:
        return call.bind()["axis"]

    mine.implement("tanh", sevens, accepts=check)
    with pytest.raises(DispatchError, match=r"\[mine.tanh\] its check of a call raised KeyError: 'axis'") as caught:
        meta.explain("tanh", array(2))
    assert caught.value.location == f"{__file__}:{check.__code__.co_firstlineno + 1}"


def test_equal_plevels_go_by_registration() -> None:
    with meta.register_dialect("one", plevel=10) as one, meta.register_dialect("two", plevel=10) as two:
        two.implement("tanh", sevens)
        one.implement("tanh", sevens)
        lines = str(meta.explain("tanh", array(2))).split("\n")
        assert lines == [
            "tanh: two",
            "  two (plevel 10, registered after one, tvm): accepts",
            "  one (plevel 10, registered after tvm): accepts",
            "  tvm (plevel 10, registered before two, one): accepts",
            "  reference (plevel 1): accepts",
        ]
        with meta.with_dialect(["one", two]):
            assert meta.explain("tanh", array(2)).chosen == "one"
            assert "registered" not in str(meta.explain("tanh", array(2)))
        executor = meta.vm.compile(meta.trace(lambda x: meta.tanh(x)))
        assert "plevel 10, registered after one, tvm accepts" in executor.explain(array(2))


def test_by_name_only(mine: Any) -> None:
    mine.set_plevel(0)
    mine.implement("tanh", sevens)
    assert not ran()
    for name in ("mine", ["mine", "tvm"], mine):
        with meta.with_dialect(name):
            assert ran()


def test_probes_once_and_again_after_refresh() -> None:
    answers = ["no library", None]
    calls = []

    def probe() -> str | None:
        calls.append(1)
        return answers[0]

    with meta.register_dialect("mine", plevel=20, probe=probe) as mine:
        mine.implement("tanh", sevens)
        assert not ran()
        assert not ran()
        assert "mine (plevel 20): off: no library" in str(meta.explain("tanh", array(2)))
        assert len(calls) == 1
        answers.pop(0)
        assert not ran()
        mine.refresh()
        assert ran()


def test_a_probe_that_fails_turns_the_dialect_off() -> None:
    with meta.register_dialect("mine", plevel=20, probe=lambda: 1 / 0) as mine:  # type: ignore[arg-type,return-value]
        mine.implement("tanh", sevens)
        assert not ran()
        assert "off: its probe raised ZeroDivisionError: division by zero" in str(meta.explain("tanh", array(2)))


# --- changes ---------------------------------------------------------------------------------------------------------


def test_every_change_takes_effect_in_the_next_call(mine: Any) -> None:
    assert not ran()
    mine.implement("tanh", sevens)
    assert ran()
    mine.set_plevel(5)
    assert not ran()
    mine.set_plevel(11, "tanh")
    assert ran()
    mine.set_plevel(-1)
    assert ran()
    mine.remove("tanh")
    assert not ran()
    mine.implement("tanh", sevens, plevel=30)
    assert ran()
    mine.unregister()
    assert not ran()


def test_changes_reach_calls_inside_of_with_dialect_and_of_numbers(mine: Any) -> None:
    def eights(*args: Any, out: Any) -> None:
        out[...] = 8.0

    x = meta.array([1.0])
    mine.implement("add", sevens)
    with meta.with_dialect("mine"):
        assert (meta.add(x, 2.0).item(), meta.add(x, x).item()) == (7.0, 7.0)
        mine.implement("add", eights, override=True)
        assert (meta.add(x, 2.0).item(), meta.add(x, x).item()) == (8.0, 8.0)
    mine.remove("add")
    assert (meta.add(x, 2.0).item(), meta.add(x, x).item()) == (3.0, 2.0)


def test_a_runner_that_is_being_built_during_a_change_is_not_kept(mine: Any) -> None:
    """As when another thread registers an implementation while this one builds a kernel."""

    def make(call: CallInfo) -> Callable[..., None]:
        mine.implement("tanh", sevens, override=True)
        return lambda x, out: np.copyto(out, 1.0)

    mine.implement_maker("tanh", make)
    assert meta.tanh(array(2, 3)).tolist() == [[1.0] * 3] * 2
    assert ran()


def test_warm_calls_look_nothing_up(mine: Any) -> None:
    """Changes of other operators leave the runners of an operator."""
    from meta.eager.call import state
    from meta.op.registry import get

    meta.tanh(array(2, 3))
    before = dict(state(get("tanh")).fast)
    mine.implement("softmax", softmax)
    assert before
    assert state(get("tanh")).fast == before


def test_new_programs_use_new_implementations_and_compiled_ones_keep_theirs(mine: Any) -> None:
    def nines(*args: Any, out: Any) -> None:
        out[...] = 9.0

    def compiled() -> Any:
        return meta.vm.compile(meta.trace(lambda x: meta.tanh(x) + 1.0))

    x = array(2, 3)
    mine.implement("tanh", sevens)
    first = compiled()
    assert first(x).tolist() == [[8.0] * 3] * 2
    mine.implement("tanh", nines, override=True)
    second = compiled()
    assert second(x).tolist() == [[10.0] * 3] * 2
    mine.unregister()
    np.testing.assert_allclose(compiled()(x).numpy(), np.tanh(x.numpy()) + 1.0, rtol=1e-5)
    with meta.register_dialect("mine", plevel=20) as again:
        again.implement("tanh", sevens)
        assert compiled()(x).tolist() == [[8.0] * 3] * 2
    assert first(x).tolist() == [[8.0] * 3] * 2
    assert second(x).tolist() == [[10.0] * 3] * 2


def test_programs_fuse_around_implementations_for_eager_calls(mine: Any) -> None:
    mine.implement("tanh", sevens, eager_only=True)
    assert ran()
    program = meta.vm.compile(meta.trace(lambda x: meta.tanh(x)))
    assert "mine refused: for eager calls only" in program.explain(array(2, 3))


# --- commands --------------------------------------------------------------------------------------------------------


def test_commands_know_the_dialect(mine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mine.implement("tanh", sevens)
    main(["env"])
    assert re.search(r"\n  mine +on, plevel 20, for cpu\n", capsys.readouterr().out)
    main(["explain", "tanh", "(2, 3) float32"])
    assert "mine (plevel 20): accepts" in capsys.readouterr().out
    main(["op", "tanh"])
    described = capsys.readouterr().out
    assert "mine" in described
    line = sevens.__code__.co_firstlineno
    assert re.search(rf"mine, plevel 20, for cpu\s+\S*user_dialect.py:{line}\n", described)


def test_copies_between_devices_are_not_restricted(mine: Any) -> None:
    """A program's dialect cannot be asked to copy: `x.to(...)` works inside `with_dialect`."""
    mine.implement("tanh", sevens)
    with meta.with_dialect("mine"):
        assert meta.device_copy(array(2), "cpu").tolist() == array(2).tolist()
        with pytest.raises(DispatchError, match="not among with_dialect"):
            meta.exp(array(2))
