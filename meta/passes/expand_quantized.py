"""Products with weights in 8 and 4 bits, for many rows.

Kernels of `quantized_dense` convert the weights as they read them, once for each row of the input. From a few rows on,
or for a number of rows that the program does not know, it takes less time to convert a matrix once, and the product is
one of floats, which libraries compute too:

    y = quantized_dense(x, w, scale, b)      =>      y = dense(x, dequantize_weight(w, scale), b)

The floats of one layer at a time are in memory.
"""

from __future__ import annotations

from math import prod

from meta._generated import limits
from meta.ir.expr import Atom, Binding, Call, Expr
from meta.ir.type import TensorType
from meta.passes.rewriting import Scope, by_op, rewrite_pass
from meta.tracing import emit_decomposition


def _converted(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """The product of floats in place of one for many rows."""
    call = binding.value
    if not isinstance(call, Call) or call.dialect is not None or call.attrs:
        return None
    x = call.args[0].type
    assert isinstance(x, TensorType)
    rows = x.shape[:-1]
    is_few = all(isinstance(d, int) for d in rows) and prod(rows) < limits.TILED_ROWS
    return None if is_few else emit_decomposition(scope, call)


expand_quantized = rewrite_pass(
    "expand_quantized",
    "Convert weights in 8 and 4 bits before a product of many rows, or of a number that is not known.",
    by_op({"quantized_dense": _converted}),
    looks_for=("quantized_dense",),
)
