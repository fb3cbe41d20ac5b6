"""The Triton dialect without a GPU: why it is off, its strides and its kernels in Triton's interpreter."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import meta
from meta.backend.triton.kernel_text import layout
from meta.errors import RegistryError, TypeInferenceError
from meta.ir.type import tensor_type
from meta.op.dialect import triton as package

ROOT = Path(__file__).resolve().parents[4]
PROGRAMS = Path(__file__).with_name("triton_programs.py")
DIALECT = meta.dialect("triton")


def names() -> list[str]:
    """Names of the programs, read from the source because an import needs triton."""
    functions = [node for node in ast.parse(PROGRAMS.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [each.name for each in functions if not each.name.startswith("_")]


@pytest.fixture(scope="module")
def interpreted() -> dict[str, str]:
    """The errors of the programs, by name: one process runs them all."""
    if find_spec("triton") is None or find_spec("torch") is None:
        pytest.skip("triton or torch is not installed")
    command = [sys.executable, "-m", "tests.python.op.dialect.triton_programs"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    completed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


@pytest.mark.parametrize("name", names())
def test_kernels_in_the_interpreter(interpreted: dict[str, str], name: str) -> None:
    assert interpreted[name] == "", interpreted[name]


def test_kernels_compile_for_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "tests.python.op.dialect.triton_compiled"]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    completed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    kernels = 1, 3, 2, "forward_kernel", "keys_kernel", "queries_kernel"
    assert completed.stdout.splitlines() == [f"{kernel} ['cubin', 'ptx']" for kernel in kernels], completed.stderr


@pytest.mark.parametrize(
    ("missing", "driver", "reason"),
    [
        ("triton", None, "triton is not installed: pip install 'meta-tvm[triton]'"),
        ("torch", None, "torch is not installed: pip install 'meta-tvm[triton]'"),
        ("", "no CUDA driver", "no CUDA driver"),
    ],
)
def test_tells_why_it_is_off(missing: str, driver: str | None, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "find_spec", lambda name: None if name == missing else True)
    monkeypatch.setattr(package, "_INTERPRETED", False)
    monkeypatch.setattr("meta.backend.cuda.driver.probe", lambda: driver)
    DIALECT.refresh()
    DIALECT.implement("tanh", lambda x, out: None)
    try:
        explanation = meta.explain("tanh", tensor_type((2, 3), "float32", "cuda"))
        assert f"triton (plevel 20): off: {reason}" in str(explanation)
        assert meta.tanh(meta.array([0.0])).tolist() == [0.0]
    finally:
        DIALECT.remove("tanh")
        monkeypatch.undo()
        DIALECT.refresh()


def test_has_an_extra_with_torch() -> None:
    tomllib = pytest.importorskip("tomllib", reason="CPython before 3.11")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [each.split(">")[0] for each in extras["triton"]] == ["meta-tvm[torch]", "triton"]


def test_is_no_dialect_that_can_be_unregistered() -> None:
    with pytest.raises(RegistryError, match="'triton' is a dialect of meta"):
        meta.unregister_dialect("triton")


def test_leaves_the_first_call_without_torch_and_triton() -> None:
    code = "import sys, meta; meta.tanh(meta.array([1.0])); print({'torch', 'triton'} & set(sys.modules))"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.stdout == "set()\n", completed.stderr


@pytest.mark.parametrize(
    ("out", "operands", "sizes", "strides"),
    [
        ((4, 5), [(4, 5), (4, 5)], (20,), ((1,), (1,))),
        ((4, 5), [(4, 5), (5,)], (4, 5), ((5, 1), (0, 1))),
        ((4, 5), [(4, 5), ()], (20,), ((1,), (0,))),
        ((2, 3, 4, 5), [(2, 3, 4, 5), (3, 1, 1)], (2, 3, 20), ((60, 20, 1), (0, 1, 0))),
        ((2, 1, 4), [(2, 1, 4), (1, 4)], (2, 4), ((4, 1), (0, 1))),
        ((1, 1), [(1, 1)], (1,), ((0,),)),
        ((), [()], (1,), ((0,),)),
        ((0, 3), [(0, 3)], (0,), ((1,),)),
    ],
)
def test_layouts(
    out: tuple[int, ...], operands: list[tuple[int, ...]], sizes: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> None:
    layouts = layout(out, operands)
    assert (layouts.sizes, layouts.strides) == (sizes, strides)


def test_layouts_read_what_numpy_broadcasts() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        out = tuple(rng.integers(1, 4, rng.integers(0, 5)).tolist())
        operands = [
            tuple(1 if rng.random() < 0.4 else d for d in out[rng.integers(0, len(out) + 1) :]) for _ in range(3)
        ]
        layouts = layout(out, operands)
        index = np.stack(np.unravel_index(np.arange(layouts.count), layouts.sizes))
        for shape, strides in zip(operands, layouts.strides, strict=True):
            memory = np.arange(int(np.prod(shape)))
            expected = np.broadcast_to(memory.reshape(shape), out).ravel()
            assert np.array_equal(memory[(index * np.array(strides)[:, None]).sum(0)], expected)


def test_rejects_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(TypeInferenceError, match=r"shape \(3,\) does not broadcast to \(4,\)"):
        layout((4,), [(3,)])
