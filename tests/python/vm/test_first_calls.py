"""First calls of library kernels with a slow start, which programs make while other processes compile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meta.backend.tvm.parallel import processes
from meta.device import CPU, device
from meta.ir.expr import CallInfo
from meta.ir.type import tensor_type
from meta.op.registry import get
from meta.vm.build import generate
from meta.vm.build.generate import run_first_calls

CUDA = device("cuda")


def choice(calls: list[Any], *, dtype: str = "float32", slow: bool = True, checked: bool = False) -> Any:
    """A product of matrices whose kernel appends the shapes of its tensors to `calls`."""
    types = tensor_type((4, 3), dtype, CUDA), tensor_type((3, 2), dtype, CUDA)
    info = CallInfo(get("matmul"), (*types, False, False), tensor_type((4, 2), dtype, CUDA), CUDA)
    on = SimpleNamespace(kernel=lambda *_: lambda *tensors: calls.append([t.shape for t in tensors]))
    return SimpleNamespace(
        info=info, implementation=SimpleNamespace(options={"slow_start": slow}, dialect=on), checked=checked
    )


def source(*choices: Any, on: Any = CUDA) -> Any:
    packed = {f"kernel{i}": c for i, c in enumerate(choices)}
    return SimpleNamespace(device=on, choices=SimpleNamespace(packed=lambda: packed))


@pytest.fixture(autouse=True)
def emptied(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The devices whose unused memory is given back; tensors have a shape and no memory."""
    devices: list[Any] = []
    monkeypatch.setattr(generate.allocation, "allocator", lambda t: lambda: SimpleNamespace(shape=t.shape))
    monkeypatch.setattr(generate.memory_pool, "empty_cache", devices.append)
    return devices


def test_kernels_with_a_slow_start_are_called_once(emptied: list[Any]) -> None:
    calls: list[Any] = []
    run_first_calls(source(choice(calls), choice(calls, slow=False)))
    assert calls == [[(4, 3), (3, 2), (4, 2)]]
    assert emptied == [CUDA]


@pytest.mark.parametrize("options", [{"slow": False}, {"checked": True}, {"dtype": "int64"}])
def test_other_kernels_are_not_called(options: Any, emptied: list[Any]) -> None:
    calls: list[Any] = []
    run_first_calls(source(choice(calls, **options)))
    assert not calls
    assert not emptied


def test_on_the_cpu_no_process_waits() -> None:
    calls: list[Any] = []
    run_first_calls(source(choice(calls), on=CPU))
    assert not calls


def test_a_failing_call_is_left_to_the_program() -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    calls: list[Any] = []
    failing = choice(calls)
    failing.implementation.dialect.kernel = fail
    run_first_calls(source(failing, choice(calls)))
    assert len(calls) == 1


def test_they_are_made_before_results_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    monkeypatch.setattr(processes, "_workers", [SimpleNamespace(stdin=None, stdout=None)])
    monkeypatch.setattr(processes, "send", lambda *_: None)
    monkeypatch.setattr(processes, "receive", lambda _: ("compiled", b"code", []))
    requests: Any = [("target", False, []), ("target", False, [])]
    for number, code in processes.compile_all(requests, lambda: events.append("first calls")):
        assert code == (b"code", [])
        events.append(f"result {number}")
    assert events == ["first calls", "result 0", "result 1"]
