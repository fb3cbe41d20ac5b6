"""Computes like those of operators, with their patterns and references, for tests of schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.te import math as te_math

Array = np.ndarray[Any, Any]


def _chain(x: Any) -> Any:
    doubled = tvm.te.compute(x.shape, lambda *i: x(*i) * 2.0, name="doubled")
    tanh = tvm.te.compute(x.shape, lambda *i: te_math.tanh(doubled(*i)), name="tanh")
    return tvm.te.compute(x.shape, lambda *i: tvm.te.max(tanh(*i), 0.0), name="y")


def _outer_of_expensive(x: Any) -> Any:
    """The exponential of a row, which every row of the result reads."""
    e = tvm.te.compute((x.shape[1],), lambda j: tvm.te.exp(x[0, j]), name="e")
    return tvm.te.compute(x.shape, lambda i, j: e[j] + x[i, j], name="y")


def _transpose(x: Any) -> Any:
    return tvm.topi.transpose(x)


def _lower_triangle(x: Any) -> Any:
    return tvm.te.compute(x.shape, lambda i, j: tvm.tirx.Select(j <= i, x[i, j], tvm.tirx.const(0, "float32")), "y")


def softmax(x: Any) -> Any:
    return tvm.topi.nn.softmax(x, axis=-1)


def _softmax_of_columns(x: Any) -> Any:
    return tvm.topi.nn.softmax(x, axis=0)


def _norm(x: Any) -> Any:
    """Rows normalised by mean and standard deviation, which are results too."""
    m, n = x.shape
    k1, k2 = tvm.te.reduce_axis((0, n), "k1"), tvm.te.reduce_axis((0, n), "k2")
    size = n.astype("float32")
    total = tvm.te.compute((m,), lambda i: tvm.te.sum(x[i, k1], axis=k1), name="total")
    mean = tvm.te.compute((m,), lambda i: total[i] / size, name="mean")
    square = tvm.te.compute(
        (m,), lambda i: tvm.te.sum((x[i, k2] - mean[i]) * (x[i, k2] - mean[i]), axis=k2), name="square"
    )
    deviation = tvm.te.compute((m,), lambda i: tvm.te.sqrt(square[i] / size + 1e-5), name="deviation")
    y = tvm.te.compute((m, n), lambda i, j: (x[i, j] - mean[i]) / deviation[i], name="y")
    return y, mean, deviation


def _norm_reference(x: Array) -> tuple[Array, ...]:
    mean = x.mean(1)
    deviation = np.sqrt(x.var(1) + 1e-5)
    return (x - mean[:, None]) / deviation[:, None], mean, deviation


def _softmax_reference(x: Array, axis: int = 1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis, keepdims=True)


def reduction(kind: str, axis: Any, keepdims: bool = False) -> Callable[[Any], Any]:
    return lambda x: getattr(tvm.topi, kind)(x, axis=axis, keepdims=keepdims)


def _row_sums_of_transpose(x: Any) -> Any:
    """A row of the result reads all rows of the intermediate, so rows must not share a loop."""
    n = x.shape[0]
    doubled = tvm.te.compute((n, n), lambda i, j: tvm.te.exp(x[i, j]), name="doubled")
    k = tvm.te.reduce_axis((0, n), "k")
    total = tvm.te.compute((n,), lambda i: tvm.te.sum(doubled[k, i], axis=k), name="total")
    return tvm.te.compute((n, n), lambda i, j: doubled[i, j] / total[i], name="y")


Case = tuple[Callable[..., Any], str, Callable[[Array], Any], Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], ...]]]
_same: Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], ...]] = lambda s: (s,)  # noqa: E731
_LOWEST = np.finfo(np.float32).min
CASES: dict[str, Case] = {
    "chain": (_chain, "elemwise", lambda x: np.maximum(np.tanh(x * 2), 0), _same),
    "outer of expensive": (_outer_of_expensive, "injective", lambda x: np.exp(x[:1]) + x, _same),
    "transpose": (_transpose, "injective", lambda x: x.T, lambda s: (s[::-1],)),
    "lower triangle": (_lower_triangle, "elemwise", np.tril, _same),
    "softmax": (softmax, "softmax", _softmax_reference, _same),
    "softmax of columns": (_softmax_of_columns, "softmax", lambda x: _softmax_reference(x, 0), _same),
    "norm": (_norm, "softmax", _norm_reference, lambda s: (s, s[:1], s[:1])),
    "sum of rows": (reduction("sum", 1), "reduce", lambda x: x.sum(1), lambda s: (s[:1],)),
    "sum of columns": (reduction("sum", 0), "reduce", lambda x: x.sum(0), lambda s: (s[1:],)),
    "sum of all": (reduction("sum", (0, 1)), "reduce", lambda x: x.sum(), lambda s: ((),)),
    "sum keeping rank": (reduction("sum", 1, True), "reduce", lambda x: x.sum(1, keepdims=True),
                         lambda s: ((s[0], 1),)),
    "max of rows": (reduction("max", 1), "reduce", lambda x: x.max(1, initial=_LOWEST), lambda s: (s[:1],)),
    "argmax of rows": (reduction("argmax", 1), "reduce", lambda x: x.argmax(1), lambda s: (s[:1],)),
}  # fmt: skip
SQUARE: dict[str, Case] = {
    "row sums of transpose": (_row_sums_of_transpose, "softmax", lambda x: np.exp(x) / np.exp(x).sum(0)[:, None],
                              _same),
}  # fmt: skip


def product(left: bool, right: bool) -> Callable[[Any, Any], Any]:
    def compute(a: Any, b: Any) -> Any:
        k = tvm.te.reduce_axis((0, a.shape[0 if left else 1]), "k")
        shape = (a.shape[1 if left else 0], b.shape[0 if right else 1])

        def term(i: Any, j: Any) -> Any:
            return (a[k, i] if left else a[i, k]) * (b[j, k] if right else b[k, j])

        return tvm.te.compute(shape, lambda i, j: tvm.te.sum(term(i, j), axis=k), name="c")

    return compute
