"""The CUDA driver with a fake cuda.bindings module: results, errors, missing packages and devices."""

from __future__ import annotations

import enum
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import meta
from meta.backend.cuda import driver, nvrtc
from meta.backend.cuda.bindings import bindings
from meta.device import device
from meta.errors import DeviceError


class Status(enum.IntEnum):
    """Some statuses of the driver."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100


OK = Status.CUDA_SUCCESS


class FakeDriver(SimpleNamespace):
    """A driver that records its calls. answers: results or errors of functions, `(OK,)` by default."""

    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=SimpleNamespace(value=2))
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=SimpleNamespace(value=1))
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL="thread local")

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.answers = answers
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def function(*args: Any) -> Any:
            if name != "cuInit":
                self.calls.append((name, *args))
            answer = self.answers.get(name, (OK,))
            if isinstance(answer, Exception):
                raise answer
            return answer

        return function


def clear_caches() -> None:
    """Clear the cached bindings and driver."""
    for cached in (bindings, driver.library, driver.device_count):
        cached.cache_clear()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that installs a fake driver with the given answers."""

    def install_fake(**answers: Any) -> FakeDriver:
        fake = FakeDriver(**answers)
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)  # type: ignore[arg-type]
        clear_caches()
        return fake

    yield install_fake
    clear_caches()


def test_failing_calls_name_the_function_and_the_error(install: Any) -> None:
    install(cuStreamSynchronize=(Status.CUDA_ERROR_OUT_OF_MEMORY,))
    with pytest.raises(DeviceError, match=r"^\[cuda\] cuStreamSynchronize failed: CUDA_ERROR_OUT_OF_MEMORY \(2\); see"):
        driver.synchronize(7)


def test_results_exclude_the_status(install: Any) -> None:
    fake = install(cuDeviceGetCount=(OK, 3), cuStreamCreate=(OK, 9), cuStreamIsCapturing=(OK, 1))
    assert driver.device_count() == 3
    assert driver.create_stream() == 9
    assert driver.is_capturing(9)
    assert not driver.is_capturing(0)
    assert driver.call("cuMemFreeAsync", 1, 2) == ()
    assert fake.calls == [
        ("cuDeviceGetCount",), ("cuStreamCreate", 1), ("cuStreamIsCapturing", 9), ("cuMemFreeAsync", 1, 2)
    ]  # fmt: skip


def test_destroys_the_event_of_a_failed_wait(install: Any) -> None:
    fake = install(cuEventCreate=(OK, "event"), cuStreamWaitEvent=(Status.CUDA_ERROR_NO_DEVICE,))
    with pytest.raises(DeviceError, match="cuStreamWaitEvent"):
        driver.make_stream_wait(5, 6)
    assert fake.calls == [
        ("cuEventCreate", 2), ("cuEventRecord", "event", 6), ("cuStreamWaitEvent", 5, "event", 0),
        ("cuEventDestroy", "event"),
    ]  # fmt: skip


def test_end_capture_returns_an_executable_graph(install: Any) -> None:
    fake = install(cuStreamEndCapture=(OK, 11), cuGraphInstantiate=(OK, 12))
    driver.begin_capture(3)
    assert driver.end_capture(3) == 12
    assert fake.calls == [
        ("cuStreamBeginCapture", 3, "thread local"), ("cuStreamEndCapture", 3), ("cuGraphInstantiate", 11, 0),
        ("cuGraphDestroy", 11),
    ]  # fmt: skip


@pytest.mark.parametrize(("answer", "destroyed"), [((OK, 11), True), ((OK, 0), False), ((Status(100), 0), False)])
def test_abandon_capture_destroys_the_graph(install: Any, answer: Any, destroyed: bool) -> None:
    fake = install(cuStreamEndCapture=answer)
    driver.abandon_capture(3)
    assert (("cuGraphDestroy", 11) in fake.calls) == destroyed


def test_probe_returns_the_reason(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(cuDeviceGetCount=(OK, 1))
    assert driver.probe() is None
    install(cuDeviceGetCount=(OK, 0))
    assert driver.probe() == "no CUDA device"
    install(cuInit=(Status.CUDA_ERROR_NO_DEVICE,))
    assert driver.probe() == "the CUDA driver does not start: CUDA_ERROR_NO_DEVICE (100)"
    install(cuInit=RuntimeError("libcuda.so.1 not found"))
    assert driver.probe() == "there is no CUDA driver here: libcuda.so.1 not found"
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    clear_caches()
    assert driver.probe() == "cuda.bindings.driver cannot be imported; install the extra: pip install 'meta-tvm[cuda]'"


def test_names_the_missing_package(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("driver", "nvrtc"):
        monkeypatch.setitem(sys.modules, f"cuda.bindings.{name}", None)
    clear_caches()
    text = (
        r"\[cuda\] cuda\.bindings\.{} cannot be imported; expected the package cuda-bindings; "
        r"install the extra: pip install 'meta-tvm\[cuda\]'"
    )
    with pytest.raises(DeviceError, match=text.format("driver")):
        driver.create_stream()
    monkeypatch.setattr(nvrtc.tvm, "Target", SimpleNamespace(current=lambda allow_none: None))
    monkeypatch.setattr(nvrtc.tvm, "compute_version", lambda target: "9.0")
    with pytest.raises(DeviceError, match=text.format("nvrtc")):
        nvrtc.compile_source("")


def test_imports_cuda_at_the_first_call() -> None:
    code = "import sys, meta.backend.cuda.driver; assert not {'cuda', 'tvm', 'tvm_ffi'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(driver.probe() is None, reason="this machine has CUDA")
def test_rejects_arrays_on_a_missing_device() -> None:
    reason = re.escape(str(driver.probe()))
    text = rf'^\[device\] there is no device cuda here: {reason}; expected "cpu", which every .*; write device="cpu"'
    with pytest.raises(DeviceError, match=text):
        meta.array([1.0], device="cuda")
    assert not meta.is_available("cuda")
    assert meta.is_available("cpu")


@pytest.mark.parametrize(("count", "times"), [(1, 1), (2, 3)])
def test_one_of_several_devices_is_set_in_each_call(
    install: Any, monkeypatch: pytest.MonkeyPatch, count: int, times: int
) -> None:
    """torch may have set another one in between."""
    install(cuDeviceGetCount=(OK, count))
    calls: list[int] = []
    monkeypatch.setattr(driver, "_thread", threading.local())
    monkeypatch.setattr(driver.tvm, "set_device", lambda _, index: calls.append(index), raising=False)
    for _ in range(3):
        driver.set_device(device("cuda:0"))
    assert calls == [0] * times
