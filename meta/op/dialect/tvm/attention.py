"""TE computes of attention: on CPUs in register tiles where sizes allow it; else scores, softmax and product in
sequence, with all scores in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.spec import Outs, TensorSpec
from meta.backend.tvm.te import attention as tiled
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te.elementwise import accumulation_dtype, cast, const, element, select
from meta.backend.tvm.te.reduce import elements_of, read_reduced, reduce_axes, store_result
from meta.backend.tvm.workarounds.exact import constant
from meta.ir.expr import CallInfo
from meta.op.dialect.tvm import Registrar
from meta.op.work import attention_fits_tiles

compute = Registrar(__file__).compute


def _contract(a: Any, b: Any, length: Expr, shape: Sequence[Any], name: str) -> Any:
    """A tensor of `shape`: the sum of a(n, *index) * b(n, *index) over n < length."""
    n = te.reduce_axis((0, length), f"{name}_k")
    return te.compute(shape, lambda *i: te.sum(a(n, *i) * b(n, *i), n), name)


def _scaled_scores(q: Tensor, k: Tensor, causal: bool, scale: float | None, bias: Any) -> tuple[Any, Expr]:
    """scale * q @ k^T + bias, -inf where a key is masked; and the scale."""
    dtype, query, key = accumulation_dtype(str(q.dtype)), elements_of(q), elements_of(k)
    factor = _factor(q.shape[-1], scale, dtype)
    dots = _contract(
        lambda n, *i: query(*i[:-1], n), lambda n, *i: key(*i[:-2], i[-1], n), q.shape[-1],
        (*q.shape[:-1], k.shape[-2]), "dots",
    )  # fmt: skip

    def score(*i: Expr) -> Expr:
        value = dots(*i) * factor
        if bias is not None:
            value = value + element(bias, i, dtype)
        return select(i[-2] >= i[-1], value, tirx.const(-math.inf, dtype)) if causal else value

    return te.compute(dots.shape, score, "scores"), factor


def _is_generic(call: CallInfo) -> bool:
    """Whether one kernel serves all lengths: lengths that register tiles divide have their own, and every length on
    GPUs, where the threads of a block follow from it."""
    if call.device.kind != "cpu":
        return False
    return not all(t.is_static for t in call.tensors()) or not _in_tiles("cpu", *call.tensors()[:3])


def _factor(features: Any, scale: float | None, dtype: str) -> Any:
    """What scores are multiplied by: by default, 1 / sqrt(features)."""
    if scale is not None:
        return constant(scale, dtype)
    if isinstance(features, (int, tirx.IntImm)):
        return constant(1 / math.sqrt(int(features)), dtype)
    return cast(tirx.const(1, "float64") / tirx.sqrt(tirx.Cast("float64", features)), dtype)


@compute("attention_with_lse", generic=_is_generic)
def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, bias: Any, *, out: Outs, kind: str
) -> Any:
    if bias is None and _in_tiles(kind, q, k, v):
        return tiled.attention(q, k, v, causal, scale)
    scores, _ = _scaled_scores(q, k, causal, scale, bias)
    last, value = (len(scores.shape) - 1,), elements_of(v)
    maximum = reduce_axes(scores, last, te.max, lambda *i: scores(*i), "highest")
    exponentials = te.compute(
        scores.shape, lambda *i: te_math.exp_nonpositive(scores(*i) - read_reduced(maximum, last, i)), "powers"
    )
    total = reduce_axes(scores, last, te.sum, lambda *i: exponentials(*i), "total")
    weighted_sum = _contract(
        lambda n, *i: exponentials(*i[:-1], n),
        lambda n, *i: value(*i[:-2], n, i[-1]),
        k.shape[-2],
        out[0].shape,
        "mixed",
    )

    def attended(*i: Expr) -> Expr:
        # The maximum of a row of -inf is the lowest number: all exponentials are 0, and so is the result, as in torch.
        row_total = read_reduced(total, last, i)
        divisor = select(tirx.EQ(row_total, const(row_total, 0)), const(row_total, 1), row_total)
        return cast(weighted_sum(*i) / divisor, out[0].dtype)

    y = te.compute(out[0].shape, attended, "attention")
    lse = te.compute(total.shape, lambda *i: te_math.log(total(*i)) + maximum(*i), "logs")
    return y, store_result(lse, last, out[1], "lse")


@compute("attention_with_lse_dx", generic=_is_generic)
def attention_dx(
    q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, dy: Tensor, causal: bool, scale: float | None, bias: Any,
    *, out: Outs, kind: str,
) -> Any:  # fmt: skip
    if bias is None and _in_tiles(kind, q, k, v):
        return tiled.attention_dx(q, k, v, y, lse, dy, causal, scale)
    scores, factor = _scaled_scores(q, k, causal, scale, bias)
    last, output, grad, value = (len(scores.shape) - 1,), elements_of(y), elements_of(dy), elements_of(v)
    delta = reduce_axes(y, last, te.sum, lambda *i: output(*i) * grad(*i), "delta")

    def probability(*i: Expr) -> Expr:
        # lse is -inf for a row of -inf, whose exponentials are 0.
        row = lse(*i[:-1])
        return te_math.exp(scores(*i) - select(tirx.EQ(row, const(row, -math.inf)), const(row, 0), row))

    p = te.compute(scores.shape, probability, "p")
    dp = _contract(
        lambda n, *i: grad(*i[:-1], n), lambda n, *i: value(*i[:-2], i[-1], n), v.shape[-1], scores.shape, "dp"
    )
    ds = te.compute(scores.shape, lambda *i: p(*i) * (dp(*i) - read_reduced(delta, last, i)) * factor, "ds")
    query, key = elements_of(q), elements_of(k)
    dq = _contract(
        lambda n, *i: ds(*i[:-1], n), lambda n, *i: key(*i[:-2], n, i[-1]), k.shape[-2], out[0].shape, "dq_sum"
    )
    dk = _contract(
        lambda n, *i: ds(*i[:-2], n, i[-2]), lambda n, *i: query(*i[:-2], n, i[-1]), q.shape[-2], out[1].shape, "dk_sum"
    )
    dv = _contract(
        lambda n, *i: p(*i[:-2], n, i[-2]), lambda n, *i: grad(*i[:-2], n, i[-1]), q.shape[-2], out[2].shape, "dv_sum"
    )
    return tuple(
        _cast_to_result(x, o, name) for x, o, name in ((dq, out[0], "dq"), (dk, out[1], "dk"), (dv, out[2], "dv"))
    )


def _in_tiles(kind: str, *operands: Any) -> bool:
    """Whether a kernel for these sizes runs in register tiles."""
    if kind != "cpu" or not all(isinstance(d, (int, tirx.IntImm)) for x in operands for d in x.shape):
        return False
    return attention_fits_tiles(str(operands[0].dtype), *(tuple(int(d) for d in x.shape) for x in operands))


def _cast_to_result(x: Tensor, out: TensorSpec, name: str) -> Any:
    """x cast to the dtype of the result `out`."""
    return te.compute(out.shape, lambda *i: cast(x(*i), out.dtype), name)
