"""Kernels compute the right values, are built once and are loaded from disk."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import library
from meta.backend.tvm import target as targets
from meta.backend.tvm.kernel import build, digest, unscheduled
from meta.backend.tvm.schedule import patterns
from meta.backend.tvm.spec import KernelSpec, TensorSpec
from meta.cache import DiskCache
from meta.errors import KernelError
from tests.python.kernels_in_memory import forget_kernels

_ROOT = Path(__file__).resolve().parents[4]
_MN = TensorSpec(("m", "n"), "float32")


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("META_CACHE", raising=False)
    forget_kernels()
    yield
    forget_kernels()


def _add_one(x: Any) -> Any:
    return tvm.te.compute(x.shape, lambda *i: x(*i) + tvm.tirx.const(1, str(x.dtype)), name="y")


def _run(spec: KernelSpec, *inputs: Any, shape: Any = None, dtype: str = "") -> Any:
    arrays = [tvm.tensor(np.asarray(x)) for x in inputs]
    out = np.zeros(inputs[0].shape if shape is None else shape, dtype or inputs[0].dtype)
    result = tvm.tensor(out)
    build(spec).function(*arrays, result)
    return result.numpy()


def _spec(name: str = "add_one", key: str = "v1", **changes: Any) -> KernelSpec:
    fields: dict[str, Any] = {"args": (_MN,), "outs": (_MN,), "pattern": "elemwise"}
    return KernelSpec(name, key=key, **{"compute": _add_one, **fields, **changes})


@pytest.fixture(autouse=True, scope="module")
def _loaded() -> None:
    tvm.load()


_WARM = """
import sys
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.kernel import build
from meta.backend.tvm.spec import KernelSpec, TensorSpec
import numpy as np
n = TensorSpec(("n",), "float32")
def scale(x, factor):
    return tvm.te.compute(x.shape, lambda j: x[j] * float(factor), name="y")
kernel = build(KernelSpec("k3", scale, (n, 3), (n,), "elemwise", key="1")).function
x, y = np.ones(5, "float32"), np.zeros(5, "float32")
kernel(tvm.from_dlpack(x), tvm.from_dlpack(y))
assert (y == 3).all()
assert tvm.alloc_tensor(tvm.Shape([2]), tvm.dtype("float32"), tvm.device("cpu", 0), None).shape == (2,)
assert not {"tvm", "torch"} & set(sys.modules), "loaded for a kernel that is in the cache"
import tvm as whole, torch
whole.runtime.tensor(np.zeros(2)), torch.zeros(2)
kernel(tvm.from_dlpack(x), tvm.from_dlpack(torch.from_numpy(y)))
"""


@pytest.mark.skipif(library.linker() is None, reason="bitcode is compiled when it is loaded, by all of TVM")
def test_a_cached_kernel_runs_without_loading_tvm() -> None:
    pytest.importorskip("torch", reason="the test checks that torch is not loaded")
    subprocess.run([sys.executable, "-c", _WORKER], check=True, cwd=_ROOT)
    subprocess.run([sys.executable, "-c", _WARM], check=True, cwd=_ROOT)


# Results of kernels.


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (1, 1), (4, 4), (17, 33)])
def test_symbolic_extents(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    np.testing.assert_array_equal(_run(_spec(), x), x + 1)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "float16", "float32", "float64"])
def test_dtypes(dtype: str) -> None:
    t = TensorSpec(("n",), dtype)
    x = np.arange(37).astype(dtype)
    np.testing.assert_array_equal(_run(_spec(args=(t,), outs=(t,)), x), x + np.ones((), dtype))


def test_bool() -> None:
    t, b = TensorSpec(("n",), "float32"), TensorSpec(("n",), "bool")

    def positive(x: Any) -> Any:
        return tvm.te.compute(x.shape, lambda i: x[i] > tvm.tirx.const(0, "float32"), name="y")

    x = np.linspace(-1, 1, 9, dtype=np.float32)
    result = _run(_spec("positive", compute=positive, args=(t,), outs=(b,)), x, dtype="bool")
    np.testing.assert_array_equal(result, x > 0)


def test_scalars_attributes_lists_and_unused_inputs() -> None:
    scalar = TensorSpec((), "float32")

    def combine(xs: list[Any], scale: Any, power: int, unused: Any, absent: None) -> Any:
        assert absent is None
        return tvm.te.compute(xs[0].shape, lambda *i: (xs[0](*i) + xs[1](*i)) * scale() * float(power), name="y")

    spec = _spec("combine", compute=combine, args=((_MN, _MN), scalar, 3, scalar, None))
    x = np.ones((2, 5), np.float32)
    np.testing.assert_array_equal(_run(spec, x, x, np.float32(2), np.float32(9)), np.full((2, 5), 12, np.float32))


def test_a_compute_can_take_the_result_types() -> None:
    result_types: list[Any] = []

    def broadcast(x: Any, *, out: tuple[TensorSpec, ...]) -> Any:
        result_types.append(out)
        return tvm.te.compute(out[0].shape, lambda i, j: x[j], name="y")

    spec = _spec("broadcast", compute=broadcast, args=(TensorSpec(("n",), "float32"),), pattern="broadcast")
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(_run(spec, x, shape=(2, 3)), np.stack([x, x]))
    assert result_types[0][0].dtype == "float32"


def test_results_that_are_inputs_or_each_other_are_copied() -> None:
    def twice(x: Any) -> Any:
        y = _add_one(x)
        return x, y, y

    kernel = build(_spec("twice", compute=twice, outs=(_MN, _MN, _MN))).function
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    outs = [tvm.tensor(np.zeros_like(x)) for _ in range(3)]
    kernel(tvm.tensor(x), *outs)
    for out, expected in zip(outs, (x, x + 1, x + 1), strict=True):
        np.testing.assert_array_equal(out.numpy(), expected)


def test_tensors_at_any_address() -> None:
    kernel = build(_spec(args=(TensorSpec((64,), "float32"),), outs=(TensorSpec((64,), "float32"),))).function
    for offset in (0, 4, 20, 60):
        raw = np.zeros(1024, np.uint8)
        start = (-raw.ctypes.data) % 64 + offset
        x = raw[start : start + 256].view(np.float32)
        out = raw[start + 320 : start + 576].view(np.float32)
        kernel(tvm.from_dlpack(x), tvm.from_dlpack(out))
        np.testing.assert_array_equal(out, np.ones(64, np.float32))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ((_MN, _MN), r"\[add_one\] its TVM compute returned 1 tensors, the declaration says 2"),
        ((TensorSpec(("m", "n"), "int32"),), "returned float32 as result 0, the declaration says int32"),
        ((TensorSpec(("m",), "float32"),), r"returned shape \[.*\] as result 0, the declaration says \['m'\]"),
    ],
)
def test_a_compute_that_disagrees_with_its_declaration(out: tuple[TensorSpec, ...], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        unscheduled(_spec(outs=out))


def test_a_compute_can_take_the_device_kind() -> None:
    def compute(x: Any, kind: str) -> Any:
        return tvm.te.compute(x.shape, lambda *i: x(*i), name=kind)

    for kind in ("cpu", "cuda"):
        assert f'sblock("{kind}")' in str(unscheduled(replace(_spec(), compute=compute, target=kind)).function.script())


def test_sizes_that_were_not_proved_equal_are_compared_at_each_call() -> None:
    kernel = build(_spec(outs=(TensorSpec(("k", "l"), "float32"),))).function
    x = tvm.tensor(np.zeros((2, 3), np.float32))
    kernel(x, x)
    with pytest.raises(ValueError, match="shape"):
        kernel(tvm.tensor(np.zeros((2, 3), np.float32)), tvm.tensor(np.zeros((3, 3), np.float32)))


# Caches.


class _Compilations:
    """Records the symbols of each compiled module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.modules: list[list[str]] = []
        original = library.compile_functions

        def counting(functions: dict[str, Any], target: Any, **options: Any) -> Any:
            self.modules.append(sorted(functions))
            return original(functions, target, **options)

        monkeypatch.setattr(library, "compile_functions", counting)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> _Compilations:
    return _Compilations(monkeypatch)


def _entries(tmp_path: Path, suffix: str = "") -> list[Path]:
    return sorted((tmp_path / "cache").glob(f"??/*{suffix}"))


def test_a_kernel_comes_from_memory_then_disk_then_the_compiler(compilations: _Compilations) -> None:
    kernel = build(_spec())
    assert build(_spec()) is kernel
    assert len(compilations.modules) == 1
    forget_kernels()
    x = np.zeros((2, 2), np.float32)
    np.testing.assert_array_equal(_run(_spec(), x), x + 1)
    assert len(compilations.modules) == 1
    build(_spec(key="v2"))
    build(_spec(name="other"))
    assert len(compilations.modules) == 3


def test_without_a_key_what_is_compiled_is_the_key(compilations: _Compilations) -> None:
    def add(number: float) -> Any:
        return lambda x: tvm.te.compute(x.shape, lambda *i: x(*i) + tvm.tirx.const(number, "float32"), name="y")

    x = np.zeros((2, 2), np.float32)
    for number in (1.0, 2.0, float(np.nextafter(np.float32(2), np.float32(3))), 1.0, 2.0):
        np.testing.assert_array_equal(_run(_spec(key="", compute=add(number)), x), x + np.float32(number))
    assert len(compilations.modules) == 3
    forget_kernels()
    np.testing.assert_array_equal(_run(_spec(key="", compute=add(1.0)), x), x + 1)
    assert len(compilations.modules) == 3
    build(_spec(key="", compute=add(1.0), pattern="injective"))
    build(_spec(key="", name="other", compute=add(1.0)))
    assert len(compilations.modules) == 5


def test_a_compute_need_not_be_hashable() -> None:
    @dataclass
    class Add:
        number: float

        def __call__(self, x: Any) -> Any:
            return tvm.te.compute(x.shape, lambda *i: x(*i) + tvm.tirx.const(self.number, "float32"), name="y")

    x = np.zeros((2, 2), np.float32)
    assert [_run(_spec(key="", compute=Add(n)), x)[0, 0] for n in (1.0, 2.0)] == [1.0, 2.0]


@pytest.mark.parametrize("key", ["", "1"])
def test_equal_numbers_that_differ_have_kernels_of_their_own(key: str) -> None:
    def filled(x: Any, number: float) -> Any:
        return tvm.te.compute(x.shape, lambda *_: tvm.tirx.const(number, "float32"), name="y")

    x = np.zeros((2, 2), np.float32)
    signs = [np.signbit(_run(_spec("filled", key, compute=filled, args=(_MN, n)), x)).all() for n in (0.0, -0.0)]
    assert signs == [False, True]


def test_the_digest_covers_strings_of_several_lines() -> None:
    """TVM's text of a function leaves them out."""

    def calling(source: str) -> Any:
        x = tvm.te.placeholder((4,), "float32", "x")
        out = tvm.te.extern((4,), [x], lambda i, o: tvm.tirx.call_packed("f", i[0], o[0], source), dtype="float32")
        return tvm.create_prim_func([x, out])

    one, two = calling("a\nb"), calling("a\nc")
    assert one.script() == two.script()
    assert digest(one) == digest(calling("a\nb")) != digest(two)


def test_threads_that_need_one_kernel_build_it_once(compilations: _Compilations) -> None:
    barrier, kernels = threading.Barrier(8), [None] * 8

    def work(i: int) -> None:
        barrier.wait()
        kernels[i] = build(_spec())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compilations.modules) == 1
    assert all(kernel is kernels[0] for kernel in kernels)


def test_nothing_is_written_when_the_cache_is_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("META_CACHE", "0")
    x = np.zeros((2, 2), np.float32)
    np.testing.assert_array_equal(_run(_spec(), x), x + 1)
    assert not (tmp_path / "cache").exists()


def test_damaged_entries_are_rebuilt(compilations: _Compilations, tmp_path: Path) -> None:
    x = np.zeros((2, 2), np.float32)
    build(_spec())
    files = _entries(tmp_path)
    assert len(files) == 2
    for count, path in enumerate(files, start=2):
        forget_kernels()
        damaged = path.read_bytes()[:-7]
        path.unlink()  # writing in place would change the file that this process may have mapped
        path.write_bytes(damaged)
        np.testing.assert_array_equal(_run(_spec(), x), x + 1)
        assert len(compilations.modules) == count


@pytest.mark.skipif(library.linker() is None, reason="without a linker there are no libraries")
def test_a_valid_entry_without_a_library_is_rebuilt(compilations: _Compilations, tmp_path: Path) -> None:
    # Another process writes the entries, because a library stays loaded in the process that built it.
    subprocess.run([sys.executable, "-c", _WORKER], check=True, cwd=_ROOT)
    for path in _entries(tmp_path, ".so"):
        DiskCache(tmp_path / "cache").put(path.stem, b"\x7fELF, but not really", ".so")
    n = TensorSpec(("n",), "float32")
    build(KernelSpec("k1", _scale, (n, 1), (n,), "elemwise", key="1"))
    assert len(compilations.modules) == 1


def test_kernels_of_another_process_are_loaded(compilations: _Compilations) -> None:
    subprocess.run([sys.executable, "-c", _WORKER], check=True, cwd=_ROOT)
    n = TensorSpec(("n",), "float32")
    x = np.ones(9, np.float32)
    for i in range(6):
        result = _run(KernelSpec(f"k{i}", _scale, (n, i), (n,), "elemwise", key="1"), x)
        np.testing.assert_array_equal(result, x * i)
    assert not compilations.modules


def _scale(x: Any, factor: int) -> Any:
    return tvm.te.compute(x.shape, lambda j: x[j] * float(factor), name="y")


def test_another_machine_or_version_builds_again(compilations: _Compilations, monkeypatch: pytest.MonkeyPatch) -> None:
    build(_spec())
    forget_kernels()
    monkeypatch.setattr(targets, "identity", lambda kind: "another processor")
    build(_spec())
    assert len(compilations.modules) == 2


def test_machines_without_a_linker(
    compilations: _Compilations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(library, "linker", lambda: None)
    x = np.zeros((2, 2), np.float32)
    np.testing.assert_array_equal(_run(_spec(), x), x + 1)
    assert not _entries(tmp_path, ".so")
    forget_kernels()
    np.testing.assert_array_equal(_run(_spec(), x), x + 1)
    assert len(compilations.modules) == 1


_WORKER = """
import sys
import numpy as np
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.kernel import build
from meta.backend.tvm.spec import KernelSpec, TensorSpec
n = TensorSpec(("n",), "float32")
def scale(x, factor):
    return tvm.te.compute(x.shape, lambda j: x[j] * float(factor), name="y")
specs = [KernelSpec(f"k{i}", scale, (n, i), (n,), "elemwise", key="1") for i in range(6)]
kernels = [build(spec).function for spec in specs]
x, y = tvm.tensor(np.ones(5, "float32")), tvm.tensor(np.zeros(5, "float32"))
for i, kernel in enumerate(kernels):
    kernel(x, y)
    assert (y.numpy() == i).all()
assert "torch" not in sys.modules, "loaded to compile kernels"
"""


def test_processes_share_the_cache(tmp_path: Path) -> None:
    workers = [
        subprocess.Popen([sys.executable, "-c", _WORKER], stderr=subprocess.PIPE, text=True, cwd=_ROOT)
        for _ in range(3)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=300)
        assert worker.returncode == 0, errors
    assert not list((tmp_path / "cache").rglob(".tmp-*"))


def test_a_library_has_the_code_of_a_kernel_once() -> None:
    scheduled = patterns.schedule(unscheduled(_spec()).function, "elemwise", targets.target("cpu"))
    code = library.compile_functions({"add_one": scheduled}, targets.target("cpu")).inspect_source("ll")
    assert "@__tvm_ffi_add_one(" in code
    assert "__tvm_ffi_main" not in code
