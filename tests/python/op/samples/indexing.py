"""Samples of operators that pick elements by position, and put them there."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def I(*shape: int, high: int, low: int = 0, dtype: str = "int64") -> T:  # noqa: E743
    """Random positions."""
    return T(*shape, dtype=dtype, low=low, high=high)


def _places(shape: Any, begin: Any, end: Any, strides: Any = ()) -> Any:
    """The flat positions of a slice (torch has no negative steps)."""
    steps = strides or (1,) * len(begin)
    flat = np.arange(int(np.prod(shape))).reshape(tuple(shape))
    picked = flat[tuple(slice(b, e, s) for b, e, s in zip(begin, end, steps, strict=True))]
    return torch.from_numpy(np.ascontiguousarray(picked).reshape(-1)), picked.shape


def _strided_slice(x: Any, begin: Any, end: Any, strides: Any = ()) -> Any:
    places, shape = _places(x.shape, begin, end, strides)
    return x.reshape(-1)[places].reshape(shape)


def _strided_slice_dx(dy: Any, shape: Any, begin: Any, end: Any, strides: Any = ()) -> Any:
    places, _ = _places(shape, begin, end, strides)
    return dy.new_zeros(int(np.prod(shape))).index_add(0, places, dy.reshape(-1)).reshape(shape)


def _strided_set(x: Any, v: Any, begin: Any, end: Any, strides: Any = ()) -> Any:
    places, shape = _places(x.shape, begin, end, strides)
    return x.reshape(-1).index_put((places,), v.broadcast_to(shape).reshape(-1)).reshape(x.shape)


def _take(x: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    if axis is None:
        x, axis = x.reshape(-1), 0
    size = max(x.shape[axis], 1)
    places = indices.clamp(0, size - 1) if mode == "clip" else indices % size
    axis %= x.ndim
    selected = x.index_select(axis, places.reshape(-1).long())
    return selected.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _take_dx(dy: Any, indices: Any, shape: Any, axis: int | None = None, mode: str = "raise") -> Any:
    return _transposed(lambda x: _take(x, indices, axis, mode), shape, dy)


def _transposed(pick: Any, shape: Any, dy: Any) -> Any:
    """The transpose of a function that picks elements of a tensor of `shape`."""
    count = int(np.prod(shape))
    picked = pick(torch.arange(count).reshape(shape))
    return dy.new_zeros(count).index_add(0, picked.reshape(-1), dy.reshape(-1)).reshape(shape)


def _gather(x: Any, axis: int, indices: Any) -> Any:
    return torch.gather(x, axis, indices.long())


def _gather_nd(x: Any, indices: Any, batch_dims: int = 0) -> Any:
    batch = [torch.from_numpy(i) for i in np.indices(tuple(indices.shape[1:]))[:batch_dims]]
    return x[(*batch, *(i.long() for i in indices))]


_REDUCE = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax"}


def _scatter_elements(x: Any, axis: int, indices: Any, src: Any, reduction: str = "update") -> Any:
    places = indices.long()
    if reduction == "update":
        return torch.scatter(x, axis, places, src)
    return torch.scatter_reduce(x, axis, places, src, _REDUCE[reduction])


def _scatter_nd(x: Any, indices: Any, src: Any, reduction: str = "update") -> Any:
    places = _gather_nd(torch.arange(x.numel()).reshape(x.shape), indices)
    return _scatter_elements(x.reshape(-1), 0, places.reshape(-1), src.reshape(-1), reduction).reshape(x.shape)


def places(*shape: int) -> T:
    """Positions, each of them once."""
    return T(*shape, dtype="int64", low=0, distinct=True)


def _embedding(weight: Any, indices: Any) -> Any:
    return _take(weight, indices, 0)


def _embedding_dx(dy: Any, indices: Any, num_weight: int) -> Any:
    return _take_dx(dy, indices, (num_weight, *dy.shape[indices.ndim :]), 0)


def _argwhere(x: Any, size: int) -> Any:
    indices = torch.argwhere(x)[:size]
    return torch.nn.functional.pad(indices, (0, 0, 0, size - len(indices)), value=-1)


SAMPLES = [
    Sample("argwhere", T(3, 4, dtype="int32", low=0, high=2), 9, ref=_argwhere),
    Sample("argwhere", T(2, 2, 3, dtype="bool"), 3, ref=_argwhere),
    Sample("argwhere", T(9), 12, ref=_argwhere),
    Sample("embedding", T(5, 3), I(2, 4, high=5), ref=_embedding),
    Sample("embedding", T(5), I(4, high=5, dtype="int32"), ref=_embedding),
    Sample("embedding", T(5, 2, 2), I(high=5), ref=_embedding),
    Sample("embedding", T(5, 2), I(0, high=5), ref=_embedding),
    Sample("embedding_dx", T(2, 4, 3), I(2, 4, high=5), 5, ref=_embedding_dx),
    Sample("embedding_dx", T(6), I(6, high=2, dtype="int32"), 3, ref=_embedding_dx),
    Sample("gather", T(3, 4), 1, I(3, 2, high=4), ref=_gather),
    Sample("gather", T(3, 4, 2), -3, I(5, 2, 1, high=3), ref=_gather),
    Sample("gather", T(4), 0, I(6, high=4, dtype="int32"), ref=_gather),
    Sample("gather", T(), 0, I(high=1), ref=_gather),
    Sample("gather", T(3, 4), 0, I(0, 4, high=3), ref=_gather),
    Sample("gather_dx", T(3, 2), 1, I(3, 2, high=4), (3, 4),
           ref=lambda dy, axis, i, shape: _transposed(lambda x: _gather(x, axis, i), shape, dy)),
    Sample("gather_dx", T(5, 2, 1), 0, I(5, 2, 1, high=3), (3, 4, 2),
           ref=lambda dy, axis, i, shape: _transposed(lambda x: _gather(x, axis, i), shape, dy)),
    Sample("gather_nd", T(3, 4, 2), I(2, 5, high=3), ref=_gather_nd),
    Sample("gather_nd", T(3, 4), I(1, 2, 3, high=3), ref=_gather_nd),
    Sample("gather_nd", T(3, 4), I(2, high=3), ref=_gather_nd),
    Sample("gather_nd_dx", T(5, 2), I(2, 5, high=3), (3, 4, 2),
           ref=lambda dy, i, shape: _transposed(lambda x: _gather_nd(x, i), shape, dy)),
    Sample("gather_nd", T(2, 3, 4, 2), I(1, 2, 5, high=3), 1, ref=_gather_nd),
    Sample("gather_nd_dx", T(2, 4), I(1, 2, high=3), (2, 3, 4), 1,
           ref=lambda dy, i, shape, batch: _transposed(lambda x: _gather_nd(x, i, batch), shape, dy)),
    Sample("index_select", T(3, 4), 1, I(6, high=4), ref=lambda x, axis, i: _take(x, i, axis)),
    Sample("index_select", T(3, 4), -2, I(2, high=3, dtype="int32"), ref=lambda x, axis, i: _take(x, i, axis)),
    Sample("scatter_add", T(3, 4), 0, I(5, 4, high=3), T(5, 4), ref=torch.scatter_add),
    Sample("scatter_add", T(3, 4), -1, I(2, 6, high=4), T(2, 6), ref=torch.scatter_add),
    Sample("scatter_add", T(4), 0, I(0, high=4), T(0), ref=torch.scatter_add),
    Sample("scatter_elements", T(2, 8), -1, places(2, 3), T(2, 3), ref=_scatter_elements),
    Sample("scatter_elements", T(3, 4), 0, I(5, 4, high=3, dtype="int32"), T(5, 4), "add",
           ref=_scatter_elements),
    *(Sample("scatter_elements", T(3, 4, low=0.5, high=2), 1, I(3, 6, high=4), T(3, 6, low=0.5, high=2), how,
             ref=_scatter_elements) for how in ("mul", "min", "max")),
    Sample("scatter_nd", T(6, 2), places(1, 3), T(3, 2), ref=_scatter_nd),
    Sample("scatter_nd", T(3, 4), I(2, 7, high=3), T(7), "add", ref=_scatter_nd),
    Sample("scatter_nd", T(3, 4), I(2, 3, 2, high=3), T(3, 2), "max", ref=_scatter_nd),
    Sample("strided_set", T(4, 5), T(2, 3), (1, 0), (3, 5), (1, 2), ref=_strided_set),
    Sample("strided_set", T(4, 5), T(), (-1,), (-9,), (-2,), ref=_strided_set),
    Sample("strided_set", T(4, 5), T(1, 5), (), (), ref=_strided_set),
    Sample("strided_set", T(4), T(0), (3,), (1,), ref=_strided_set),
    Sample("strided_slice", T(4, 5), (1, 0), (3, 5), (1, 2), ref=_strided_slice),
    Sample("strided_slice", T(4, 5, 2), (-1, 3), (-9, 0), (-2, -1), ref=_strided_slice),
    Sample("strided_slice", T(4, 5), (2,), (99,), ref=_strided_slice),
    Sample("strided_slice", T(4, 5), (3,), (1,), ref=_strided_slice),
    Sample("strided_slice", T(), (), (), ref=_strided_slice),
    Sample("strided_slice_dx", T(2, 3), (4, 5), (1, 0), (3, 5), (1, 2), ref=_strided_slice_dx),
    Sample("strided_slice_dx", T(2, 5), (4, 5), (-1,), (-9,), (-2,), ref=_strided_slice_dx),
    Sample("strided_slice_dx", T(0, 5), (4, 5), (3,), (1,), ref=_strided_slice_dx),
    Sample("take", T(3, 4), I(2, 3, high=12), ref=_take),
    Sample("take", T(3, 4), I(5, high=9, low=-6), axis=1, mode="wrap", ref=_take),
    Sample("take", T(3, 4), I(5, high=9, low=-6, dtype="int32"), axis=-2, mode="clip", ref=_take),
    Sample("take", T(3, 4, 2), I(high=4), axis=1, ref=_take),
    Sample("take", T(3, 4), I(5, high=4, low=-4), axis=1, ref=_take),
    Sample("take", T(3, 4), I(0, high=3), axis=0, ref=_take),
    Sample("take_dx", T(2, 3), I(2, 3, high=12), (3, 4), ref=_take_dx),
    Sample("take_dx", T(3, 5), I(5, high=9, low=-6), (3, 4), axis=1, mode="wrap", ref=_take_dx),
    Sample("take_dx", T(7), I(7, high=12, low=-12), (3, 4), ref=_take_dx),
    Sample("take_dx", T(2, 2, 4), I(2, 2, high=3), (3, 4), axis=0, ref=_take_dx),
]  # fmt: skip

ERRORS = [
    ErrorCase(
        "index_select",
        T(),
        0,
        T(1, dtype="int64", low=0, high=1),
        error=TypeInferenceError,
        match="the tensor is 0-d; expected at least one axis; reshape it",
    ),
    ErrorCase("argwhere", T(3), -1, error=TypeInferenceError, match="one size of 0 and up"),
    ErrorCase("argwhere", T(3), (1, 2), error=TypeInferenceError, match="one size of 0 and up"),
    ErrorCase("embedding", T(5, 3), T(2), error=TypeInferenceError, match="'indices' has dtype float32"),
    ErrorCase("embedding", T(), I(2, high=1), error=TypeInferenceError, match="0-d"),
    ErrorCase("embedding_dx", T(3, 2), I(2, high=2), 4, error=TypeInferenceError, match="begins with the shape"),
    ErrorCase("gather", T(3, 4), 0, I(3, high=3), error=TypeInferenceError, match="'x' has rank 2, 'indices' 1"),
    ErrorCase("gather", T(3, 4), 0, I(3, 5, high=3), error=TypeInferenceError, match="no larger than x"),
    ErrorCase("embedding_dx", T(2), I(2, high=1), 0, error=TypeInferenceError, match="is empty where indices point"),
    ErrorCase("gather", T(0, 4), 0, I(3, 4, high=1), error=TypeInferenceError, match="is empty where indices point"),
    ErrorCase("gather_nd", T(0, 4), I(1, 3, high=1), error=TypeInferenceError, match="is empty where indices point"),
    ErrorCase("gather", T(3, 4), 2, I(3, 4, high=3), error=TypeInferenceError, match="axis 2 is out of range"),
    ErrorCase("gather_dx", T(3, 3), 0, I(3, 4, high=3), (3, 4), error=TypeInferenceError, match="equal shapes"),
    ErrorCase("gather_nd", T(3, 4), I(3, 2, high=3), error=TypeInferenceError, match="at most as many coordinates"),
    ErrorCase("gather_nd_dx", T(3), I(2, 2, high=3), (3, 4), error=TypeInferenceError, match="equal shapes"),
    ErrorCase("index_select", T(3, 4), 0, I(2, 2, high=3), error=TypeInferenceError, match="expected rank 1"),
    ErrorCase("scatter_add", T(3), 0, I(2, high=3), T(3), error=TypeInferenceError, match="equal shapes"),
    ErrorCase("scatter_add", T(3), 0, I(2, high=3), T(2, dtype="int32"), error=TypeInferenceError, match="one dtype"),
    ErrorCase("gather_nd", T(3, 4), I(1, 2, high=3), 1, error=TypeInferenceError, match="batch_dims 1"),
    ErrorCase("scatter_elements", T(3), 0, I(2, high=3), T(3), error=TypeInferenceError, match="equal shapes"),
    ErrorCase(
        "scatter_elements",
        T(3, dtype="bool"),
        0,
        I(2, high=3),
        T(2, dtype="bool"),
        "add",
        error=TypeInferenceError,
        match="'x' has dtype bool",
    ),
    ErrorCase("scatter_nd", T(3, 4), I(1, 2, high=3), T(2), error=TypeInferenceError, match="equal shapes"),
    ErrorCase("scatter_nd", T(3), I(1, 2, high=3), T(2, dtype="int32"), error=TypeInferenceError, match="one dtype"),
    ErrorCase("strided_set", T(4), T(3), (0,), (2,), error=TypeInferenceError, match="do not broadcast"),
    ErrorCase("strided_slice", T(4), (0, 0), (1, 1), error=TypeInferenceError, match="for rank 1"),
    ErrorCase("strided_slice", T(4), (0,), (1,), (0,), error=TypeInferenceError, match="strides not zero"),
    ErrorCase("strided_slice_dx", T(3), (4,), (0,), (2,), error=TypeInferenceError, match="equal shapes"),
    ErrorCase("take", T(3), T(2), error=TypeInferenceError, match="cast it: indices.cast"),
    ErrorCase("take", T(0, 2), I(2, high=1), axis=0, error=TypeInferenceError, match="is empty where indices point"),
    ErrorCase("take", T(3), I(2, high=1), axis=1, error=TypeInferenceError, match="axis 1 is out of range"),
    ErrorCase("take_dx", T(3), I(2, high=3), (4,), axis=0, error=TypeInferenceError, match="equal shapes"),
]
