"""Declarations of attention."""

from __future__ import annotations

from meta.dim import Shape, same_dim
from meta.dtype import accumulation_dtype
from meta.ir.type import TensorType, TupleType
from meta.op import rules
from meta.op.registry import declare
from meta.schema import attention


def _operands(q: TensorType, k: TensorType, v: TensorType) -> None:
    """Raise TypeInferenceError unless queries, keys and values fit together."""
    shapes = ", ".join(f"{name} {rules.show(t.shape)}" for name, t in (("q", q), ("k", k), ("v", v)))
    rules.require_float("q", q)
    rules.require_same_dtype(q=q, k=k, v=v)
    rules.same_device(q, k, v)
    ranks = q.ndim == k.ndim == v.ndim
    rules.require(ranks and q.ndim >= 2, f"shapes are {shapes}", "equal ranks of at least 2")
    rules.require(
        rules.same_shape(q.shape[:-2], k.shape[:-2]) and rules.same_shape(q.shape[:-2], v.shape[:-2]),
        f"shapes are {shapes}",
        "equal leading axes",
        "broadcast them first",
    )
    rules.require(same_dim(q.shape[-1], k.shape[-1]), f"shapes are {shapes}", "as many features of q as of k")
    rules.require(same_dim(k.shape[-2], v.shape[-2]), f"shapes are {shapes}", "as many keys as values")
    rules.require(0 not in (k.shape[-2], q.shape[-1]), f"shapes are {shapes}", "at least one key, of a feature")


def _fits_scores(q: TensorType, k: TensorType, bias: TensorType | None) -> None:
    """Raise TypeInferenceError unless a bias broadcasts to the scores and has the dtype of the queries."""
    if bias is None:
        return
    rules.require_same_dtype(q=q, bias=bias)
    rules.same_device(q, bias)
    scores = (*q.shape[:-1], k.shape[-2])
    fits = bias.ndim <= len(scores) and rules.same_shape(rules.broadcast_shapes(bias.shape, scores), scores)
    rules.require(fits, f"'bias' has shape {rules.show(bias.shape)}, the scores {rules.show(scores)}",
                  "a bias that broadcasts to the scores")  # fmt: skip


def _result(q: TensorType, v: TensorType) -> Shape:
    return (*q.shape[:-1], v.shape[-1])


@declare(
    "attention_with_lse",
    schema=attention.attention_with_lse,
    pattern="opaque",
    amp="always",
    outputs=("y", "lse"),
)
def attention_with_lse(
    q: TensorType, k: TensorType, v: TensorType, causal: bool, scale: float | None, bias: TensorType | None
) -> TupleType:  # fmt: skip
    """softmax(scale * q @ k^T + bias) @ v (A. Vaswani et al., "Attention Is All You Need", 2017), and lse, the
    logarithm of the sum of exponentials of each row of scores, for the gradient (T. Dao et al., "FlashAttention",
    2022). Halves are computed in float32, with lse in float32. A row whose scores are all -inf gives 0; one with a
    score of inf or NaN gives NaN, in lse too."""
    _operands(q, k, v)
    _fits_scores(q, k, bias)
    return TupleType((q.with_shape(_result(q, v)), q.with_shape(q.shape[:-1]).with_dtype(accumulation_dtype(q.dtype))))


@declare(
    "attention_with_lse_dx",
    schema=attention.attention_with_lse_dx,
    pattern="opaque",
    amp="always",
    amp_args=("q", "k", "v", "y", "dy", "bias"),
    outputs=("dq", "dk", "dv"),
    aliases=("scaled_dot_product_attention_dx",),  # its former name
)
def attention_with_lse_dx(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    y: TensorType,
    lse: TensorType,
    dy: TensorType,
    causal: bool,
    scale: float | None,
    bias: TensorType | None,
) -> TupleType:
    """Gradients of attention_with_lse by q, k and v. With p = exp(scale * q @ k^T + bias - lse) and
    ds = p * (dy @ v^T - sum(dy * y)): scale * ds @ k, scale * ds^T @ q and p^T @ dy."""
    _operands(q, k, v)
    _fits_scores(q, k, bias)
    rules.require_same_shape(result=q.with_shape(_result(q, v)), y=y, dy=dy)
    rules.require_same_dtype(q=q, y=y, dy=dy)
    rules.require_same_shape(rows=q.with_shape(q.shape[:-1]), lse=lse)
    rules.require(
        lse.dtype == accumulation_dtype(q.dtype),
        f"'lse' is {lse.dtype}, 'q' is {q.dtype}",
        f"{accumulation_dtype(q.dtype)}",
    )
    rules.same_device(q, y, lse, dy)
    return TupleType((q, k, v))
