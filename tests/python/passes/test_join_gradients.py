"""join_gradients: which gradients become one call of a library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import meta
from meta import passes
from meta.ir.type import tensor_type
from meta.op.decomposition import decompositions
from meta.op.dialect.reference import Evaluation
from tests.python.passes.programs import check_same_results, lines, program

X = tensor_type((4, 6))
PARAMETER = tensor_type((6,))
GRADIENTS = Evaluation(decompositions("norm")["layer_norm_dxwb"])


@pytest.fixture(autouse=True)
def _library() -> Iterator[Any]:
    """A dialect that computes the gradients of float32 along the last axis."""
    library = meta.register_dialect("joint", plevel=20)

    def accepts(call: Any) -> str | None:
        args = call.bind()
        return None if args["axis"] == (-1,) and args["x"].dtype == "float32" else "other gradients"

    @library.implement("layer_norm_dxwb", accepts=accepts)
    def gradients(x: Any, scale: Any, dy: Any, axis: Any, eps: float, *, out: Any) -> None:
        for target, value in zip(out, GRADIENTS(x, scale, dy, axis, eps), strict=True):
            target[...] = value

    yield library
    meta.unregister_dialect("joint")


def joined(function: Any, *types: Any) -> list[str]:
    """The operators of a program after the pass; its results are checked."""
    before = program(function, *types)
    after = passes.dce(passes.join_gradients(before))
    check_same_results(before, after)
    return sorted(line.split(" = ")[1].split("(")[0] for line in lines(after) if "layer_norm" in line)


def test_one_call_for_all_gradients() -> None:
    def gradients(x: Any, scale: Any, dy: Any) -> Any:
        dscale, dbias = meta.layer_norm_dwb(x, dy)
        dx = meta.layer_norm_dx(x, scale, dy)
        before = meta.layer_norm_dx(scale.reshape((1, 6)), None, dx[:1])  # without those of parameters
        return dx, dscale, dbias, before

    assert joined(gradients, X, PARAMETER, X) == ["layer_norm_dx", "layer_norm_dxwb"]


def test_a_chain_of_norms() -> None:
    """The gradient of the first norm takes the gradient of the second, which has been replaced, and the statistics of
    the forward pass, which the program has."""

    def gradients(x: Any, w: Any, b: Any, dy: Any) -> Any:
        h = meta.layer_norm(x, w, b)
        sums = meta.layer_norm_dwb(h, dy)
        dh = meta.layer_norm_dx(h, w, dy)
        return meta.layer_norm_dx(x, w, dh), *meta.layer_norm_dwb(x, dh), *sums

    assert joined(gradients, X, PARAMETER, PARAMETER, X) == [
        "layer_norm_dxwb", "layer_norm_train", "layer_norm_train_dxwb",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_leaves_other_gradients(dtype: str) -> None:
    """Other operands, axes or precisions: of these a library has no kernel, or there is nothing to join."""

    def gradients(x: Any, scale: Any, dy: Any) -> Any:
        axis = -1 if dtype == "float64" else (0, 1)
        parameter = scale if dtype == "float64" else None
        return meta.layer_norm_dx(x, parameter, dy, axis), *meta.layer_norm_dwb(x, dy, axis)

    types = (tensor_type(t.shape, dtype) for t in (X, PARAMETER, X))
    assert joined(gradients, *types) == ["layer_norm_dwb", "layer_norm_dx"]
    operands = joined(lambda x, dy: (meta.layer_norm_dx(x, None, dy), meta.layer_norm_dwb(x, x)[0]), X, X)
    assert operands == ["layer_norm_dwb", "layer_norm_dx"]


def test_scales_that_are_computed_later() -> None:
    def gradients(x: Any, w: Any, dy: Any) -> Any:
        sums = meta.layer_norm_dwb(x, dy)
        scale = meta.exp(w + sums[0])
        return meta.layer_norm_dx(x, scale, dy), *sums

    assert joined(gradients, X, PARAMETER, X) == ["layer_norm_dwb", "layer_norm_dx"]
