"""Values bound to variables in expressions."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.te.intrinsic import dtype_of


def repeat_bfloat16_bindings(node: Any) -> Any:
    """A function or expression that computes values which load bfloat16 anew instead of binding them in `Let`: TVM's
    legalisation of such loads skips the values of `Let`, whose bits would be read as another number."""
    return tvm.structural_map(node, (tvm.tirx.Let, _repeated))


def _repeated(let: Any) -> Any:
    loads: list[Any] = []
    tvm.structural_walk(let.value, (tvm.TensorLoad, lambda load: loads.append(dtype_of(load))))
    if not any("bfloat16" in dtype for dtype in loads):
        return let
    # The bindings inside have been visited before the value was put there.
    body = tvm.structural_map(let.body, (tvm.Var, lambda v: let.value if v.same_as(let.var) else v))
    return repeat_bfloat16_bindings(body)
