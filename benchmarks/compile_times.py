"""Seconds to trace, compile and run programs for the first time, for processes with an empty kernel cache."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

import meta
from benchmarks.bert import MINI, Bert
from meta.optim.sgd import with_sgd
from scripts import fuzz_chains

DEPTHS = (4, 8, 16)
OPERATORS = 10_000
LINKS = 64
ARRAYS = 500


def training_step(layers: int) -> float:
    """Seconds of the first training step of a transformer encoder with this number of layers."""
    sizes = replace(MINI, features=64, hidden=128, layers=layers, tokens=16)
    generator = np.random.default_rng(0)
    indices = generator.integers(0, sizes.vocabulary, (2, sizes.tokens))
    x, y = meta.array(indices), meta.array(indices.ravel())
    step = meta.vm.compile(with_sgd(0.01, 0.9)(Bert(sizes), loss=meta.cross_entropy))
    start = time.perf_counter()
    step(x, y).item()
    return time.perf_counter() - start


def long_program(operators: int = OPERATORS) -> dict[str, Any]:
    """Seconds of a program of so many operators: products, additions and activations of one small matrix.

    Raises ValueError if the result differs from NumPy's."""
    host = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) / 4

    def chain(x: Any, w: Any, product: Any, tanh: Any) -> Any:
        for _ in range(operators // 4):
            x = tanh(product(x, w) + x) * 0.5
        return x

    @meta.trace
    def program(x: Any, w: Any) -> Any:
        return chain(x, w, meta.matmul, meta.tanh)

    x, w = meta.array(host), meta.array(host)
    meta.tanh(meta.matmul(x, w) + x).numpy()  # imports TVM
    start = time.perf_counter()
    executor = meta.vm.compile(program)
    result = executor(x, w).numpy()
    seconds = time.perf_counter() - start
    calls = len(executor.program(x, w).record.main.body.bindings)
    if not np.allclose(result, chain(host, host, np.matmul, np.tanh), atol=1e-5):
        raise ValueError(f"a program of {calls} operators gives wrong results")
    return {"seconds": seconds, "calls": calls}


def chains(links: int = LINKS, arrays: int = ARRAYS) -> dict[str, float]:
    """Seconds of processor time to compile programs that use values several times, and to join long lists, by name."""
    fuzz_chains.import_tvm()
    return dict(fuzz_chains.table(links, 0, arrays))
