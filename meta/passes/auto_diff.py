"""AutoDiff as a pass."""

from __future__ import annotations

from collections.abc import Sequence

from meta.autograd.symbolic import differentiate
from meta.dtype import is_float
from meta.ir.module import Module
from meta.ir.type import TensorType
from meta.passes.inline_calls import inline_calls
from meta.passes.manager import Pass


def auto_diff(wanted: Sequence[str] | None = None) -> Pass:
    """The pass that turns main `f(params) -> ys` into `f(params, dys) -> (ys, gradients of the wanted parameters)`.

    wanted: names of parameters; None for every floating one. Raises GradientError that lists all operators on the way
    that have no gradient."""

    def run(module: Module) -> Module:
        module = inline_calls(module)
        params = module.main.params
        positions = [
            i
            for i, p in enumerate(params)
            if isinstance(p.type, TensorType) and is_float(p.type.dtype) and (wanted is None or p.name in wanted)
        ]
        return module.with_function("main", differentiate(module.main, positions))

    return Pass("auto_diff", run, auto_diff.__doc__ or "")
