"""Matrix products of floats on GPUs with rows of whole 16 bytes.

cuBLAS's fast kernels load and store 16 bytes at a time, and rows of another length run at a third of their speed (a
vocabulary of 30522 words: 4096x768 by 768x30522 took 0.81 ms in bfloat16, and 1.7 in float32 by TF32). Such sizes
are padded with zeros, which add nothing to a sum, and the result is cut to size; both copies fuse with others.
"""

from __future__ import annotations

from typing import Any, Final

from meta._generated import limits
from meta.dim import product
from meta.dtype import HALVES
from meta.ir.expr import Atom, Binding, Call, Expr
from meta.ir.type import TensorType
from meta.op.registry import get
from meta.passes.rewriting import Scope, by_op, rewrite_pass

_ALIGNMENTS: Final = {**dict.fromkeys(HALVES, 8), "float32": 4}
"""Elements in 16 bytes."""


def _align(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """The rule for dense and matmul: padded operands, and the part of the result that is wanted."""
    call = binding.value
    if not isinstance(call, Call) or call.dialect is not None or call.attrs or not _is_on_gpu(call.type):
        return None
    x1, x2, *rest = call.args
    flags = (False, True) if call.op_name == "dense" else tuple(rest)
    shapes = (x1.type.shape, x2.type.shape)
    if len(shapes[1]) != 2 or len(shapes[0]) < 2 or (flags[0] and len(shapes[0]) != 2) or not _is_static(*shapes):
        return None
    rows, terms = _swapped(shapes[0][-2:], flags[0])
    columns = _swapped(shapes[1], flags[1])[1]
    count = product((*shapes[0], columns))
    # Sizes of the last axes, along which memory is contiguous.
    lengths = {"rows": rows if flags[0] else 0, "terms": 0 if flags[0] and not flags[1] else terms, "columns": columns}
    alignment = _ALIGNMENTS[call.type.dtype]  # type: ignore[union-attr]
    added = {name: -length % alignment for name, length in lengths.items()}
    if not any(added.values()) or terms < limits.ALIGNED_TERMS or count < limits.ALIGNED_PRODUCTS:
        return None
    if len(shapes[0]) > 2:  # as a matrix, which is padded once for all products that take it
        rows = product(shapes[0][:-1])
        x1 = _matrix(scope, x1, (rows, terms))
    x1 = _padded(scope, x1, *_swapped((added["rows"], added["terms"]), flags[0]))
    x2 = _padded(scope, x2, *_swapped((added["terms"], added["columns"]), flags[1]))
    others = rest
    if call.op_name == "dense" and rest[0] is not None:
        others = [_padded(scope, rest[0], added["columns"])]
    padded = scope.call(call.op, (x1, x2, *others))
    if added["rows"] or added["columns"]:
        padded = scope.call(get("strided_slice"), (padded, (0, 0), (rows, columns), ()))
    return scope.call_expr(get("reshape"), (padded, call.type.shape))  # type: ignore[union-attr]


def _is_on_gpu(kind: Any) -> bool:
    return isinstance(kind, TensorType) and kind.dtype in _ALIGNMENTS and kind.device.kind == "cuda"


def _is_static(*shapes: tuple[Any, ...]) -> bool:
    return all(isinstance(size, int) for shape in shapes for size in shape)


def _swapped(pair: tuple[Any, ...], swap: bool) -> tuple[Any, ...]:
    return (pair[1], pair[0]) if swap else tuple(pair)


def _matrix(scope: Scope, x: Any, shape: tuple[Any, ...]) -> Any:
    """x in another shape; the tensor that it is a view of, where that has the shape."""
    view = scope.definition(x)
    if isinstance(view, Call) and view.op_name == "reshape" and view.args[0].type.shape == shape:
        return view.args[0]
    return scope.call(get("reshape"), (x, shape))


def _padded(scope: Scope, x: Atom, *added: int) -> Atom:
    """A tensor with zeros behind its last axes."""
    if not any(added):
        return x
    assert isinstance(x.type, TensorType)
    widths = (*(0, 0) * (x.type.ndim - len(added)), *(width for count in added for width in (0, count)))
    return scope.call(get("pad"), (x, widths, 0.0, "constant"))


align_products = rewrite_pass(
    "align_products",
    "Pad large products of 16- and 32-bit floats on GPUs (dense, matmul with a matrix) to rows of whole 16 bytes.",
    by_op({"dense": _align, "matmul": _align}),
    looks_for=("dense", "matmul"),
    device="cuda",
)
