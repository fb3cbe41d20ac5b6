"""Tensors that are the first columns of a wider matrix, as `align_products` leaves them.

    y = reshape(cast(strided_slice(p, (0, 0), (rows, n)), "float32"), (..., n))

Operators that take such a tensor can read p, without a copy of its first columns.
"""

from __future__ import annotations

from typing import Any

from meta.ir.expr import Atom, Call
from meta.ir.type import TensorType
from meta.op.registry import get
from meta.passes.rewriting import VIEWS, Scope
from meta.records import record


@record
class Cut:
    """whole: the matrix.  dtypes: the casts of its first columns, in order."""

    whole: Any
    dtypes: tuple[str, ...]

    @property
    def columns(self) -> int:
        return self.whole.type.shape[1]

    def cast(self, scope: Scope) -> Atom:
        """The matrix with these casts."""
        out: Atom = self.whole
        for dtype in self.dtypes:
            out = scope.call(get("cast"), (out, dtype))
        return out


def find_cut(scope: Scope, x: Any) -> Cut | None:
    """The matrix whose first columns are the rows of x, perhaps cast and in another shape; None for other tensors."""
    kind = getattr(x, "type", None)
    if not isinstance(kind, TensorType) or kind.ndim == 0:
        return None
    dtypes: list[str] = []
    call = scope.definition(x)
    while isinstance(call, Call) and not call.attrs:
        source: Any = call.args[0]
        if call.op_name == "cast":
            dtypes.insert(0, call.args[1])
        elif call.op_name == "strided_slice":
            return Cut(source, tuple(dtypes)) if _takes_columns(call, kind.shape[-1]) else None
        elif call.op_name not in VIEWS or source.type.shape[-1:] != kind.shape[-1:]:
            return None
        call = scope.definition(source)
    return None


def _takes_columns(cut: Call, count: Any) -> bool:
    """Whether a slice is the first `count` columns of all rows of a matrix."""
    whole, begin, _, strides = cut.args
    shape = whole.type.shape
    is_prefix = len(shape) == 2 and not any(begin) and all(s == 1 for s in strides)
    return is_prefix and isinstance(cut.type, TensorType) and cut.type.shape == (shape[0], count)


def has_zeros_behind(scope: Scope, whole: Any, count: int) -> bool:
    """Whether a matrix is `values * where(arange(columns) < count, 1, 0)`: behind its first columns it is 0, or NaN if
    the values are not finite."""
    product = _call(scope, whole, "multiply")
    selection = _call(scope, product.args[1], "where") if product is not None else None
    condition = _call(scope, selection.args[0], "less") if selection is not None else None
    numbers = _call(scope, condition.args[0], "arange") if condition is not None else None
    if selection is None or condition is None or numbers is None:
        return False
    return (selection.args[1:], condition.args[1], numbers.args[:3]) == ((1, 0), count, (0, whole.type.shape[1], 1))


def _call(scope: Scope, atom: Any, op: str) -> Call | None:
    value = scope.definition(atom)
    return value if isinstance(value, Call) and value.op_name == op else None
