"""The check of `opcheck` that kernels read and write inside of their arguments, in guarded memory and on shapes that
differ.

An array is put in the middle of memory of other values. A kernel whose results depend on these reads outside of it, and
one that changes them beside its results writes there. The sizes of one array at a time are also changed by one: what
the type function accepts then, kernels have to compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from meta import dtype as dtypes
from meta.backend.memory.allocation import ALIGNMENT
from meta.eager.ndarray import NDArray, asarray
from meta.errors import MetaError
from meta.op.dispatch import implementation, with_dialect
from meta.testing.call import flat_results
from meta.testing.operator_case import Case, Skip, compare_results
from meta.tree import leaves_of

_MARGIN = 4096
"""Bytes of other values on each side of an array, besides as many as all arrays have."""


def bounds(case: Case) -> None:
    """Each dialect's results do not depend on the memory around the arguments, also where the type function accepts
    sizes that differ from the sample's by one."""
    if case.device != "cpu":
        raise Skip("memory is guarded on the CPU")
    if not case.call.arrays():
        raise Skip("it takes no arrays")
    for what, variant in _variants(case):
        if variant.refusal() is not None:
            continue
        for name in variant.dialects():
            try:
                low, high = (_guarded(variant, name, fill) for fill in (0, 1))
            except MetaError:  # of values: a position out of the range of the other size, for example
                continue
            text = (
                f"the {name} kernel reads outside of its arguments{what}, which the type function accepts: its result"
            )
            compare_results(text, high, low, exact=True)
            _check_writes(variant, name, what)


def _variants(case: Case) -> Iterator[tuple[str, Case]]:
    """The case, and those with one size of one array smaller or larger by one, each with words for it."""
    import numpy as np

    yield "", case
    arrays = case.call.arrays()
    if len(arrays) < 2:
        return
    names = [case.op.schema.names[position] for position in case.call.positions()]
    for i, (array, name) in enumerate(zip(arrays, names, strict=True)):
        for axis, size in enumerate(array.shape):
            if size < 2:
                continue
            first = range(size)
            for indices in ([*first][:-1], [*first, size - 1]):
                other = np.take(array, indices, axis)
                shapes = f" where '{name}' has shape {other.shape} in place of {array.shape}"
                yield shapes, Case(case.call.with_arrays([*arrays[:i], other, *arrays[i + 1 :]]), case.device)


def _guarded(case: Case, dialect: str, fill: int) -> list[Any]:
    """The results of a call on arrays in memory that is filled with a number: 0, or 1, which are valid positions and in
    whose place floats get NaN."""
    margin = _MARGIN + sum(a.nbytes for a in case.call.arrays())
    call = case.call.map(_in_memory(margin, fill))
    with with_dialect(dialect):
        return flat_results(call.run())


def _check_writes(case: Case, dialect: str, what: str) -> None:
    """Raise AssertionError if the kernel of a dialect changes memory beside its results."""
    import numpy as np

    info = case.call_info()
    if info is None or case.op.inplace or not all(t.is_static for t in info.outputs()):
        return
    operands = [leaf for leaf in leaves_of(case.fresh().bound_arguments()) if isinstance(leaf, NDArray)]
    margin, other = _MARGIN + sum(t.nbytes for t in info.outputs()), 0xA5
    memories: list[Any] = [np.full(2 * margin + t.nbytes + ALIGNMENT, other, np.uint8) for t in info.outputs()]
    starts = [margin + (-(m.ctypes.data + margin) % ALIGNMENT) for m in memories]
    results = [
        m[start : start + t.nbytes].view(dtypes.to_numpy(t.dtype)).reshape(t.shape)
        for m, start, t in zip(memories, starts, info.outputs(), strict=True)
    ]
    chosen = implementation(case.op, dialect)
    assert chosen is not None
    with with_dialect(dialect):
        chosen.checked_kernel(info)(*[x._data for x in (*operands, *map(asarray, results))])
    for i, (memory, start, t) in enumerate(zip(memories, starts, info.outputs(), strict=True)):
        beside = np.concatenate([memory[:start], memory[start + t.nbytes :]])
        which = "its result" if len(memories) == 1 else f"result {i}"
        count = np.count_nonzero(beside != other)
        assert not count, f"the {dialect} kernel writes outside of {which}{what}: {count} bytes beside it changed"


def _in_memory(margin: int, fill: int) -> Callable[[Any], Any]:
    import numpy as np

    def guard(array: np.ndarray[Any, Any]) -> Any:
        dtype = array.dtype
        value = np.nan if fill and dtypes.is_inexact(str(dtype)) else fill
        count = -(-margin // dtype.itemsize)
        memory: Any = np.full(2 * count + array.size + 2 * ALIGNMENT, value, dtype)
        start = count + (-(memory.ctypes.data + count * dtype.itemsize) % ALIGNMENT) // dtype.itemsize
        inside = memory[start : start + array.size].reshape(array.shape)
        inside[...] = array
        return asarray(inside)

    return guard
