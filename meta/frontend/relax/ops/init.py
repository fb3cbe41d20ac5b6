"""Tensors of shapes, and triangles."""

from __future__ import annotations

from typing import Any

import numpy as np

import meta
from meta.frontend.relax.ops._table import number, row, rows, shape_of, tensor
from meta.frontend.relay.convert.call import OpCall
from meta.tracing.symbol import Symbol

rows({
    "ones": lambda call: meta.ones(tuple(shape_of(call, 0)), call.text("dtype")),
    "ones_like": lambda call: meta.ones(tensor(call, 0).shape, call.text("dtype") or tensor(call, 0).dtype),
    "zeros": lambda call: meta.zeros(tuple(shape_of(call, 0)), call.text("dtype")),
    "zeros_like": lambda call: meta.zeros(tensor(call, 0).shape, call.text("dtype") or tensor(call, 0).dtype),
})  # fmt: skip


@row("full", "full_like")
def full(call: OpCall) -> Any:
    """The value is a tensor without axes, which the program may compute."""
    like = call.name == "full_like"
    shape = tensor(call, 0).shape if like else tuple(shape_of(call, 0))
    value = tensor(call, 1)
    dtype = call.text("dtype") or (tensor(call, 0).dtype if like else value.dtype)
    constant = call.maybe_number(value)
    if constant is not None:
        return meta.full(shape, constant, dtype)
    return meta.broadcast_to(meta.cast(value, dtype), shape)


@row("eye", "eye_like")
def eye(call: OpCall) -> Any:
    if call.name == "eye_like":
        x = tensor(call, 0)
        n, m, k = (*x.shape, number(call, 1, "k"))
        dtype = call.text("dtype") or x.dtype
    else:
        n, m, k = (number(call, i, what) for i, what in enumerate("nmk"))
        dtype = call.text("dtype")
    call.check_size(n, m)
    return call.tensor(np.eye(n, m, k), dtype)


@row("arange")
def arange(call: OpCall) -> Any:
    start, stop, step = (number(call, i, what) for i, what in enumerate(("start", "end", "step")))
    return meta.arange(start, stop, step, call.text("dtype"))


@row("hamming_window")
def hamming_window(call: OpCall) -> Any:
    """alpha - beta * cos(2 pi i / (n - 1)); with `periodic` the first n of n + 1."""
    names = ("window_size", "periodic", "alpha", "beta")
    size, periodic, alpha, beta = (number(call, i, what) for i, what in enumerate(names))
    call.check_size(size)
    steps = size if periodic else size - 1
    values = alpha - beta * np.cos(2 * np.pi * np.arange(size) / max(steps, 1)) if size > 1 else np.ones(size)
    return call.tensor(values, call.text("dtype") or "float32")


@row("tril", "triu")
def triangle(call: OpCall) -> Any:
    k = call.args[1] if len(call.args) > 1 else call.int("k")
    k = call.number(k, "k") if isinstance(k, Symbol) else k
    function: Any = meta.tril if call.name == "tril" else meta.triu
    return function(tensor(call, 0), int(k))


@row("one_hot")
def one_hot(call: OpCall) -> Any:
    indices, on, off = tensor(call, 0), number(call, 1, "on_value"), number(call, 2, "off_value")
    depth, axis = call.int("depth"), call.int("axis", -1)
    dtype = getattr(call.args[1], "dtype", "int64")
    hot = meta.one_hot(indices, depth, "bool", axis)
    return meta.where(hot, meta.full((), on, dtype), meta.full((), off, dtype))
