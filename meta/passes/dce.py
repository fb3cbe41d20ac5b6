"""Dead code elimination."""

from __future__ import annotations

from meta.ir.expr import Binding, Function
from meta.ir.visitor import filter_bindings, use_counts
from meta.passes.manager import function_pass


@function_pass("dce")
def dce(function: Function) -> Function:
    """Drop bindings that nothing reads. Operators have no effects in this IR: writes are results (MUTATES)."""
    while True:
        counts = use_counts(function)

        def used(binding: Binding) -> bool:
            return counts[binding.var] > 0  # noqa: B023  # called before the next round

        new = filter_bindings(function, used)
        if new is function:
            return function
        function = new
