"""Plans of cuDNN that later processes take from disk, on graphs that need no GPU; settings of cuDNN."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meta.backend.cudnn import choices, frontend, plans, settings
from meta.backend.cudnn.c_functions import StatusError
from meta.device import CPU
from meta.errors import ArgumentError


class Graph:
    """Three plans, of which the second is the fastest. written: what cuDNN writes of a plan, if it does.
    loads: whether a later process can load it."""

    def __init__(self, written: bytes | None = b"kernels", loads: bool = True) -> None:
        self.handle = SimpleNamespace(device=CPU, stream=0)
        self.calls = list[str]()
        self.written, self.loads = written, loads

    def compiled_plan(self) -> bytes | None:
        return self.written

    def restore(self, data: bytes) -> int:
        self.calls.append("restore")
        if not self.loads or data != self.written:
            raise StatusError("a graph", "another version")
        return 0

    def build_plans(self, avoid: Any) -> range:
        self.calls.append("build_plans")
        return range(3)

    def fastest(self, *_: Any) -> int:
        self.calls.append("fastest")
        return 1

    def select(self, index: int) -> Any:
        return SimpleNamespace(take=lambda: None, index=index)

    def run(self, *_: Any) -> None:
        self.calls.append("run")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("META_CACHE", "1")
    monkeypatch.setattr(choices, "key", lambda problem, *_: f"cudnn-{problem}")
    monkeypatch.setattr(plans.driver, "is_capturing", lambda stream: False)


def run(graph: Graph, limit: int = 3) -> list[str]:
    """The calls of a graph of which a new process runs a plan."""
    solution = plans.Solution("conv", lambda: graph, limit, ())  # type: ignore[arg-type,return-value]
    solution.run(graph.handle, {})  # type: ignore[arg-type]
    return graph.calls


CHOSEN = ["build_plans", "fastest", "run"]


def test_later_processes_load_the_chosen_plan() -> None:
    assert run(Graph()) == CHOSEN
    assert run(Graph()) == ["restore", "run"]


def test_a_plan_that_does_not_load_is_chosen_and_stored_again() -> None:
    run(Graph())
    assert run(Graph(loads=False)) == ["restore", *CHOSEN]
    assert run(Graph()) == ["restore", "run"]


def test_the_only_plan_of_a_problem_is_also_kept() -> None:
    assert run(Graph(), limit=1) == ["build_plans", "run"]
    assert run(Graph(), limit=1) == ["restore", "run"]


def test_plans_that_cudnn_does_not_write_are_chosen_in_each_process() -> None:
    for _ in range(2):
        assert run(Graph(written=None)) == CHOSEN


@pytest.mark.parametrize(("limit", "again"), [(3, CHOSEN), (1, ["build_plans", "run"])])
def test_a_loaded_plan_that_does_not_run_is_chosen_again(limit: int, again: list[str]) -> None:
    class Failing(Graph):
        restored = False

        def restore(self, data: bytes) -> int:
            self.restored = True
            return super().restore(data)

        def build_plans(self, avoid: Any) -> range:
            self.restored = False
            return super().build_plans(avoid)

        def run(self, *_: Any) -> None:
            super().run()
            if self.restored:
                raise StatusError("a graph", "launch failed")

    run(Graph(), limit)
    assert run(Failing(), limit) == ["restore", "run", *again]
    assert run(Graph(), limit) == ["restore", "run"]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: data + b"\0"])
def test_damaged_entries_are_not_loaded(damage: Any, tmp_path: Any) -> None:
    run(Graph())
    (entry,) = tmp_path.rglob("*.compiled_plan")
    entry.write_bytes(damage(entry.read_bytes()))
    assert choices.read("cudnn-conv") is None
    assert run(Graph()) == CHOSEN
    assert choices.read("cudnn-conv") == b"kernels"


class BuiltPlans:
    """A graph of the frontend that counts how often it builds plans."""

    def __init__(self) -> None:
        self.built: list[int] = []

    def build_plan_at_index(self, index: int) -> None:
        self.built.append(index)

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return index


def operation_graph(graph: Any, monkeypatch: pytest.MonkeyPatch) -> frontend.OperationGraph:
    monkeypatch.setattr(frontend, "_error_classes", lambda: (RuntimeError,))
    operation: Any = frontend.OperationGraph.__new__(frontend.OperationGraph)
    operation.graph, operation.handle, operation.description = graph, SimpleNamespace(device=CPU), "graph"
    operation._built, operation._pointers, operation._restored = None, None, False
    return operation


def test_plans_that_are_selected_again_are_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = BuiltPlans()
    operation = operation_graph(graph, monkeypatch)
    for index in (1, 1, 0, 0, 1):
        operation.select(index)
    assert graph.built == [1, 0, 1]


@pytest.mark.parametrize(
    ("latencies", "times", "expected", "measured"),
    [
        ([3.0, 1.0, 1.2], [9.0, 1.0, 0.5], 2, {1, 2}),  # the first is too slow for a longer measurement
        ([3.0, 1.0, 9.0], [1.0, 1.0, 1.0], 1, set[int]()),
        ([1.0, 1.1, float("inf")], [1.0, 1.01, 0.1], 0, {0, 1}),  # of similar times the lower latency
    ],
)
def test_the_fastest_plan(
    latencies: list[float], times: list[float], expected: int, measured: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    longer: set[int] = set()

    def measure(index: int, repeats: int, runs: int) -> float:
        if repeats != 5:
            return latencies[index]
        longer.add(index)
        return times[index] * runs

    operation: Any = operation_graph(BuiltPlans(), monkeypatch)
    monkeypatch.setattr(operation, "_measure", lambda handle, i, addresses, repeats, runs: measure(i, repeats, runs))
    assert operation.fastest(None, range(3), 3, {}) == expected
    assert longer == measured


class PlannedGraph(BuiltPlans):
    """A graph of the frontend with the plans 0 to 5, of which 0 and 3 do not build."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def get_execution_plan_count(self) -> int:
        return 6

    def build_plan_at_index(self, index: int) -> None:
        super().build_plan_at_index(index)
        if index in (0, 3):
            raise RuntimeError("no such engine")


@pytest.fixture(name="planned")
def _planned(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An operation graph with the plans of `PlannedGraph`, each of which takes less time than those before it."""
    modes = SimpleNamespace(heur_mode=SimpleNamespace(A=0, FALLBACK=1))
    monkeypatch.setattr(frontend, "module", lambda: modes)
    operation: Any = operation_graph(PlannedGraph(), monkeypatch)

    def measure(_: Any, index: int, *__: Any) -> float:
        try:
            operation.select(index)
        except StatusError:
            return float("inf")
        return 10.0 - index

    monkeypatch.setattr(operation, "_measure", measure)
    return operation


def test_plans_are_built_when_they_are_measured(planned: Any) -> None:
    """Whether a problem has a plan is asked while programs are prepared, also in processes that measure none."""
    assert planned.build_plans() == range(1, 6)
    assert planned.graph.built == [0, 1]


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (2, 2), (3, 4), (9, 5)])
def test_the_limit_counts_plans_that_build(limit: int, expected: int, planned: Any) -> None:
    assert planned.fastest(None, planned.build_plans(), limit, {}) == expected


class LoadedGraph:
    """A graph of the frontend into which plans are loaded."""

    def __init__(self, **_: Any) -> None:
        self.data = b""

    def deserialize(self, handle: Any, data: bytes) -> None:
        if data != b"plan":
            raise RuntimeError("another version")
        self.data = data

    def serialize(self) -> list[int]:
        return list(b"plan")

    def get_workspace_size(self) -> int:
        return 24


@pytest.fixture(name="empty")
def _empty(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An operation graph into which plans can be loaded."""
    monkeypatch.setattr(frontend, "module", lambda: SimpleNamespace(pygraph=LoadedGraph))
    monkeypatch.setattr(frontend, "_handle", lambda handle: handle)
    return operation_graph(BuiltPlans(), monkeypatch)


def test_loaded_plans_are_selected_without_a_build(empty: Any) -> None:
    assert empty.compiled_plan() is None
    before = empty.graph
    assert empty.restore(b"plan") == 0
    assert (empty.select(0).size, before.built) == (24, [])
    assert empty.compiled_plan() == b"plan"


def test_a_graph_stays_as_it_is_where_a_plan_does_not_load(empty: Any) -> None:
    before = empty.graph
    with pytest.raises(StatusError, match="the compiled plan does not load"):
        empty.restore(b"something else")
    assert empty.graph is before
    empty.select(1)
    assert before.built == [1]


def test_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("META_CUDNN_TF32", raising=False)
    assert settings.tf32_allowed()
    monkeypatch.setenv("META_CUDNN_TF32", "0")
    assert not settings.tf32_allowed()
    settings.allow_tf32(True)
    assert settings.tf32_allowed()
    settings.allow_tf32(None)
    monkeypatch.setenv("META_CUDNN_TF32", "maybe")
    with pytest.raises(ArgumentError, match="META_CUDNN_TF32 is 'maybe'; expected 0 or 1"):
        settings.tf32_allowed()
