"""Counts of n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_int
from meta.frontend.onnx.ops._row import Node, refuse, row

_MOST = 1 << 24
"""Comparisons of positions with n-grams."""


@row("TfIdfVectorizer")
def tf_idf_vectorizer(
    node: Node, X: Tensor, *, mode: str, ngram_counts: Sequence[int], ngram_indexes: Sequence[int], max_skip_count: int,
    max_gram_length: int, min_gram_length: int, pool_int64s: Sequence[int] = (), pool_strings: Sequence[str] = (),
    weights: Sequence[float] = (),
) -> Any:  # fmt: skip
    """For each row the number of each n-gram of a pool, with 0 to `max_skip_count` elements between its own. Pools of
    text are refused."""
    if pool_strings or not is_int(X.dtype):
        refuse(node, "the n-grams are of words", "integers: meta has no tensors of text")
    x = X if X.ndim == 2 else meta.expand_dims(X, (0,))
    length, columns = x.shape[-1], max(ngram_indexes, default=-1) + 1
    if not isinstance(length, int) or length * len(pool_int64s) * (max_skip_count + 1) > _MOST:
        refuse(node, f"rows of {length} elements for a pool of {len(pool_int64s)}", f"at most {_MOST} comparisons")
    counts, places = _counts(x, pool_int64s, ngram_counts, (min_gram_length, max_gram_length), max_skip_count)
    columns_of = [ngram_indexes[place] for place in places]
    spread = np.zeros((len(columns_of), columns), "float32")
    spread[np.arange(len(columns_of)), columns_of] = 1
    total = meta.matmul(counts, meta.array(spread)) if columns_of else meta.zeros((x.shape[0], columns), "float32")
    if mode != "TF":
        factor = np.asarray(weights[:columns] if weights else np.ones(columns), "float32")
        total = meta.cast(meta.greater(total, 0), "float32") if mode == "IDF" else total
        total = meta.multiply(total, meta.array(factor))
    return total if X.ndim == 2 else meta.squeeze(total, (0,))


def _counts(x: Any, pool: Any, starts: Any, lengths: tuple[int, int], skips: int) -> tuple[Any, list[int]]:
    """The number of each n-gram in each row (rows, n-grams), and the positions of those in the pool's list."""
    parts: list[Any] = []
    places: list[int] = []
    first = 0
    for n in range(1, len(starts) + 1):
        end = starts[n] if n < len(starts) else len(pool)
        grams = np.asarray(pool[starts[n - 1] : end], "int64").reshape(-1, n)
        if lengths[0] <= n <= lengths[1] and len(grams):
            parts.append(_matches(x, grams, 0 if n == 1 else skips))
            places += range(first, first + len(grams))
        first += len(grams)
    return (meta.concatenate(parts, 1) if parts else None), places


def _matches(x: Any, grams: np.ndarray[Any, Any], skips: int) -> Any:
    """The number of windows of each row, for each distance of up to skips + 1, that equal each n-gram."""
    length = x.shape[1]
    total = meta.zeros((x.shape[0], len(grams)), "float32")
    for step in range(1, skips + 2):
        windows = length - (grams.shape[1] - 1) * step
        if windows <= 0:
            break
        same: Any = None
        for j in range(grams.shape[1]):
            part = meta.strided_slice(x, (0, j * step), (x.shape[0], j * step + windows))
            equal = meta.equal(meta.expand_dims(meta.cast(part, "int64"), (2,)), meta.array(grams[:, j]))
            same = equal if same is None else meta.logical_and(same, equal)
        total = meta.add(total, meta.sum(meta.cast(same, "float32"), (1,)))
    return total
