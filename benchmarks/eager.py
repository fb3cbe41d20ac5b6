"""Eager calls on 4x4 arrays: the cost of dispatch, and that of users' operators relative to built-in ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

import meta
from benchmarks.timing import Row, ratio
from meta.schema import Arg, Schema, Tensor


def rows() -> Iterator[Row]:
    """softmax, softmax with backward, add, matmul; an operator of `meta.define`, forward and with backward."""
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
    yield from _defined(host)


def _defined(host: np.ndarray) -> Iterator[Row]:
    """A user's tanh; the reference is `meta.tanh`."""
    from meta.backend.tvm.adapter import topi

    schema = Schema("benchmark_tanh", Arg("x", Tensor))
    mine = meta.define("benchmark_tanh", schema, gradient={"x": "tanh_dx(y, dy)"}, tvm=lambda x: topi.tanh(x),
                       pattern="elemwise")(lambda x: x)  # fmt: skip
    x, dy, xg = meta.array(host), meta.array(host), meta.array(host, requires_grad=True)
    yield ratio("eager user's tanh 4x4, relative to meta.tanh", lambda: mine(x), lambda: meta.tanh(x), 1.2)
    yield ratio("eager user's tanh(x).backward(dy) 4x4, relative to meta.tanh", lambda: mine(xg).backward(dy),
                lambda: meta.tanh(xg).backward(dy), 1.2)  # fmt: skip
