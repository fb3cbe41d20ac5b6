"""Many calls in one process: memory stays flat."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np

import meta

CALLS = 4000
GROWTH = 16 << 20
"""Bytes by which CALLS calls may raise the memory of the process, once it is warm."""


def case(seed: int, index: int) -> str:
    """Eager calls, gradients and programs on arrays of many sizes; the first half warms up."""
    rng = np.random.default_rng([seed, index])
    program = meta.vm.compile(meta.trace(lambda x: (meta.softmax(x) * 2.0).sum(0)))
    before = 0
    for i in range(2 * CALLS):
        if i == CALLS:
            before = _resident()
        x = meta.array(rng.standard_normal((int(rng.integers(1, 64)), 16)).astype("float32"), requires_grad=True)
        (meta.tanh(x @ x.T).sum() + x.max()).backward()
        if i % 50 == 0:
            program(meta.zeros((8 + i // 50 % 4, 16)))
    grown = _resident() - before
    return f"{CALLS} calls raise the memory by {grown >> 20} MiB" if grown > GROWTH else ""


def _resident() -> int:
    """Bytes of memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
