"""The part of a batch that is this rank's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meta.distributed import process
from meta.distributed.mesh import GroupLike, as_group
from meta.dtype import is_float, to_numpy
from meta.errors import ArgumentError


def batch_part(*arrays: Any, pad: bool = False, group: GroupLike = None) -> tuple[Any, ...]:
    """This rank's rows of arrays that all ranks have: `x, y = batch_part(x, y)`.

    arrays: NumPy arrays or meta's, of one number of rows.
    pad: repeat the last row where the ranks do not divide the rows, and return one more array, the weights of the rows,
        of the first floating dtype among the arrays or float32. Repeated rows have weight 0. The mean over all ranks of
        the means of `loss of a row * weight` is the mean of the rows' losses: `x, y, w = batch_part(x, y, pad=True)`
        with the loss `(meta.cross_entropy(scores, y, reduction="none") * w).mean()`.
    group: the ranks that share the batch, as a group, an axis of a mesh, or None for all processes.
    Raises ArgumentError for arrays of different lengths, for none and empty ones, and without `pad` for rows that the
    ranks do not divide."""
    name, ranks = as_group("batch_part", group)
    lengths = sorted({x.shape[0] if x.shape else 0 for x in arrays})
    if len(lengths) != 1 or not lengths[0]:
        problem = f"arrays of {' and '.join(map(str, lengths))} rows" if lengths else "there are no arrays"
        raise ArgumentError("batch_part", problem, "arrays of one number of rows, at least 1")
    (rows,) = lengths
    if rows % ranks and not pad:
        raise ArgumentError(
            "batch_part", f"{rows} rows for {ranks} ranks", f"a multiple of {ranks}",
            "drop the rest, or weight the rows of a padded batch: batch_part(..., pad=True)",
        )  # fmt: skip
    own = math.ceil(rows / ranks)
    first = process.position(name, ranks) * own
    picked = np.minimum(np.arange(first, first + own), rows - 1)
    parts = tuple(x[picked] for x in arrays)
    if not pad:
        return parts
    dtype = next((str(x.dtype) for x in arrays if is_float(str(x.dtype))), "float32")
    return *parts, np.where(np.arange(first, first + own) < rows, own * ranks / rows, 0).astype(to_numpy(dtype))
