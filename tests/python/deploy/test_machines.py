"""Kernels for other machines: compiled here, run by emulators, and compared with what this machine computes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.deploy.objects import kernel_objects
from tests.python.deploy.machines import Machine, decoded

MACHINES = (
    Machine("aarch64-linux-gnu", "cortex-a72", ("aarch64-linux-gnu-gcc", "-static"), ("qemu-aarch64",)),
    Machine("armv7-linux-gnueabihf", None, ("arm-linux-gnueabihf-gcc", "-static"), ("qemu-arm",)),
    Machine("riscv64-linux-gnu", None, ("riscv64-linux-gnu-gcc", "-static"), ("qemu-riscv64",)),
    Machine("x86_64-linux-gnu", "x86-64", ("x86_64-linux-gnu-gcc", "-static"), ("qemu-x86_64", "-cpu", "qemu64")),
    Machine(
        "wasm32-wasi", None, ("clang", "--target=wasm32-wasi", "--sysroot=/usr"),
        ("node", "--no-warnings", str(Path(__file__).with_name("wasi.mjs"))),
    ),
)  # fmt: skip


NO_HALVES = ("riscv64-linux-gnu", "wasm32-wasi")


def halves(x: Any, w: Any, d: Any, i: Any, j: Any, image: Any, kernel: Any) -> dict[str, Any]:
    """The operators of `batch`, and some on float16."""
    half = meta.cast(x, "float16")
    return batch(x, w, d, i, j, image, kernel) | {
        "half_product": half * 2, "half_exp": meta.exp(half), "half_sum": meta.sum(half, 1),
        "half_matmul": meta.matmul(half, meta.cast(w, "float16")),
    }  # fmt: skip


def batch(x: Any, w: Any, d: Any, i: Any, j: Any, image: Any, kernel: Any) -> dict[str, Any]:
    """Operators of many kinds and dtypes. x, w: float32 (33, 40), (40, 24).  d: float64 (33, 40).  i: int64 (33, 40).
    j: int32 (8,), rows of x.  image, kernel: (2, 3, 12, 12), (8, 3, 3, 3)."""
    brain, byte = meta.cast(x, "bfloat16"), meta.cast(i, "uint8")
    exact = {
        "floor_divide": meta.floor_divide(i, 7),
        "remainder": meta.remainder(i, -5),
        "shift": meta.bitwise_xor(i, i * 3),
        "less": x < 0.25,
        "where": meta.where(x > 0, x, -x),
        "bytes": byte + byte,
        "int8": meta.cast(i, "int8") * 2,
        "argmax": meta.argmax(x, 1),
        "max": meta.max(d, 0),
        "sort": meta.sort(x, -1),
        "argsort": meta.argsort(d, 0),
        "take": meta.take(x, j, 0),
        "gather": meta.gather(x, 1, i % 40),
        "concatenate": meta.concatenate([x, x * 2], 1),
        "cast_down": meta.cast(d, "bfloat16"),
        "uniform": meta.random.uniform((16, 16)),
        "randint": meta.random.randint((16,), 0, 1000),
    }
    near = {
        "tanh": meta.tanh(x), "erf": meta.erf(x), "exp": meta.exp(x), "gelu": meta.gelu(x), "sigmoid": meta.sigmoid(x),
        "log1p": meta.log1p(x * x), "sin": meta.sin(x), "power": meta.power(meta.abs(x), 1.7), "erf64": meta.erf(d),
        "exp64": meta.exp(d), "sin64": meta.sin(d * 10), "sqrt64": meta.sqrt(d * d + 1),
        "bfloat_tanh": meta.tanh(brain), "matmul": meta.matmul(x, w),
        "matmul64": meta.matmul(d, meta.transpose(d, (1, 0))),
        "conv2d": meta.conv2d(image, kernel, padding=1), "max_pool2d": meta.max_pool2d(image, 2),
        "mean": meta.mean(image, (2, 3)), "sum64": meta.sum(d, 0),
        "softmax": meta.softmax(x, -1), "log_softmax": meta.log_softmax(d, 0), "cumsum": meta.cumsum(x, 0),
        "normal": meta.random.normal((16, 16)),
    }  # fmt: skip
    return exact | near


@cache
def inputs() -> tuple[Any, ...]:
    random = np.random.default_rng(3)
    x, d = random.normal(size=(2, 33, 40))
    floats = [x, random.normal(size=(40, 24)), random.normal(size=(2, 3, 12, 12)), random.normal(size=(8, 3, 3, 3))]
    x, w, image, kernel = [each.astype("float32") for each in floats]
    i, j = random.integers(-90, 90, (33, 40)), random.integers(0, 33, 8).astype("int32")
    return x, w, d, i, j, image, kernel


@cache
def expected() -> dict[str, Any]:
    """What this machine computes, with all dialects."""
    meta.random.seed(11)
    return {name: y.numpy() for name, y in meta.vm.compile(halves)(*inputs()).items()}


TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 2e-2}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.target)
def test_kernels_run_on_other_machines(machine: Machine, tmp_path: Path) -> None:
    if missing := machine.missing():
        pytest.skip(f"{missing} is not installed")
    operators = batch if machine.target in NO_HALVES else halves
    program = meta.vm.compile(operators, target=machine.target, cpu=machine.cpu).program(*inputs())
    meta.random.seed(11)
    keys = [meta.random.default_generator.draw(count=d.count).numpy() for d in program.record.random]
    constants = [c.numpy() for c in program.constants]
    results = machine.run(kernel_objects(program), [*inputs(), *keys, *constants], tmp_path)
    wrong = []
    for name, y in decoded(results, dict(list(expected().items())[: len(results)])).items():
        x = expected()[name]
        exact = x.dtype.kind in "biu" or name in ("where", "sort", "take", "gather", "half_product", "uniform", "max")
        limit = 0 if exact else TOLERANCE[str(x.dtype)]
        difference = np.abs(y.astype("float64") - x.astype("float64")).max() / max(np.abs(x.astype("float64")).max(), 1)
        if not difference <= limit:
            wrong.append((name, difference))
    assert not wrong
