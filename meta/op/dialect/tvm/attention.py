"""TE computes of attention: scores, softmax and products one after the other, all scores in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from meta.op.dialect.tvm import _math
from meta.op.dialect.tvm._adapter import te, tirx
from meta.op.dialect.tvm._elementwise import cast, select
from meta.op.dialect.tvm._precision import wide
from meta.op.dialect.tvm._reduce import at, finish, reduced, widened
from meta.op.dialect.tvm._register import compute

Expr = Any


def _product(a: Any, b: Any, length: Expr, shape: Sequence[Any], name: str) -> Any:
    """sum over n < length of a(n, *index) * b(n, *index)."""
    n = te.reduce_axis((0, length), f"{name}_k")
    return te.compute(shape, lambda *i: te.sum(a(n, *i) * b(n, *i), n), name)


def _scores(q: Any, k: Any, causal: bool, scale: float | None) -> tuple[Any, Expr]:
    """scale * q @ k^T, the lowest number where a key is not seen; and the scale."""
    dtype, a, b = wide(str(q.dtype)), widened(q), widened(k)
    factor = tirx.const(1 / math.sqrt(int(q.shape[-1])) if scale is None else scale, dtype)
    plain = _product(
        lambda n, *i: a(*i[:-1], n), lambda n, *i: b(*i[:-2], i[-1], n), q.shape[-1],
        (*q.shape[:-1], k.shape[-2]), "dots",
    )  # fmt: skip

    def element(*i: Any) -> Expr:
        value = plain(*i) * factor
        return select(i[-2] >= i[-1], value, tirx.min_value(dtype)) if causal else value

    return te.compute(plain.shape, element, "scores"), factor


@compute("scaled_dot_product_attention", generic=False)
def attention(q: Any, k: Any, v: Any, causal: bool, scale: float | None, *, out: Any) -> Any:
    scores, _ = _scores(q, k, causal, scale)
    last, value = (len(scores.shape) - 1,), widened(v)
    highest = reduced(scores, last, te.max, lambda *i: scores(*i), "highest")
    powers = te.compute(scores.shape, lambda *i: _math.exp_nonpositive(scores(*i) - at(highest, last, i)), "powers")
    total = reduced(scores, last, te.sum, lambda *i: powers(*i), "total")
    mixed = _product(
        lambda n, *i: powers(*i[:-1], n), lambda n, *i: value(*i[:-2], n, i[-1]), k.shape[-2], out[0].shape, "mixed"
    )
    y = te.compute(out[0].shape, lambda *i: cast(mixed(*i) / at(total, last, i), out[0].dtype), "attention")
    logs = te.compute(total.shape, lambda *i: _math.log(total(*i)) + highest(*i), "logs")
    return y, finish(logs, last, out[1], "lse")


@compute("scaled_dot_product_attention_dx", generic=False)
def attention_dx(
    q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, causal: bool, scale: float | None, *, out: Any
) -> Any:
    scores, factor = _scores(q, k, causal, scale)
    last, result, grad, value = (len(scores.shape) - 1,), widened(y), widened(dy), widened(v)
    delta = reduced(y, last, te.sum, lambda *i: result(*i) * grad(*i), "delta")

    # Where a key is not seen the score is the lowest number, and its exponential is 0 whatever lse is.
    p = te.compute(scores.shape, lambda *i: _math.exp(scores(*i) - lse(*i[:-1])), "p")
    dp = _product(
        lambda n, *i: grad(*i[:-1], n), lambda n, *i: value(*i[:-2], i[-1], n), v.shape[-1], scores.shape, "dp"
    )
    ds = te.compute(scores.shape, lambda *i: p(*i) * (dp(*i) - at(delta, last, i)) * factor, "ds")
    a, b = widened(q), widened(k)
    dq = _product(lambda n, *i: ds(*i[:-1], n), lambda n, *i: b(*i[:-2], n, i[-1]), k.shape[-2], out[0].shape, "dq_sum")
    dk = _product(
        lambda n, *i: ds(*i[:-2], n, i[-2]), lambda n, *i: a(*i[:-2], n, i[-1]), q.shape[-2], out[1].shape, "dk_sum"
    )
    dv = _product(
        lambda n, *i: p(*i[:-2], n, i[-2]), lambda n, *i: grad(*i[:-2], n, i[-1]), q.shape[-2], out[2].shape, "dv_sum"
    )
    return tuple(_narrow(x, o, name) for x, o, name in ((dq, out[0], "dq"), (dk, out[1], "dk"), (dv, out[2], "dv")))


def _narrow(x: Any, out: Any, name: str) -> Any:
    """x in the dtype of a result."""
    return te.compute(out.shape, lambda *i: cast(x(*i), out.dtype), name)
