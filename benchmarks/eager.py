"""Eager calls on 4x4 arrays: the cost of dispatch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

import meta
from benchmarks.timing import Row, ratio


def rows() -> Iterator[Row]:
    """softmax, softmax with backward, add, matmul."""
    host = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    x, y, t, u = meta.array(host), meta.array(host), torch.tensor(host), torch.tensor(host)
    yield ratio("eager softmax 4x4", lambda: meta.softmax(x), lambda: torch.softmax(t, -1), 1.2)
    xg, tg = meta.array(host), torch.tensor(host, requires_grad=True)
    xg.requires_grad = True
    dy, tdy = meta.array(host), torch.tensor(host)
    yield ratio("eager softmax(x).backward(dy) 4x4", lambda: meta.softmax(xg).backward(dy),
                lambda: torch.softmax(tg, -1).backward(tdy), 0.5)  # fmt: skip
    yield ratio("eager add 4x4", lambda: meta.add(x, y), lambda: torch.add(t, u), 1.3)
    yield ratio("eager matmul 4x4", lambda: meta.matmul(x, y), lambda: torch.matmul(t, u), 1.3)
