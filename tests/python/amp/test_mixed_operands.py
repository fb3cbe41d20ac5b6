"""Under autocast, functions with several floating operands take them in different precisions."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import meta
from meta._generated.table import FUNCTIONS
from meta.errors import DispatchError, TypeInferenceError
from meta.op.precision import data_positions
from meta.testing.generic import make_call
from meta.testing.samples import Sample
from tests.python.op.samples import samples

LOW = "bfloat16"


def _floating(row: Sample) -> list[int]:
    """Which arrays of a sample mixed precision may cast."""
    call, positions = make_call(row), data_positions(row.operator)
    pairs = zip(call.arrays(), call.positions(), strict=True)
    return [i for i, (x, position) in enumerate(pairs) if str(x.dtype) == "float32" and position in positions]


OPERATORS = [row for row in samples() if row.operator.family != "collective" and len(_floating(row)) > 1]


@pytest.mark.parametrize("row", OPERATORS, ids=repr)
def test_operators_take_operands_of_different_precisions(row: Sample) -> None:
    floating = _floating(row)
    overrides = {row.operator.name: "never"} if row.operator.amp_refusal else {}
    for i, is_low in itertools.product(floating, (True, False)):
        call = make_call(row).to_meta()
        chosen = {i} if is_low else {*floating} - {i}
        mixed = call.with_arrays([x.cast(LOW) if i in chosen else x for i, x in enumerate(call.arrays())])
        with meta.amp.autocast(LOW, overrides), meta.no_grad():
            try:
                mixed.run()
            except DispatchError:  # the reference lacks the operator
                return


def a(*shape: int, seed: int = 0) -> Any:
    return meta.array(np.random.default_rng([seed, *shape]).uniform(0.1, 0.9, shape).astype(np.float32))


I = meta.array  # noqa: E741
CALLS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "addbmm": (meta.addbmm, [(2, 3), (4, 2, 5), (4, 5, 3)]),
    "addmm": (meta.addmm, [(2, 3), (2, 5), (5, 3)]),
    "addmv": (meta.addmv, [(2,), (2, 3), (3,)]),
    "addr": (meta.addr, [(2, 3), (2,), (3,)]),
    "allclose": (meta.allclose, [(3,), (3,)]),
    "array_equal": (meta.array_equal, [(3,), (3,)]),
    "atleast_1d": (meta.atleast_1d, [(3,), (3,)]),
    "atleast_2d": (meta.atleast_2d, [(3,), (3,)]),
    "atleast_3d": (meta.atleast_3d, [(3,), (3,)]),
    "attention": (meta.attention, [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)]),
    "baddbmm": (meta.baddbmm, [(4, 2, 3), (4, 2, 5), (4, 5, 3)]),
    "bilinear": (meta.bilinear, [(2, 3), (2, 4), (5, 3, 4), (5,)]),
    "block_diag": (lambda *xs: meta.block_diag(*xs), [(2, 2), (1, 2)]),
    "bmm": (meta.bmm, [(4, 2, 5), (4, 5, 3)]),
    "broadcast_tensors": (meta.broadcast_tensors, [(3,), (2, 1)]),
    "bucketize": (meta.bucketize, [(4,), (3,)]),
    "cartesian_prod": (meta.cartesian_prod, [(3,), (2,)]),
    "cdist": (meta.cdist, [(2, 3), (4, 3)]),
    "column_stack": (lambda *xs: meta.column_stack(xs), [(3,), (3,)]),
    "cosine_embedding_loss": (lambda x, y: meta.cosine_embedding_loss(x, y, I([1, -1])), [(2, 3), (2, 3)]),
    "cosine_similarity": (meta.cosine_similarity, [(2, 3), (2, 3)]),
    "cov": (lambda x, w: meta.cov(x, aweights=w), [(2, 3), (3,)]),
    "cross": (meta.cross, [(2, 3), (2, 3)]),
    "cumulative_trapezoid": (meta.cumulative_trapezoid, [(3,), (3,)]),
    "diagonal_scatter": (meta.diagonal_scatter, [(3, 3), (3,)]),
    "diff": (lambda x, p, q: meta.diff(x, prepend=p, append=q), [(4,), (1,), (2,)]),
    "dist": (meta.dist, [(3,), (3,)]),
    "dot": (meta.dot, [(3,), (3,)]),
    "dstack": (lambda *xs: meta.dstack(xs), [(3,), (3,)]),
    "einsum": (lambda x, y: meta.einsum("ij,jk->ik", x, y), [(2, 3), (3, 4)]),
    "embedding_bag": (
        lambda w, p: meta.embedding_bag(w, I([[0, 1], [2, 0]]), mode="sum", per_sample_weights=p), [(3, 4), (2, 2)]
    ),
    "expand_as": (meta.expand_as, [(3,), (2, 3)]),
    "float_power": (meta.float_power, [(3,), (3,)]),
    "gaussian_nll_loss": (meta.gaussian_nll_loss, [(2, 3), (2, 3), (2, 3)]),
    "gradient": (lambda x, s: meta.gradient(x, spacing=(s,)), [(3,), (3,)]),
    "grid_sample": (meta.grid_sample, [(1, 2, 3, 3), (1, 2, 2, 2)]),
    "group_norm": (lambda x, s, b: meta.group_norm(x, 2, s, b), [(2, 4, 3), (4,), (4,)]),
    "hinge_embedding_loss": (meta.hinge_embedding_loss, [(3,), (3,)]),
    "histogram": (lambda x, w: meta.histogram(x, 2, range=(0, 1), weights=w), [(5,), (5,)]),
    "hstack": (lambda *xs: meta.hstack(xs), [(3,), (3,)]),
    "huber_loss": (meta.huber_loss, [(3,), (3,)]),
    "index_add": (lambda x, y: meta.index_add(x, 0, I([0, 2]), y), [(3, 2), (2, 2)]),
    "index_copy": (lambda x, y: meta.index_copy(x, 0, I([0, 2]), y), [(3, 2), (2, 2)]),
    "index_fill": (lambda x, y: meta.index_fill(x, 0, I([0, 2]), y), [(3, 2), ()]),
    "index_put": (lambda x, y: meta.index_put(x, (I([0, 2]),), y), [(3, 2), (2, 2)]),
    "index_reduce": (lambda x, y: meta.index_reduce(x, 0, I([0, 2]), y, "prod"), [(3, 2), (2, 2)]),
    "inner": (meta.inner, [(3,), (3,)]),
    "instance_norm": (meta.instance_norm, [(2, 4, 3), (4,), (4,)]),
    "isclose": (meta.isclose, [(3,), (3,)]),
    "isin": (meta.isin, [(3,), (3,)]),
    "kl_div": (meta.kl_div, [(3,), (3,)]),
    "kron": (meta.kron, [(2, 2), (2, 3)]),
    "ldexp": (meta.ldexp, [(3,), (3,)]),
    "linalg.vecdot": (meta.linalg.vecdot, [(3,), (3,)]),
    "linalg.multi_dot": (lambda *xs: meta.linalg.multi_dot(xs), [(2, 3), (3, 4), (4, 2)]),
    "linalg.solve": (meta.linalg.solve, [(2, 2), (2,)]),
    "linalg.lstsq": (lambda x, y: meta.linalg.lstsq(x, y)[0], [(3, 2), (3, 1)]),
    "linalg.solve_triangular": (lambda x, y: meta.linalg.solve_triangular(x, y, upper=True), [(2, 2), (2, 1)]),
    "linalg.cholesky_solve": (lambda x, y: meta.linalg.cholesky_solve(x, y), [(2, 1), (2, 2)]),
    "linalg.tensorsolve": (meta.linalg.tensorsolve, [(2, 2), (2,)]),
    "linalg.cross": (meta.linalg.cross, [(2, 3), (2, 3)]),
    "logspace": (lambda x, y: meta.logspace(0, 1, 3) + x * y, [(3,), (3,)]),
    "margin_ranking_loss": (meta.margin_ranking_loss, [(3,), (3,), (3,)]),
    "masked_fill": (lambda x, y: meta.masked_fill(x, x > 0.5, y), [(3,), ()]),
    "masked_scatter": (lambda x, y: meta.masked_scatter(x, I([True, False, True]), y), [(3,), (3,)]),
    "meshgrid": (lambda *xs: meta.meshgrid(*xs, indexing="ij"), [(3,), (2,)]),
    "mm": (meta.mm, [(2, 3), (3, 4)]),
    "multi_head_attention": (
        lambda *xs: meta.multi_head_attention(*xs[:3], 2, *xs[3:]),
        [(1, 2, 4), (1, 2, 4), (1, 2, 4), (12, 4), (12,), (4, 4), (4,)],
    ),
    "multi_margin_loss": (lambda x, w: meta.multi_margin_loss(x, I([0, 2]), weight=w), [(2, 3), (3,)]),
    "multilabel_soft_margin_loss": (meta.multilabel_soft_margin_loss, [(2, 3), (2, 3), (3,)]),
    "mv": (meta.mv, [(2, 3), (3,)]),
    "nanquantile": (meta.nanquantile, [(4,), (2,)]),
    "outer": (meta.outer, [(2,), (3,)]),
    "pairwise_distance": (meta.pairwise_distance, [(2, 3), (2, 3)]),
    "poisson_nll_loss": (meta.poisson_nll_loss, [(3,), (3,)]),
    "prelu": (meta.prelu, [(2, 3), (3,)]),
    "put": (lambda x, y: meta.put(x, I([0, 2]), y), [(3, 2), (2,)]),
    "quantile": (meta.quantile, [(4,), (2,)]),
    "roi_align": (
        lambda x, y: meta.roi_align(x, meta.concatenate([y[:, :1] * 0, y], 1), (2, 2)), [(1, 2, 3, 3), (2, 4)]
    ),
    "scaled_dot_product_attention": (meta.scaled_dot_product_attention, [(2, 3, 4), (2, 5, 4), (2, 5, 4)]),
    "scatter": (lambda x, y: meta.scatter(x, 0, I([[0], [2]]), y), [(3, 2), (2, 1)]),
    "scatter_reduce": (lambda x, y: meta.scatter_reduce(x, 0, I([[0], [2]]), y, "mean"), [(3, 2), (2, 1)]),
    "searchsorted": (meta.searchsorted, [(3,), (4,)]),
    "select_scatter": (lambda x, y: meta.select_scatter(x, y, 0, 1), [(3, 2), (2,)]),
    "slice_scatter": (lambda x, y: meta.slice_scatter(x, y, 0, 1), [(3, 2), (2, 2)]),
    "soft_cross_entropy": (meta.soft_cross_entropy, [(2, 3), (2, 3), (3,)]),
    "soft_margin_loss": (meta.soft_margin_loss, [(3,), (3,)]),
    "tensordot": (lambda x, y: meta.tensordot(x, y, 1), [(2, 3), (3, 4)]),
    "trapezoid": (meta.trapezoid, [(3,), (3,)]),
    "trapz": (meta.trapz, [(3,), (3,)]),
    "triplet_margin_loss": (meta.triplet_margin_loss, [(2, 3), (2, 3), (2, 3)]),
    "triplet_margin_with_distance_loss": (meta.triplet_margin_with_distance_loss, [(2, 3), (2, 3), (2, 3)]),
    "view_as": (meta.view_as, [(2, 3), (3, 2)]),
    "vstack": (lambda *xs: meta.vstack(xs), [(3,), (3,)]),
}  # fmt: skip
"""Composed functions with floating operands of these shapes."""


def test_losses_of_low_precision_are_computed_in_float32() -> None:
    """As of outputs that are rounded once: nothing in between is."""
    for name in (name for name in CALLS if "loss" in name or name in ("kl_div", "soft_cross_entropy")):
        function, shapes = CALLS[name]
        xs = [a(*shape, seed=i).cast(LOW) for i, shape in enumerate(shapes)]
        with meta.amp.autocast(LOW):
            result = function(*xs)
        assert result.dtype == "float32"
        np.testing.assert_allclose(result.numpy(), function(*[x.cast("float32") for x in xs]).numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["eager", "pass", "traced"])
def test_cross_entropy_of_rounded_probabilities_is_refused(kind: str) -> None:
    x, w, target = meta.array([[6.0], [5.0]]), meta.array([[1.0]]), meta.array([[0.0], [0.0]])

    def loss(x: Any, w: Any, target: Any) -> Any:
        return meta.binary_cross_entropy(meta.sigmoid(meta.dense(x, w)), target)

    def low(**options: Any) -> Any:
        if kind == "pass":
            return meta.vm.compile(meta.trace(loss), passes=meta.passes.auto_cast(LOW, **options))(x, w, target)
        function = meta.trace(loss) if kind == "traced" else loss
        with meta.amp.autocast(LOW, **options):
            return function(x, w, target)

    message = r"\[binary_cross_entropy\] 'x' was computed in bfloat16 .*; call binary_cross_entropy_with_logits on"
    with pytest.raises(TypeInferenceError, match=message):
        low()
    np.testing.assert_allclose(low(overrides={"sigmoid": "never"}).item(), 5.5, rtol=1e-2)


UNSAMPLED = {
    "alpha_dropout", "bincount", "ctc_loss", "dropout1d", "dropout2d", "dropout3d",
    "embedding_renorm", "feature_alpha_dropout", "fill", "fractional_max_pool2d", "fractional_max_pool3d",
    "masked_select", "max_unpool1d", "max_unpool2d", "max_unpool3d", "multilabel_margin_loss", "narrow",
    "repeat_interleave", "reverse_sequence", "rrelu", "sequence_mask", "take_along_dim",
}  # fmt: skip
"""Functions of several tensors; autocast casts at most one of them."""


def test_every_composed_function_with_several_tensors_is_called() -> None:
    tensor = re.compile(r"\b(Any|T|Tensor)\b")
    several: set[str] = set()
    for name, module in FUNCTIONS.items():
        function = getattr(import_module(module), name)
        if inspect.isfunction(function):
            parameters = inspect.signature(function).parameters.values()
            tensors = [p for p in parameters if tensor.search(str(p.annotation))]
            if len(tensors) > 1 or any(p.kind is p.VAR_POSITIONAL for p in tensors):
                several.add(name)
    assert several - UNSAMPLED - set(CALLS) == set()
    assert several >= UNSAMPLED


@pytest.mark.parametrize("name", CALLS)
def test_composed_functions_take_operands_of_different_precisions(name: str) -> None:
    function, shapes = CALLS[name]
    xs = [a(*shape, seed=i) for i, shape in enumerate(shapes)]
    with meta.amp.autocast(LOW):
        expected = _results(function(*xs))
    for i, is_low in itertools.product(range(len(xs)), (True, False)):
        mixed = [x.cast(LOW) if (i == j) == is_low else x for j, x in enumerate(xs)]
        with meta.amp.autocast(LOW):
            results = _results(function(*mixed))
        for y, exact in zip(results, expected, strict=True):
            np.testing.assert_allclose(y, exact, rtol=0.05, atol=0.05)


def _results(value: Any) -> list[Any]:
    listed = value if isinstance(value, (tuple, list)) else [value]
    return [np.asarray(y.cast("float32").numpy() if isinstance(y, meta.NDArray) else y) for y in listed]
