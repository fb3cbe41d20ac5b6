"""AutoDiff as a pass."""

from __future__ import annotations

from collections.abc import Sequence

from meta.dtype import is_inexact
from meta.errors import ArgumentError, did_you_mean
from meta.ir.builder import Module
from meta.ir.expr import Var
from meta.ir.type import TensorType
from meta.passes.inline_calls import inline_calls
from meta.passes.manager import Pass
from meta.tracing.differentiate import differentiate


def auto_diff(wanted: Sequence[str] | None = None) -> Pass:
    """The pass that turns main `f(params) -> ys` into `f(params, dys) -> (ys, gradients of the wanted parameters)`.

    wanted: names of floating parameters; None for every one. There is a dy for every floating result that replaces no
    parameter; parameters that no result depends on have gradients of zeros. Applied twice it gives second derivatives.
    Run it before drop_stop_gradient.
    Raises ArgumentError for a name that no floating parameter has, GradientError that lists all operators on the paths
    without a gradient."""

    def run(module: Module) -> Module:
        module = inline_calls(module)
        params = module.main.params
        if wanted is not None:
            _check(wanted, params)
        positions = [i for i, p in enumerate(params) if _floating(p) and (wanted is None or p.name in wanted)]
        return module.with_function("main", differentiate(module.main, positions))

    return Pass("auto_diff", run, auto_diff.__doc__ or "")


def _check(wanted: Sequence[str], params: Sequence[Var]) -> None:
    floating = [p.name for p in params if _floating(p)]
    for name in wanted:
        if name not in floating:
            raise ArgumentError(
                "auto_diff",
                f"no floating parameter is called '{name}'",
                f"one of {', '.join(floating)}",
                did_you_mean(name, floating),
            )


def _floating(p: Var) -> bool:
    return isinstance(p.type, TensorType) and is_inexact(p.type.dtype)
