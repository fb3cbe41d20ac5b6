"""Operators of ai.onnx.ml on numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_float
from meta.errors import TypeInferenceError
from meta.frontend.onnx.ops._row import Node, refuse, row
from meta.frontend.onnx.ops._values import host_dtype
from meta.functional._checks import as_dtype

_DOMAIN = "ai.onnx.ml"


@row(f"{_DOMAIN}::ArrayFeatureExtractor")
def array_feature_extractor(node: Node, X: Tensor, Y: Tensor) -> Any:
    """Elements of the last axis; of one axis, as a row."""
    out = meta.take(X, meta.reshape(Y, (-1,)), X.ndim - 1)
    return meta.reshape(out, (1, -1)) if X.ndim == 1 else out


row(f"{_DOMAIN}::Binarizer")(lambda node, X, *, threshold=0.0: meta.cast(meta.greater(X, threshold), X.dtype))


@row(f"{_DOMAIN}::FeatureVectorizer")
def feature_vectorizer(node: Node, *X: Any, inputdimensions: Sequence[int] = ()) -> Any:
    parts: list[Any] = []
    for i, x in enumerate(X):
        rows = x if x.ndim == 2 else meta.expand_dims(x, 0)
        if inputdimensions and rows.shape[1] != inputdimensions[i]:
            raise TypeInferenceError(
                "FeatureVectorizer", f"input {i} has shape {x.shape}", f"{inputdimensions[i]} columns"
            )
        parts.append(as_dtype(rows, "float32"))
    return meta.concatenate(parts, 1)


@row(f"{_DOMAIN}::Imputer")
def imputer(
    node: Node, X: Tensor, *, imputed_value_floats: Sequence[float] = (), imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0,
) -> Any:  # fmt: skip
    """A replaced value of NaN replaces every NaN."""
    values = imputed_value_floats if is_float(X.dtype) else imputed_value_int64s
    old = replaced_value_float if is_float(X.dtype) else replaced_value_int64
    is_old = meta.isnan(X) if isinstance(old, float) and math.isnan(old) else meta.equal(X, old)
    return meta.where(is_old, meta.array(np.asarray(values, host_dtype(X.dtype))), X)


@row(f"{_DOMAIN}::Scaler")
def scaler(node: Node, X: Tensor, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Any:
    """(x - offset) * scale, of all columns or of each."""
    x = as_dtype(X, "float32")
    x = meta.subtract(x, meta.array(np.asarray(offset, "float32"))) if len(offset) else x
    return meta.multiply(x, meta.array(np.asarray(scale, "float32"))) if len(scale) else x


@row(f"{_DOMAIN}::OneHotEncoder")
def one_hot_encoder(
    node: Node, X: Tensor, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[str] = (), zeros: int = 1
) -> Any:
    if cats_strings or not zeros:
        refuse(node, "categories are text, or others are errors", "cats_int64s and zeros=1")
    table = meta.array(np.asarray(cats_int64s, "int64"))
    return meta.cast(meta.equal(meta.expand_dims(meta.cast(X, "int64"), X.ndim), table), "float32")


@row(f"{_DOMAIN}::LabelEncoder", since=2)
def label_encoder(
    node: Node, X: Tensor, *, keys_int64s: Sequence[int] | None = None, keys_floats: Sequence[float] | None = None,
    keys_tensor: Any = None, keys_strings: Sequence[str] | None = None, values_int64s: Sequence[int] | None = None,
    values_floats: Sequence[float] | None = None, values_tensor: Any = None,
    values_strings: Sequence[str] | None = None, default_int64: int = -1, default_float: float = -0.0,
    default_tensor: Any = None, default_string: str = "_Unused",
) -> Any:  # fmt: skip
    """The value of each key; the last one of equal keys."""
    keys = _first_present({"int64": keys_int64s, "float32": keys_floats, "": keys_tensor})
    values = _first_present({"int64": values_int64s, "float32": values_floats, "": values_tensor})
    if keys is None or values is None or keys.dtype.kind in "OSU" or values.dtype.kind in "OSU":
        refuse(node, "keys or values are text", "numbers")
    fallback: Any = default_float if values.dtype.kind == "f" else default_int64
    if default_tensor is not None:
        fallback = np.asarray(default_tensor).reshape(-1)[0]
    x = meta.expand_dims(X, X.ndim)
    hit = meta.equal(x, meta.array(keys))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        hit = meta.logical_or(hit, meta.logical_and(meta.isnan(x), meta.array(np.isnan(keys))))
    last = meta.subtract(len(keys) - 1, meta.argmax(meta.cast(meta.flip(hit, -1), "int32"), -1))
    labels = meta.take(meta.array(values), last, 0)
    return meta.where(meta.any(hit, -1), labels, meta.full_like(labels, np.asarray(fallback).item()))


def _first_present(lists: dict[str, Any]) -> Any:
    for dtype, values in lists.items():
        if values is not None:
            return np.asarray(values, dtype or None).reshape(-1)
    return None


@row(f"{_DOMAIN}::LinearRegressor")
def linear_regressor(
    node: Node, X: Tensor, *, coefficients: Sequence[float] = (), intercepts: Sequence[float] = (), targets: int = 1,
    post_transform: str = "NONE",
) -> Any:  # fmt: skip
    w = np.asarray(coefficients, "float32").reshape(targets, -1)
    y = meta.dense(as_dtype(X, "float32"), meta.array(w))
    y = meta.add(y, meta.array(np.asarray(intercepts, "float32"))) if len(intercepts) else y
    return _post_transformed(node, y, post_transform)


def _softmax_of_nonzero(y: Tensor) -> Any:
    """Softmax over the scores that are not 0; the others stay 0."""
    zero = meta.equal(y, 0.0)
    e = meta.where(zero, meta.zeros_like(y), meta.exp(meta.subtract(y, meta.max(y, -1, True))))
    total = meta.sum(e, -1, True)
    return meta.divide(e, meta.where(meta.equal(total, 0.0), meta.ones_like(total), total))


_TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda y: y, "SOFTMAX": lambda y: meta.softmax(y, -1), "LOGISTIC": meta.sigmoid,
    "SOFTMAX_ZERO": _softmax_of_nonzero, "PROBIT": meta.ndtri,
}  # fmt: skip


def _post_transformed(node: Node, y: Tensor, name: str) -> Any:
    if name not in _TRANSFORMS:
        refuse(node, f"post_transform is {name!r}", ", ".join(_TRANSFORMS))
    return _TRANSFORMS[name](y)


# --- trees -----------------------------------------------------------------------------------------------------------

_COMPARE: tuple[Callable[[Any, Any], Any], ...] = (
    meta.less_equal, meta.less, meta.greater_equal, meta.greater, meta.equal, meta.not_equal,
)  # fmt: skip
"""The comparisons of TreeEnsemble's modes 0 to 5; 6 is membership in a set."""
_MEMBER = 6


@row(f"{_DOMAIN}::TreeEnsemble", since=5)
def tree_ensemble(
    node: Node, X: Tensor, *, nodes_featureids: Sequence[int], nodes_modes: Any, nodes_splits: Any,
    nodes_truenodeids: Sequence[int], nodes_falsenodeids: Sequence[int], nodes_trueleafs: Sequence[int],
    nodes_falseleafs: Sequence[int], leaf_targetids: Sequence[int], leaf_weights: Any, tree_roots: Sequence[int],
    n_targets: int = 1, aggregate_function: int = 1, post_transform: int = 0,
    nodes_missing_value_tracks_true: Sequence[int] = (), nodes_hitrates: Any = None, membership_values: Any = None,
) -> Any:  # fmt: skip
    """Sums, means, minima or maxima of the weights of the leaves that each row reaches, for each target."""
    inner = len(nodes_featureids)
    children = [
        np.where(np.asarray(leaf, bool), np.asarray(ids, "int64") + inner, np.asarray(ids, "int64"))
        for ids, leaf in ((nodes_truenodeids, nodes_trueleafs), (nodes_falsenodeids, nodes_falseleafs))
    ]
    leaves = np.arange(inner, inner + len(leaf_targetids))
    tables = [meta.array(np.concatenate([child, leaves])) for child in children]
    features = meta.array(np.concatenate([np.asarray(nodes_featureids, "int64"), np.zeros_like(leaves)]))
    passes = _Test(X, nodes_modes, nodes_splits, nodes_missing_value_tracks_true, membership_values, len(leaves))
    shape = (X.shape[0], len(tree_roots))
    places = meta.broadcast_to(meta.array(np.asarray(tree_roots, "int64")), shape)
    for _ in range(_depth(node, children[0], children[1], tuple(tree_roots), inner)):
        values = meta.gather(X, 1, meta.take(features, places, 0))
        yes, no = (meta.take(table, places, 0) for table in tables)
        places = meta.where(passes(values, places), yes, no)
    y = _aggregated(node, places - inner, leaf_targetids, leaf_weights, n_targets, aggregate_function)
    names = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    return _post_transformed(
        node, y, names[post_transform] if 0 <= post_transform < len(names) else str(post_transform)
    )


def _depth(node: Node, yes: Any, no: Any, roots: tuple[int, ...], inner: int) -> int:
    """Comparisons on the longest way to a leaf. Raises TypeInferenceError for ways that do not end."""
    level, depth = set(roots), 0
    while any(i < inner for i in level):
        level = {int(c) for i in level if i < inner for c in (yes[i], no[i])}
        depth += 1
        if depth > inner:
            raise TypeInferenceError(node.op_type, "a way through a tree does not end", "trees")
    return depth


class _Test:
    """The comparisons of all nodes: (values, places) -> bool. Leaves, which come after the nodes, pass."""

    def __init__(self, x: Any, modes: Any, splits: Any, missing: Any, members: Any, leaves: int) -> None:
        kind = host_dtype(x.dtype)
        self._modes = np.asarray(modes, "int64").reshape(-1)
        self._mode = meta.array(np.concatenate([self._modes, np.full(leaves, -1)]))
        self._split = meta.array(np.concatenate([np.asarray(splits).astype(kind).reshape(-1), np.zeros(leaves, kind)]))
        flags = np.asarray(missing, bool) if len(missing) else np.zeros(len(self._modes), bool)
        self._missing = meta.array(np.concatenate([flags, np.zeros(leaves, bool)]))
        self._members = _sets(self._modes, members, leaves, kind)

    def __call__(self, values: Tensor, places: Any) -> Any:
        mode, split = meta.take(self._mode, places, 0), meta.take(self._split, places, 0)
        out = meta.logical_and(meta.isnan(values), meta.take(self._missing, places, 0))
        for number in sorted(set(self._modes.tolist())):
            if number == _MEMBER:
                sets = meta.take(self._members, places, 0)
                hit = meta.any(meta.equal(meta.expand_dims(values, 2), sets), 2)
            else:
                hit = _COMPARE[number](values, split)
            out = meta.logical_or(out, meta.logical_and(meta.equal(mode, number), hit))
        return out


def _sets(modes: Any, members: Any, leaves: int, kind: Any) -> Any:
    """The set of each membership node as a row, filled up with NaN; None without such nodes."""
    nodes = np.flatnonzero(modes == _MEMBER)
    if not len(nodes):
        return None
    flat = np.asarray(members).astype(kind).reshape(-1)
    sets = [part[~np.isnan(part)] for part in np.split(flat, np.flatnonzero(np.isnan(flat)))][: len(nodes)]
    table = np.full((len(modes) + leaves, max(map(len, sets), default=1) or 1), np.nan, kind)
    for place, part in zip(nodes, sets, strict=True):
        table[place, : len(part)] = part
    return meta.array(table)


def _aggregated(node: Node, leaves: Any, targets: Any, weights: Any, count: int, function: int) -> Any:
    """leaves: (rows, trees)."""
    if function not in (0, 1, 2, 3):
        refuse(node, f"aggregate_function is {function}", "0 to 3")
    values = np.asarray(weights).reshape(-1)
    fill = {2: np.inf, 3: -np.inf}.get(function, 0.0)
    table = np.full((len(values), count), fill, values.dtype)
    table[np.arange(len(values)), np.asarray(targets, "int64")] = values
    reached = meta.take(meta.array(table), leaves, 0)  # (rows, trees, targets)
    reduce = (meta.mean, meta.sum, meta.min, meta.max)[function]
    y = reduce(reached, 1)
    return meta.where(meta.isinf(y), meta.zeros_like(y), y) if function in (2, 3) else y
