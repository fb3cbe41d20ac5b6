"""Products of groups of rows with a matrix for each group, as layers of several experts have them."""

from __future__ import annotations

from typing import Any

import meta
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, into
from meta.frontend.torch.aten._values import in_dtype

ROWS: Rows = {}


def _members(ends: Any, count: Any) -> Any:
    """Whether each of `count` positions is in each group, (groups, count). ends: where groups end, in order."""
    ends = meta.cast(ends, "int64")
    starts = meta.concatenate([meta.zeros((1,), "int64", ends.device), ends[:-1]], 0)
    positions = meta.arange(0, count, 1, "int64", ends.device)
    after = meta.greater_equal(positions, meta.expand_dims(starts, 1))
    return meta.logical_and(after, meta.less(positions, meta.expand_dims(ends, 1)))


def rows_by_group(x: Any, w: Any, ends: Any) -> Any:
    """Rows (n, k) times the matrix of their group, w (groups, k, m): (n, m). Rows behind the last group are 0."""
    products = meta.matmul(meta.expand_dims(x, 0), w)
    return meta.sum(meta.where(meta.expand_dims(_members(ends, x.shape[0]), 2), products, 0), 0)


def columns_by_group(x: Any, w: Any, ends: Any) -> Any:
    """The matrix of the group of each column, x (groups, n, k), times the columns of w (k, m): (n, m)."""
    products = meta.matmul(x, meta.expand_dims(w, 0))
    return meta.sum(meta.where(meta.expand_dims(_members(ends, w.shape[1]), 1), products, 0), 0)


def sums_by_group(x: Any, w: Any, ends: Any) -> Any:
    """The products x (n, k) and w (k, m) of the part of k in each group: (groups, n, m)."""
    members = _members(ends, x.shape[1])
    parts = meta.where(meta.expand_dims(members, 1), x, 0), meta.where(meta.expand_dims(members, 2), w, 0)
    return meta.matmul(*parts)


_BY_RANKS = {(2, 3): rows_by_group, (3, 2): columns_by_group, (2, 2): sums_by_group}


@into(ROWS)
def _grouped_mm(self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """`torch.nn.functional.grouped_mm`: of two stacks, the products of their matrices; else `offs` has the ends of the
    groups of rows, of columns, or of the axis that is summed."""
    if bias is not None:
        raise ArgumentError("_grouped_mm", "bias is given", "None, as torch does")
    ranks = self.ndim, mat2.ndim
    if (offs is None) != (ranks == (3, 3)) or min(ranks) < 2 or max(ranks) > 3:
        problem = f"operands with {ranks[0]} and {ranks[1]} axes {'without' if offs is None else 'and'} offs"
        raise ArgumentError(
            "_grouped_mm", problem, "two stacks of matrices without offs, or a matrix among them and offs"
        )
    out = meta.matmul(self, mat2) if offs is None else _BY_RANKS[ranks](self, mat2, offs)
    return out if out_dtype is None else in_dtype(out, out_dtype)
