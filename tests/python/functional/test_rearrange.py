"""Selection, division, joining and diagonals: values and gradients as torch's, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import vm
from meta.errors import ArgumentError, MetaError, PositionError, TypeInferenceError
from tests.python.functional.against_torch import Function, compare, floats, same

X = (2, 3, 4)
ROWS: dict[str, tuple[Function, Function, list[tuple[int, ...]]]] = {
    "select": (lambda x: meta.select(x, -2, -1), lambda x: x.select(-2, -1), [X]),
    "narrow": (lambda x: meta.narrow(x, 1, -2, 1), lambda x: x.narrow(1, -2, 1), [X]),
    "select_scatter": (lambda x, s: meta.select_scatter(x, s, 1, -1),
                       lambda x, s: torch.select_scatter(x, s, 1, -1), [X, (2, 4)]),
    "slice_scatter": (lambda x, s: meta.slice_scatter(x, s, 1, 1, None, 2),
                      lambda x, s: torch.slice_scatter(x, s, 1, 1, None, 2), [X, (2, 1, 4)]),
    "slice_scatter of nothing": (lambda x, s: meta.slice_scatter(x, s, 1, 2, 1),
                                 lambda x, s: torch.slice_scatter(x, s, 1, 2, 1), [X, (2, 0, 4)]),
    "unbind": (lambda x: meta.unbind(x, 1), lambda x: x.unbind(1), [X]),
    "chunk": (lambda x: meta.chunk(x, 4), lambda x: x.chunk(4), [(7, 3)]),
    "tensor_split": (lambda x: meta.tensor_split(x, 3), lambda x: x.tensor_split(3), [(7, 3)]),
    "tensor_split at unordered positions": (lambda x: meta.tensor_split(x, (3, 1, -2)),
                                            lambda x: x.tensor_split((3, 1, -2)), [(7, 3)]),
    "hsplit": (lambda x: meta.hsplit(x, 3), lambda x: x.hsplit(3), [(6,)]),
    "dsplit": (lambda x: meta.dsplit(x, (1,)), lambda x: x.dsplit((1,)), [X]),
    "split_with_sizes": (lambda x: meta.split_with_sizes(x, (1, 3)), lambda x: x.split_with_sizes((1, 3)), [(4, 2)]),
    **{name: (lambda *xs, name=name: getattr(meta, name)(xs), lambda *xs, name=name: getattr(torch, name)(xs),
              [(3,), (3,)]) for name in ("hstack", "vstack", "dstack", "column_stack")},
    "atleast_3d": (meta.atleast_3d, torch.atleast_3d, [(), (3,), (2, 3), X]),
    "block_diag": (meta.block_diag, torch.block_diag, [(2, 3), (), (3,)]),
    "meshgrid": (lambda *xs: meta.meshgrid(*xs, indexing="xy"), lambda *xs: torch.meshgrid(*xs, indexing="xy"),
                 [(2,), (), (3,)]),
    "meshgrid of nothing": (meta.meshgrid, lambda *xs: torch.meshgrid(*xs, indexing="ij"), [(2,), (0,)]),
    "cartesian_prod": (meta.cartesian_prod, torch.cartesian_prod, [(2,), (3,)]),
    "flatten": (lambda x: meta.flatten(x), lambda x: torch.flatten(x), [(2, 3, 4)]),
    "flatten the rest": (lambda x: meta.flatten(x, 1), lambda x: torch.flatten(x, 1), [(2, 3, 4)]),
    "flatten some": (lambda x: x.flatten(-3, 1), lambda x: x.flatten(-3, 1), [(2, 3, 4)]),
    "flatten a scalar": (lambda x: meta.flatten(x), lambda x: torch.flatten(x), [()]),
    "flatten nothing": (lambda x: x.flatten(1), lambda x: x.flatten(1), [(0, 3, 4)]),
    "unflatten": (lambda x: meta.unflatten(x, 1, (2, -1)), lambda x: x.unflatten(1, (2, -1)), [(2, 4)]),
    "expand": (lambda x: meta.expand(x, (2, -1, 4)), lambda x: x.expand(2, -1, 4), [(3, 1)]),
    "sum_to_size": (lambda x: meta.sum_to_size(x, (3, 1)), lambda x: x.sum_to_size(3, 1), [X]),
    **{f"rot90 {k}": (lambda x, k=k: meta.rot90(x, k, (0, 2)), lambda x, k=k: x.rot90(k, (0, 2)), [X])
       for k in (-1, 1, 2, 4)},
    "unfold": (lambda x: meta.unfold(x, 1, 2, 2), lambda x: x.unfold(1, 2, 2), [(2, 5, 3)]),
    "unfold of a 0-d tensor": (lambda x: meta.unfold(x, 0, 1, 1), lambda x: x.unfold(0, 1, 1), [()]),
}  # fmt: skip
OFFSETS = (-4, -1, 0, 2)


@pytest.mark.parametrize("name", ROWS)
def test_as_torch(name: str) -> None:
    ours, theirs, shapes = ROWS[name]
    compare(ours, theirs, [floats(*shape) for shape in shapes])


@pytest.mark.parametrize("offset", OFFSETS)
def test_diagonals_as_torch(offset: int) -> None:
    x = floats(2, 3, 4)
    compare(lambda x: meta.diagonal(x, offset, 2, 0), lambda x: x.diagonal(offset, 2, 0), [x])
    src = floats(*np.diagonal(x, offset, 2, 0).shape)
    compare(
        lambda x, s: meta.diagonal_scatter(x, s, offset, 2, 0),
        lambda x, s: torch.diagonal_scatter(x, s, offset, 2, 0),
        [x, src],
    )
    compare(lambda x: meta.diag_embed(x, offset, 1, 0), lambda x: torch.diag_embed(x, offset, 1, 0), [floats(2, 3)])
    compare(lambda x: meta.diagflat(x, offset), lambda x: torch.diagflat(x, offset), [floats(2, 2)])


@pytest.mark.parametrize("offset", OFFSETS)
def test_positions_of_triangles(offset: int) -> None:
    same(meta.triu_indices(3, 4, offset), torch.triu_indices(3, 4, offset))
    same(meta.tril_indices(3, 4, offset, "int32"), torch.tril_indices(3, 4, offset, dtype=torch.int32))


def test_joins_promote_dtypes() -> None:
    x, t = meta.array([1, 2], "int32"), torch.tensor([1, 2], dtype=torch.int32)
    same(meta.hstack([x, x.cast("float16")]), torch.hstack([t, t.half()]))
    same(meta.block_diag(x, x.cast("bool")), torch.block_diag(t, t.bool()))


def test_positions_may_be_tensors() -> None:
    x, t = meta.array(floats(5)), torch.from_numpy(floats(5))
    same(meta.tensor_split(x, meta.array([1, 3])), t.tensor_split(torch.tensor([1, 3])))
    same(meta.narrow(x, 0, meta.array(2), 2), t.narrow(0, torch.tensor(2), 2))


def test_programs() -> None:
    def step(x: Any) -> Any:
        return meta.diagonal(meta.rot90(meta.unfold(x, 1, 2, 1)[0])), meta.hstack(meta.unbind(x))

    x = meta.array(floats(2, 4))
    for y, eager in zip(vm.compile(meta.trace(step))(x), step(x), strict=True):
        assert y.tolist() == eager.tolist()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: meta.select(x, 2, 0), TypeInferenceError, r"\[select\] axis 2 is out of range for rank 2"),
        (lambda x: meta.select(x, 0, 2), PositionError, "2 is out of range for axis 0 of size 2"),
        (lambda x: meta.narrow(x, 0, 1, 2), PositionError, r"\[narrow\] start 1 and length 2 on an axis of size 2"),
        (lambda x: meta.slice_scatter(x, x, 0, 0, 1), TypeInferenceError, r"'src' has shape \(2, 3\); expected \(1, 3"),
        (lambda x: meta.select_scatter(x, x[0].cast("int64"), 0, 0), TypeInferenceError, "one dtype for both"),
        (lambda x: meta.chunk(x, 0), TypeInferenceError, r"\[chunk\] chunks is 0; expected 1 or more"),
        (lambda x: meta.hsplit(x, 2), TypeInferenceError, "2 sections of an axis of size 3; expected a divisor"),
        (lambda x: meta.vsplit(x[0], 2), TypeInferenceError, r"\[vsplit\] 'x' has shape \(3,\); expected rank 2 or"),
        (lambda x: meta.split_with_sizes(x, (1, 2)), TypeInferenceError, r"sizes \(1, 2\) of an axis of size 2"),
        (lambda x: meta.hstack([]), TypeInferenceError, r"\[hstack\] no tensors; expected at least one"),
        (lambda x: meta.block_diag(x[None]), TypeInferenceError, r"tensor 0 has shape \(1, 2, 3\)"),
        (lambda x: meta.meshgrid(x), TypeInferenceError, r"\[meshgrid\] tensor 0 has shape \(2, 3\)"),
        (lambda x: meta.meshgrid(x[0], indexing="ji"), ArgumentError, "indexing is 'ji'"),
        (lambda x: meta.flatten(x, 1, 0), TypeInferenceError, r"\[flatten\] start_dim is 1, end_dim is 0"),
        (lambda x: x.flatten(2), TypeInferenceError, r"\[flatten\] axis 2 is out"),
        (lambda x: meta.unflatten(x, 1, (2, -1)), TypeInferenceError, r"sizes \(2, -1\) for an axis of size 3"),
        (lambda x: meta.expand(x, (3,)), TypeInferenceError, r"shape \(3,\) for rank 2; expected at least 2 sizes"),
        (lambda x: meta.rot90(x, 1, (0, -2)), TypeInferenceError, "axes 0 and -2 are the same"),
        (lambda x: meta.fliplr(x[0]), TypeInferenceError, r"\[fliplr\] 'x' has shape \(3,\)"),
        (lambda x: meta.unfold(x, 0, 3, 1), TypeInferenceError, "size is 3 for an axis of size 2"),
        (lambda x: meta.diagonal(x, 0, 1, 1), TypeInferenceError, r"\[diagonal\] axes 1 and 1 are the same"),
        (lambda x: meta.diag(x[None]), TypeInferenceError, r"\[diag\] 'x' has shape \(1, 2, 3\)"),
        (lambda x: meta.diagonal_scatter(x, x), TypeInferenceError, r"'src' has shape \(2, 3\); expected \(2,\)"),
        (lambda x: meta.triu_indices(-1, 2), TypeInferenceError, r"\[triu_indices\] -1 rows and 2 columns"),
    ],
)  # fmt: skip
def test_refusals(call: Callable[[Any], Any], error: type[MetaError], match: str) -> None:
    with pytest.raises(error, match=match):
        call(meta.array(floats(2, 3)))
