"""Saved programs: calls in another process, the form of their arguments and results, and what cannot be saved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.dim import sym
from meta.errors import ArgumentError, GradientError, NotSupportedError
from meta.ir.expr import MUTATES
from meta.ir.type import tensor_type
from meta.schema import Arg, Float, Schema, Tensor


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("META_KEY_DIR", str(tmp_path / "key"))
    return tmp_path / "key"


@meta.trace
def scaled(x: Any, y: Any = None, *, by: float = 2.0, names: Any = ("a",)) -> Any:
    return {"x": meta.tanh(x) * by, "rest": [x.sum() if y is None else x + y["y"][0], names, 1.5]}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A program of one call, `scaled(x)` with x of shape (3,)."""
    executor = meta.vm.compile(scaled)
    executor.program(meta.ones((3,)))
    executor.save(tmp_path / "scaled")
    return tmp_path / "scaled"


def _elsewhere(code: str, *arguments: str) -> str:
    """The output of a process that has nothing of this module."""
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert process.returncode == 0, process.stderr
    return process.stdout


STEPS = """
import sys
import meta
step = meta.vm.load(sys.argv[1])
meta.random.default_generator.state = (0, int(sys.argv[2]))
x, target = meta.array([[1.0] * 3] * 4), meta.array([0, 1, 1, 0])  # without kernels of eager calls
print(*(step(x, target)["loss"].item().hex() for _ in range(2)))
print(sorted(step.state))
print("tvm" in sys.modules, "torch" in sys.modules)
"""


def test_a_training_step_goes_on_in_another_process(tmp_path: Path, remove_operators: None) -> None:
    from tvm import topi

    meta.define(
        "damped", Schema("damped", Arg("x", Tensor), Arg("by", Float, 0.5)), gradient={"x": "dy * by"},
        tvm=lambda x, by: topi.multiply(x, topi.full_like(x, by)),
    )(lambda x, by: x)  # fmt: skip
    with meta.with_dialect("tvm"):
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
        optimizer = meta.optim.SGD(model, learning_rate=0.1, momentum=0.9)

        @meta.trace
        def step(x: Any, target: Any) -> Any:
            optimizer.zero_grad()
            loss = meta.cross_entropy(meta.damped(model(x)), target)
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        executor = meta.vm.compile(step)
    x, target = meta.ones((4, 3)), meta.array([0, 1, 1, 0])
    meta.random.seed(0)
    executor(x, target)
    executor.save(tmp_path / "step")
    offset = meta.random.default_generator.state[1]
    expected = " ".join(executor(x, target)["loss"].item().hex() for _ in range(2))
    _elsewhere("import meta, sys; meta.vm.load(sys.argv[1])", str(tmp_path / "step"))  # code that all kernels call
    losses, names, loaded = _elsewhere(STEPS, str(tmp_path / "step"), str(offset)).splitlines()
    assert losses == expected
    assert {"model.layers.0.w", "optimizer.layers.0.w.velocity"} <= set(json.loads(names.replace("'", '"')))
    assert loaded == "False False", "neither TVM's compiler nor torch is needed"


def test_arguments_and_results_have_the_form_of_the_traced_function(tmp_path: Path) -> None:
    executor = meta.vm.compile(scaled)
    x = meta.array([0.5, -1.0, 2.0])
    calls: list[Any] = [((x,), {}), ((x, {"y": [x]}), {"by": 3.0}), ((), {"x": x, "names": {"b": [None, True]}})]
    expected = [executor(*args, **kwargs) for args, kwargs in calls]
    executor.save(tmp_path / "scaled")
    loaded = meta.vm.load(tmp_path / "scaled")
    assert repr(loaded) == "<LoadedExecutor scaled, 3 programs, 0 arrays on cpu>"
    for (args, kwargs), result in zip(calls, expected, strict=True):
        for _ in range(2):
            actual = loaded(*args, **kwargs)
            assert actual["x"].tolist() == result["x"].tolist()
            assert actual["rest"][0].tolist() == result["rest"][0].tolist()
            assert actual["rest"][1:] == result["rest"][1:]
    assert loaded(x.numpy())["x"].tolist() == expected[0]["x"].tolist()
    assert loaded.memory(x).inputs == 12


def test_arguments_that_no_program_fits(saved: Path) -> None:
    loaded = meta.vm.load(saved)
    with pytest.raises(ArgumentError, match=r"\[vm\] input 'x' is .*\(4,\).*; expected .*\(3,\)"):
        loaded(meta.ones((4,)))
    with pytest.raises(
        ArgumentError, match=r"scaled was not saved for these arguments; expected one of \(x: Tensor\[\(3,\),"
    ):
        loaded(meta.ones((3,)), by=4.0)
    with pytest.raises(ArgumentError, match="missing a required argument: 'x'"):
        loaded()


def test_state_is_updated_in_place_and_saved_with_meta_save(tmp_path: Path) -> None:
    model = nn.BatchNorm2d(2)
    executor = meta.vm.compile(meta.trace(lambda x: model(x)))
    x = meta.random.normal((2, 2, 3, 3))
    executor.program(x)
    executor.save(tmp_path / "norm")
    loaded = meta.vm.load(tmp_path / "norm")
    expected = executor(x).detach().numpy()
    assert loaded(x).numpy().tobytes() == expected.tobytes()
    state = {name.rpartition(".")[2]: array for name, array in loaded.state_dict().items()}
    for name, array in model.named_state():
        assert state[name].detach().numpy().tobytes() == array.detach().numpy().tobytes(), name
    meta.save(tmp_path / "state", loaded)
    other = meta.vm.load(tmp_path / "norm")
    meta.load(tmp_path / "state", other)
    assert all(x.tolist() == loaded.state[name].tolist() for name, x in other.named_state())
    with pytest.raises(ArgumentError, match=r"unknown: \['extra'\]; expected the names of the program"):
        other.load_state_dict({**other.state_dict(), "extra": x})
    with pytest.raises(ArgumentError, match=r"'.*' is .*; expected .*, as in the program"):
        other.load_state_dict(dict.fromkeys(other.state_dict(), x))


def test_gradients_that_a_program_leaves(tmp_path: Path) -> None:
    w = meta.array([1.0, 2.0], requires_grad=True)

    @meta.trace
    def step(x: Any) -> Any:
        loss = (x * w * w).sum()
        loss.backward()
        return loss

    executor = meta.vm.compile(step)
    x = meta.array([3.0, 4.0], requires_grad=True)
    executor.program(x)
    executor.save(tmp_path / "step")
    loaded = meta.vm.load(tmp_path / "step")
    assert loaded(x).item() == 19.0
    assert x.grad.tolist() == [1.0, 4.0]
    (state,) = loaded.state.values()
    assert state.grad.tolist() == [6.0, 16.0]
    assert w.grad is None
    with pytest.raises(ArgumentError, match="was not saved for these arguments"):
        loaded(meta.array([3.0, 4.0]))


def test_results_refuse_backward(saved: Path) -> None:
    x = meta.array([1.0, 1.0, 1.0], requires_grad=True)
    y = meta.vm.load(saved)(x)["x"]
    with pytest.raises(GradientError, match=r"a program from a file has no gradient; .*compile it from its source"):
        y.sum().backward()
    with meta.no_grad():
        assert not meta.vm.load(saved)(x)["x"].requires_grad


def test_modules_of_symbolic_sizes(tmp_path: Path) -> None:
    executor = meta.vm.compile(_module())
    executor.program(meta.ones((3, 2)), meta.ones((3, 2)))
    executor.save(tmp_path / "module")
    loaded = meta.vm.load(tmp_path / "module")
    for size in (1, 5):
        total = meta.zeros((size, 2))
        first, second = loaded(meta.ones((size, 2)), total)
        assert second is total
        assert total.tolist() == first.tolist() == meta.exp(meta.ones((size, 2))).tolist()


def _module() -> Any:
    """exp(x), and a total that it is added to in place."""
    kind = tensor_type((sym("n"), 2), "float32")
    record = meta.trace(lambda x, total: (meta.exp(x), total + meta.exp(x))).record(kind, kind)
    return record.module.with_function("main", replace(record.main, attrs={MUTATES: {1: 1}}))


LOOPS = """
import sys, meta
x = meta.array([[1.0, 2.0], [3.0, 4.0]])
a, b, c, d = meta.vm.load(sys.argv[1])(x)
print(a.tolist(), b.tolist(), c.tolist(), d.tolist())
"""


def test_loops_and_branches(tmp_path: Path) -> None:
    @meta.trace
    def loops(x: Any) -> Any:
        _, doubled = meta.while_loop(lambda v: v[0] < 5, lambda v: (v[0] + 1, v[1] * 2.0), (meta.array(0), x))
        total, sums = meta.scan(lambda carry, row: (carry + row, carry * row), meta.zeros((2,)), x)
        return doubled, total, sums, meta.cond(x.sum() > 0, lambda: x + 1.0, lambda: x - 1.0)

    executor = meta.vm.compile(loops)
    expected = executor(meta.array([[1.0, 2.0], [3.0, 4.0]]))
    executor.save(tmp_path / "loops")
    printed = _elsewhere(LOOPS, str(tmp_path / "loops"))
    assert printed.strip() == " ".join(str(x.tolist()) for x in expected)


def test_kernels_of_libraries_are_found_again(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with meta.with_dialect(["torch", "tvm"]):
        executor = meta.vm.compile(meta.trace(lambda x: (meta.matmul(x, x) + 1.0, meta.argwhere(x))))
    x = meta.array([[0.0, 2.0], [3.0, 0.0]])
    expected = executor(x)
    assert "torch.matmul" in executor.explain(x)
    executor.save(tmp_path / "library")
    code = "import sys, meta; a, b = meta.vm.load(sys.argv[1])(meta.array([[0.0, 2.0], [3.0, 0.0]]));"
    printed = _elsewhere(code + "print(a.tolist(), b.tolist())", str(tmp_path / "library"))
    assert printed.strip() == f"{expected[0].tolist()} {expected[1].tolist()}"


@pytest.fixture
def mine() -> Iterator[Any]:
    def negative(x: Any, *, out: Any) -> None:
        out[...] = -x

    def register() -> None:
        meta.register_dialect("mine", plevel=30).implement("negative", negative)

    register()
    yield register
    meta.unregister_dialect("mine")


def test_dialects_have_to_be_there(tmp_path: Path, mine: Any) -> None:
    executor = meta.vm.compile(meta.trace(lambda x: meta.negative(x) * 2.0))
    executor(meta.ones((2,)))
    assert "mine.negative" in executor.explain(meta.ones((2,)))
    executor.save(tmp_path / "negative")
    assert meta.vm.load(tmp_path / "negative")(meta.ones((2,))).tolist() == [-2.0, -2.0]
    code = """
import sys, meta
try:
    meta.vm.load(sys.argv[1])
except meta.errors.FileError as error:
    print(error)
"""
    text = _elsewhere(code, str(tmp_path / "negative"))
    assert "[load] the program calls functions that are not there: " in text
    assert "mine" in text
    assert "; import the package that registers them" in text


def test_replaced_implementations_cannot_be_saved(tmp_path: Path, mine: Any) -> None:
    meta.unregister_dialect("mine")
    mine()
    executor = meta.vm.compile(meta.trace(lambda x: meta.negative(x) * 3.0))
    executor(meta.ones((2,)))
    with pytest.raises(NotSupportedError, match=r"\[save\] mine.negative replaced another implementation in this proc"):
        executor.save(tmp_path / "negative")
    assert not (tmp_path / "negative").exists()


def test_what_has_not_been_compiled(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    executor = meta.vm.compile(model)
    with pytest.raises(ArgumentError, match=r"Linear has not been compiled; expected a program that is comp"):
        executor.save(tmp_path / "x")
    executor.program(meta.ones((1, 2)))
    with pytest.raises(ArgumentError, match="the format is 'onnx'; expected 'program' or 'c' or "):
        executor.save(tmp_path / "x", format="onnx")


def test_programs_of_changed_models_are_compiled_anew(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    executor = meta.vm.compile(model)
    x = meta.ones((4, 2))
    executor.program(x)
    executor.program(meta.ones((1, 2)))
    model.infer_mode()
    executor.save(tmp_path / "x")
    loaded = meta.vm.load(tmp_path / "x")
    assert loaded(x).tolist() == model(x).tolist()
    assert repr(loaded) == "<LoadedExecutor Sequential, 2 programs, 2 arrays on cpu>"


def test_arguments_that_have_no_text_cannot_be_saved(tmp_path: Path) -> None:
    executor = meta.vm.compile(scaled)
    executor.program(meta.ones((2,)), names=(1j,))
    with pytest.raises(NotSupportedError, match=r"\[save\] a call has a complex; expected arrays, numbers, strings"):
        executor.save(tmp_path / "x")


def test_the_relax_module() -> None:
    executor = meta.vm.compile(scaled)
    x = meta.ones((3,))
    lowered, planned = executor.relax(x), executor.relax(x, stage="planned")
    assert "R.call_tir" in lowered.script()
    assert "R.builtin.alloc_tensor" in planned.script()
    assert lowered.script() == executor.ir(x, stage="relax")
    with pytest.raises(ArgumentError, match=r"\[relax\] there is no stage 'plan'; expected one of relax, planned; did"):
        executor.relax(x, stage="plan")


def test_numpy_arrays_that_a_program_overwrites_are_refused(tmp_path: Path) -> None:
    executor = meta.vm.compile(_module())
    executor.program(meta.ones((3, 2)), meta.ones((3, 2)))
    executor.save(tmp_path / "module")
    with pytest.raises(ArgumentError, match="is an array of another library, which the program"):
        meta.vm.load(tmp_path / "module")(meta.ones((3, 2)), np.ones((3, 2), "float32"))
