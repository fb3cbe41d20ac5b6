"""Calls of operators and functions with the shapes of models, by kind: rows long and short, few and many; reductions
along first, middle and last axes; positions with many duplicates; 1 to 8 axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import torch

from benchmarks.problems import problems
from meta.testing.samples import Sample, T, leaves

ALONG_AN_AXIS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((50_257,), 0),  # logits of one token
    ((8, 65_536), 1),
    ((65_536, 8), 1),
    ((16, 128, 768), 2),  # activations of a transformer
    ((4096, 256), 0),
    ((16, 128, 768), 1),
    ((32, 64, 28, 28), 1),  # channels of images
    ((2, 3, 4, 5, 6, 7, 8, 9), 4),
)
"""Shapes, and the axis that is reduced, sorted, accumulated, ..."""
ELEMENTWISE: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((2, 3, 4, 5, 6, 7, 8, 9),),
    ((16, 128, 768), (768,), (128, 1)),
    ((8, 12, 128, 128), (8, 1, 1, 128), (12, 1, 1)),  # attention with a mask
    ((32, 64, 28, 28), (64, 1, 1), (28,)),
)
"""Shapes of the operands, which broadcast; operators with more operands begin again with the first one."""
TABLES: tuple[tuple[int, int, int], ...] = (
    (30_522, 256, 2048),  # the words of a batch
    (512, 256, 4096),  # positions of tokens
    (4, 64, 65_536),  # a few kinds, very many duplicates
    (100_000, 2, 50_000),
    (65_536, 1, 262_144),
)
"""Rows of a table and their length, and the number of positions of rows, which are random."""
MOST_ELEMENTS = 1 << 23
"""Calls of benchmarks.problems with larger operands are left out."""


def _rows(count: int, *shape: int) -> T:
    return T(*shape, dtype="int64", low=0, high=count)


_INDEXED: Mapping[str, Callable[[int, int, int], tuple[Any, ...]]] = {
    "embedding": lambda n, d, k: (T(n, d), _rows(n, k)),
    "index_select": lambda n, d, k: (T(n, d), 0, _rows(n, k)),
    "take": lambda n, d, k: (T(n, d), _rows(n, k), 0),
    "gather": lambda n, d, k: (T(n, d), 0, _rows(n, k, d)),
    "gather_nd": lambda n, d, k: (T(n, d), _rows(n, 1, k)),
    "scatter_add": lambda n, d, k: (T(n, d), 0, _rows(n, k, d), T(k, d)),
    "scatter_elements": lambda n, d, k: (T(n, d), 0, _rows(n, k, d), T(k, d), "add"),
    "scatter_nd": lambda n, d, k: (T(n, d), _rows(n, 1, k), T(k, d), "add"),
}
"""Operator -> its arguments for a row of TABLES."""


def model_calls(row: Sample) -> Iterator[Sample]:
    """Calls with the reference of `row`, the operator's first sample, and shapes of its kind."""
    op, tensors = row.operator, leaves(row.args, row.kwargs)
    arguments = dict(zip(op.schema.names, row.args, strict=False)) | row.kwargs
    known = [p for p in problems() if p.op == row.op and max(prod(t.shape) for t in leaves(p.args, {})) < MOST_ELEMENTS]
    yield from (Sample(p.op, *p.args, ref=row.ref, **p.kwargs) for p in known)
    if row.op in _INDEXED:
        yield from (Sample(row.op, *_INDEXED[row.op](*table), ref=row.ref) for table in TABLES)
    elif len(tensors) == 1 and {"x", "axis"} <= set(op.schema.names):
        x = arguments.pop("x")
        for shape, axis in ALONG_AN_AXIS:
            named: dict[str, Any] = {**arguments, "axis": axis}
            yield Sample(row.op, _reshaped(x, shape), ref=row.ref, **named)
    elif op.pattern in ("elemwise", "broadcast") and all(t.dtype == "float32" for t in tensors):
        for shapes in ELEMENTWISE if len(tensors) > 1 else ELEMENTWISE[:1]:
            yield _of_shapes(row, shapes)


def _reshaped(t: T, shape: tuple[int, ...]) -> T:
    return T(*shape, dtype=t.dtype, low=t.low, high=t.high, avoid=t.avoid, distinct=t.distinct)


def _of_shapes(row: Sample, shapes: tuple[tuple[int, ...], ...]) -> Sample:
    operands = [_reshaped(t, shapes[n % len(shapes)]) for n, t in enumerate(leaves(row.args, row.kwargs))]
    rest = iter(operands)

    def replace(_: T, __: str) -> T:
        return next(rest)

    args, kwargs = row.map(replace)
    return Sample(row.op, *args, ref=row.ref, **kwargs)


# --- functions --------------------------------------------------------------------------------------------------------


def _along(name: str, theirs: Callable[..., Any], *arguments: Callable[[int], Any]) -> Iterator[Sample]:
    for shape, axis in ALONG_AN_AXIS:
        numbers = [argument(shape[axis]) for argument in arguments]
        yield Sample(name, T(*shape), *numbers, axis, ref=theirs)


def _of_rows(name: str, theirs: Callable[..., Any]) -> Iterator[Sample]:
    for n, d, k in TABLES:
        yield Sample(name, T(n, d), 0, _rows(n, k), T(k, d), ref=theirs)
        yield Sample(name, T(d, n), 1, _rows(n, k), T(d, k), ref=theirs)


def _counted() -> Iterator[Sample]:
    for elements, bins in ((1 << 20, 100), (1 << 20, 10), (1 << 16, 1000), (10_000, 256), (64, 10)):
        yield Sample("histc", T(elements), bins, -1, 1, ref=torch.histc)
        yield Sample("histogram", T(elements), bins, (-1.0, 1.0), ref=_histogram)
        yield Sample("bincount", _rows(bins, elements), ref=torch.bincount)


def _histogram(x: Any, bins: int, bounds: tuple[float, float]) -> Any:
    return torch.histogram(x, bins, range=bounds)


def _index_put(x: Any, indices: list[Any], values: Any, accumulate: bool) -> Any:
    return torch.index_put(x, tuple(indices), values, accumulate)


def _aminmax(x: Any, axis: int) -> Any:
    return torch.aminmax(x, dim=axis)


def functions() -> Iterator[Sample]:
    """Calls of functions of meta that call operators, with their counterparts in torch."""
    yield from _along("median", torch.median)
    yield from _along("nanmedian", torch.nanmedian)
    yield from _along("kthvalue", torch.kthvalue, lambda size: size // 3 + 1)
    yield from _along("quantile", torch.quantile, lambda _: 0.3)
    yield from _along("max_with_indices", torch.max)
    yield from _along("aminmax", _aminmax)
    yield from _of_rows("index_add", torch.index_add)
    yield from _of_rows("index_copy", torch.index_copy)
    yield from _counted()
    for n, d, k in TABLES:
        for accumulate in (False, True):
            yield Sample("index_put", T(n, d), [_rows(n, k)], T(k, d), accumulate, ref=_index_put)
