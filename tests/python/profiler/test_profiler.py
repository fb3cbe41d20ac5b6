"""Profiles of eager code and of compiled programs: times, lines, traces, memory, NVTX ranges."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import FileError, MetaError
from meta.modes import modes, scopes
from meta.profiler import memory, nvtx

KIB = 1024


def line_here(back: int = 0) -> str:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno - back}"


@pytest.fixture(scope="module")
def training() -> Any:
    """A compiled training step, its inputs, and its parameters before the first call."""
    meta.random.seed(0)
    model = meta.nn.Sequential(meta.nn.Linear(8, 16), meta.nn.ReLU(), meta.nn.Linear(16, 4))
    optimizer = meta.optim.SGD(model, 0.1, 0.9)

    @meta.trace
    def step(x, target):
        optimizer.zero_grad()
        loss = meta.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    inputs = meta.random.normal((6, 8)), meta.array([0, 1, 2, 3, 0, 1])
    state = [*model.parameters(), *optimizer.slots["velocity"].values()]
    return meta.vm.compile(step), inputs, state


@pytest.fixture(scope="module")
def program_profile(training: Any) -> Any:
    step, inputs, _ = training
    with meta.profiler.profile() as p:
        step(*inputs)
        step(*inputs)
    return p


def test_eager_operators_have_times_lines_and_operands() -> None:
    x = meta.array(np.ones((4, 8), np.float32), requires_grad=True)
    for _ in range(2):
        meta.softmax(x).sum().backward()  # from the second call on, gradients are added
    with meta.profiler.profile() as p:
        y = meta.softmax(x); forward = line_here()  # fmt: skip  # noqa: E702
        y.sum().backward(); backward = line_here()  # fmt: skip  # noqa: E702
    by_name = {e.name: e for e in p.events}
    assert by_name["softmax"].lines == (forward,)
    assert by_name["softmax_dx"].lines == (backward,)
    assert by_name["softmax"].shapes == "float32[4x8]"
    assert all(0 < e.own <= e.duration for e in p.events)
    starts = [e.start for e in p.events]
    assert starts == sorted(starts)
    assert {e.kind for e in p.events} == {"operator"}


def test_a_kernel_that_is_built_is_an_event_apart() -> None:
    @meta.define("profiled::twice", meta.schema.Schema("twice", meta.schema.Arg("x", meta.schema.Tensor)),
                 tvm=lambda x: x + x)  # fmt: skip
    def twice(x: Any) -> Any:
        return x

    x = meta.ones((3,))
    try:
        with meta.profiler.profile() as p:
            meta.ops.profiled.twice(x)
    finally:
        meta.unregister("profiled::twice")
    assert [(e.kind, e.name) for e in p.events] == [("compile", "profiled::twice"), ("operator", "profiled::twice")]


def test_programs_run_with_the_same_effects_and_report_their_kernels(training: Any) -> None:
    step, inputs, state = training
    saved = [x.detach().copy() for x in state]
    expected = [step(*inputs).item() for _ in range(2)]
    after = [x.detach().numpy().copy() for x in state]
    with meta.no_grad():
        for x, value in zip(state, saved, strict=True):
            x.update(value)
    with meta.profiler.profile() as p:
        losses = [step(*inputs).item() for _ in range(2)]
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    for x, value in zip(state, after, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), value, rtol=1e-5, atol=1e-7)
    programs = [e for e in p.events if e.kind == "program"]
    kernels = [e for e in p.events if e.kind == "kernel"]
    assert [e.name for e in programs] == ["step", "step"]
    assert {"dense", "sgd"} <= {name.rpartition(".")[2] for e in kernels for name in e.operators}
    assert all(e.lines and all(line.startswith(__file__) for line in e.lines) for e in kernels)
    assert sum(e.duration for e in kernels) + sum(e.own for e in programs) == sum(e.duration for e in programs)


def test_a_program_is_compiled_for_profiles_once(training: Any, program_profile: Any) -> None:
    step, inputs, _ = training
    with meta.profiler.profile() as p:
        step(*inputs)
    assert "compile" not in {e.kind for e in p.events}


def test_gradients_of_compiled_calls_are_profiled() -> None:
    model = meta.nn.Linear(4, 3)
    executor = meta.vm.compile(model)
    x = meta.ones((2, 4))
    executor(x).sum().backward()
    expected = model.w.grad.numpy().copy()
    model.w.grad = None
    with meta.profiler.profile() as p:
        executor(x).sum().backward()
    np.testing.assert_allclose(model.w.grad.numpy(), expected, rtol=1e-6)
    assert any(e.kind == "kernel" for e in p.events)


def test_rows_add_up(program_profile: Any) -> None:
    rows = program_profile.rows()
    assert sum(r.calls for r in rows) == len(program_profile.events)
    assert [r.own for r in rows] == sorted((r.own for r in rows), reverse=True)
    assert sum(r.own for r in rows) == pytest.approx(sum(e.own for e in program_profile.events) / 1e3)


def test_the_table_names_kernels_and_lines(program_profile: Any) -> None:
    text = str(program_profile)
    assert text.splitlines()[0].split() == ["kind", "name", "calls", "total", "us", "own", "us", "own", "%", "line"]
    assert "test_profiler.py:" in text
    assert "cross_entropy" in text
    assert program_profile.table(limit=2).splitlines()[-1].split()[:2] == [str(len(program_profile.rows()) - 2), "more"]


def test_rich_draws_the_table(program_profile: Any) -> None:
    console = pytest.importorskip("rich.console")
    recorded = console.Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    recorded.print(program_profile)
    recorded.file.close()
    assert "cross_entropy" in recorded.export_text()


def test_the_trace_has_the_format_of_chrome(program_profile: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    program_profile.save_trace(path)
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(program_profile.events)
    for e in events:
        assert isinstance(e["name"], str)
        assert isinstance(e["pid"], int)
        assert 0 < e["tid"] < 2**32  # Perfetto ignores larger numbers of threads
        assert e["ph"] in "XCM"
    assert all(e["ts"] >= 0 and e["dur"] > 0 for e in complete)
    programs = [e for e in complete if e["cat"] == "program"]
    for kernel in (e for e in complete if e["cat"] == "kernel"):
        assert kernel["args"]["operators"]
        assert any(p["ts"] <= kernel["ts"] and kernel["ts"] + kernel["dur"] <= p["ts"] + p["dur"] for p in programs)
    counters = [e for e in events if e["ph"] == "C"]
    assert counters
    assert all(e["args"]["bytes"] > 0 for e in counters)


def test_a_trace_that_cannot_be_written(program_profile: Any, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"\[save\] cannot write .*missing.*; expected a directory"):
        program_profile.save_trace(tmp_path / "missing" / "trace.json")


def test_bytes_of_eager_results_count_while_they_live() -> None:
    x = meta.ones((256,))  # 1 KiB
    meta.relu(x)
    with meta.profiler.profile() as p:
        y = meta.relu(x)
        z = meta.relu(y)
        view = z.reshape((16, 16))
        del y, z
        meta.relu(x)
        del view
        w = meta.relu(x)
    relus = [e.living for e in p.events if e.name == "relu"]
    assert relus == [KIB, 2 * KIB, 2 * KIB, KIB]
    assert p.peak() == 2 * KIB
    assert w.shape == (256,)


def test_bytes_of_programs_follow_their_plan(training: Any, program_profile: Any) -> None:
    step, inputs, _ = training
    report = step.memory(*inputs)
    living = [e.living for e in program_profile.events if e.kind == "kernel"]
    assert min(living) > report.state
    assert max(living) <= report.state + report.constants + report.intermediates + report.outputs
    assert len(set(living)) > 2


def test_the_memory_plot_is_a_png(program_profile: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "memory.png"
    program_profile.save_memory(path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_plot_without_matplotlib_says_what_to_install(
    program_profile: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "find_spec", lambda name: None)
    text = r"\[profiler\] matplotlib is not installed; expected matplotlib, which draws the plot; pip install .*demo"
    with pytest.raises(MetaError, match=text):
        program_profile.save_memory(tmp_path / "memory.png")
    assert not list(tmp_path.iterdir())


def test_a_plot_of_nothing_is_refused(tmp_path: Path) -> None:
    with meta.profiler.profile() as p:
        pass
    with pytest.raises(MetaError, match=r"\[profiler\] no event has a known number of living bytes; expected"):
        p.save_memory(tmp_path / "memory.png")


def test_annotated_code_is_a_range_around_its_operators() -> None:
    x = meta.ones((3,))
    meta.relu(x)
    with meta.profiler.annotate("outside"):
        meta.relu(x)
    with meta.profiler.profile() as p, meta.profiler.annotate("part"):
        meta.relu(x)
    relu, part = p.events
    assert (part.kind, part.name, relu.name) == ("range", "part", "relu")
    assert part.start <= relu.start
    assert part.own == part.duration - relu.duration


def test_a_profile_ends_with_its_block() -> None:
    before = scopes.active
    x = meta.ones((3,))
    with pytest.raises(ZeroDivisionError), meta.profiler.profile() as p:
        meta.relu(x) * (1 / 0)
    assert modes.profiler is None
    assert scopes.active == before
    count = len(p.events)
    meta.relu(x)
    assert len(p.events) == count


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The calls that a substitute for the package nvtx records."""
    calls: list[str] = []
    package = SimpleNamespace(push_range=calls.append, pop_range=lambda: calls.append("end"), __spec__=object())
    monkeypatch.setitem(sys.modules, "nvtx", package)
    nvtx.ranges.cache_clear()
    yield calls
    nvtx.ranges.cache_clear()


def test_nvtx_ranges_nest(pushed: list[str]) -> None:
    x = meta.ones((3,))
    meta.relu(x)
    with meta.profiler.nvtx_ranges() as ranges, meta.profiler.annotate("part"):
        meta.relu(x)
    assert ranges
    assert pushed == ["part", "relu", "end", "end"]


def test_programs_keep_their_machine_under_nvtx_ranges(training: Any, pushed: list[str]) -> None:
    step, inputs, _ = training
    step(*inputs)
    with meta.profiler.nvtx_ranges():
        step(*inputs)
    assert pushed == ["step", "end"]


def test_kernels_are_ranges_of_a_profile_with_nvtx(training: Any, program_profile: Any, pushed: list[str]) -> None:
    step, inputs, _ = training
    with meta.profiler.profile(nvtx=True) as p:
        step(*inputs)
    assert pushed[0] == "step"
    assert pushed.count("end") == len(p.events) == len(pushed) / 2


def test_without_nvtx_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    for source in ("_package", "_torch", "_library"):
        monkeypatch.setattr(nvtx, source, lambda: None)
    nvtx.ranges.cache_clear()
    try:
        with meta.profiler.nvtx_ranges() as ranges:
            assert not ranges
            assert modes.profiler is None
    finally:
        nvtx.ranges.cache_clear()
