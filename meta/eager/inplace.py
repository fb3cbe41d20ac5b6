"""In-place operators: `x += y` writes into the memory of x."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

from meta import dtype as dtypes
from meta.backend.memory import allocation
from meta.eager.gradient_graph import A, GraphArray, check_no_leaf, record_write, version_of
from meta.errors import GradientError, TypeInferenceError
from meta.modes import modes
from meta.parts import Writes


def fitted(op: str, x: Any, value: Any) -> Any:
    """The result `value` of `op` in the dtype of `x`, which it replaces. Raises TypeInferenceError for one of another
    shape or of a higher category."""
    if value.type is x.type:
        return value
    if value.shape != x.shape:
        raise TypeInferenceError(
            op,
            f"the result in place has shape {value.shape}, the array {x.shape}",
            "an operand that broadcasts to the array",
            f"write x = meta.{op}(x, other)",
        )
    if dtypes.category(value.dtype) > dtypes.category(x.dtype):
        raise TypeInferenceError(
            op,
            f"the result in place is {value.dtype}, the array {x.dtype}",
            "integers for floats, bools for integers, not the reverse",
            f'write x = meta.{op}(x, other), or cast the array first: x.cast("{value.dtype}")',
        )
    return value.cast(x.dtype)


def write_result(x: A, function: Callable[[Any, Any], Any], other: Any) -> A:
    """`x`, after `function(x, other)` was written into its memory.

    With gradients, x becomes the result in the graph as well, whose nodes keep the values from before. Raises
    GradientError for a leaf that requires gradients, and for an array of the graph whose memory another array shares,
    as that one would not follow."""
    op = function.__name__
    if not is_recorded(x, other):
        value = fitted(op, x, function(x, other))
        allocation.copy_into(value._data, record_write(op, x)._data)
        return x
    return write_recorded(op, x, lambda before: fitted(op, x, function(before, before if other is x else other)))


def is_recorded(x: GraphArray, value: object) -> bool:
    """Whether a write of a value to `x` changes the gradient graph."""
    return modes.grad_enabled and (x._node is not None or getattr(value, "_node", None) is not None)


def write_recorded(op: str, x: A, compute: Callable[[A], A]) -> A:
    """`x`, after it became `compute(x)`, an array of its type, in its memory and in the gradient graph."""
    check_no_leaf(op, x)
    before = x._twin()
    is_shared = _is_shared(x, len(_saved_results(x)))
    value = compute(before)  # type: ignore[arg-type]
    if value._node is None and x._node is None:
        allocation.copy_into(value._data, record_write(op, x)._data)
        return x
    if is_shared:
        raise GradientError(
            op,
            f"the array of shape {x.shape}, written in place with gradients, shares its memory with another array",
            "arrays with memory of their own",
            "write to a copy: x = x.copy()",
        )
    saved: list[Any] = _saved_results(x)
    if _is_shared(x, len(saved)):  # a node saved a view of the old values, which keeps their memory
        x._version = Writes((version_of(x) + 1,))
        x._data, x._node, x._index = value._data, value._node, value._index
        return x
    if getrefcount(before) > 2:  # the local variable and the argument of getrefcount: a node saved it
        saved.append(before)
    _preserve(saved)
    x._node, x._index = None, 0
    allocation.copy_into(value._data, record_write(op, x)._data)
    x._node, x._index = value._node, value._index
    return x


def _saved_results(x: GraphArray) -> list[Any]:
    """The results over the memory of `x` that its node saved."""
    outs = x._node.outs or () if x._node is not None else ()
    return [out for out in outs if getattr(out, "_version", None) is x._version and x._version is not None]


def _preserve(saved: list[Any]) -> None:
    """Copy the memory that these arrays share, before it is written, and count their writes apart."""
    if saved:
        data, writes = saved[0]._copied()._data, Writes((version_of(saved[0]),))
        for out in saved:
            out._data, out._version = data, writes


def _is_shared(x: GraphArray, saved: int) -> bool:
    """Whether another array than its twin and `saved` results shares the memory of `x`."""
    writes = x._version
    # The array, its twin, the local variable and the argument of getrefcount.
    return writes is not None and getrefcount(writes) > 3 + saved + 1
