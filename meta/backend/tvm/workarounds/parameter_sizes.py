"""Symbolic sizes that no parameter has as an axis, such as `h` where the only axis is `2*h`.

TVM's virtual machine reads sizes only from axes that are a variable, and does not build a function that needs others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meta.backend.tvm import adapter as tvm


def solve_parameter_sizes(module: Any) -> Any:
    """The module with a definition of each size that parameters of a function have in linear expressions only.

    `f(x: (2*h,))` becomes `f(p: (n,))`, which binds `h` to `n // 2`, compares `n` with `2*h` and binds `x` to `p`.
    Sizes that no linear expression determines stay undefined, and the module does not build."""
    functions = {
        name: _solved(function) if isinstance(function, tvm.RelaxFunction) else function
        for name, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _solved(function: Any) -> Any:
    axes = list(_axes(function.params))
    known = {size for _, _, size in axes if isinstance(size, tvm.Var)}
    solved: list[Any] = []
    while (solution := _next_solution(axes, known)) is not None:
        solved.append(solution)
        known.add(solution[2])
    if not solved:
        return function
    variables = {variable for _, _, variable, _, _ in solved}
    whole = {(i, axis): tvm.Var(f"size_{i}_{axis}", "int64") for i, axis, n in axes if _variables(n) & variables}
    bindings: list[Any] = []
    for i, axis, variable, coefficient, rest in solved:
        value = tvm.ShapeExpr([tvm.tirx.floordiv(whole[i, axis] - rest, coefficient)])
        shape = tvm.RelaxVar(f"quotient_{i}_{axis}", value.ty)
        kind = tvm.ShapeType([variable])
        bindings.append(tvm.VarBinding(shape, value))
        bindings.append(tvm.MatchCast(tvm.RelaxVar(f"size_{variable.name}", kind), shape, kind))
    params = list(function.params)
    for i in sorted({i for i, _ in whole}):
        before = params[i]
        sizes = [whole.get((i, axis), size) for axis, size in enumerate(before.ty.shape.values)]
        params[i] = tvm.RelaxVar(before.name, tvm.TensorType(sizes, before.ty.dtype))
        bindings.append(tvm.MatchCast(before, params[i], before.ty))
    body = tvm.SeqExpr([tvm.BindingBlock(bindings), *function.body.blocks], function.body.body)
    return tvm.RelaxFunction(params, body, function.ret_ty, function.is_pure, function.attrs)


def _axes(params: Sequence[Any]) -> Iterator[tuple[int, int, Any]]:
    """(parameter, axis, size) of all parameters that are tensors."""
    for i, parameter in enumerate(params):
        shape: Any = getattr(parameter.ty, "shape", None)
        for axis, size in enumerate(shape.values if isinstance(shape, tvm.ShapeExpr) else ()):
            yield i, axis, size


def _next_solution(axes: Sequence[tuple[int, int, Any]], known: set[Any]) -> tuple[int, int, Any, Any, Any] | None:
    """(parameter, axis, variable, coefficient, rest): an axis that is coefficient * variable + rest, in which the
    variable is the only one that is not known. None if there is no such axis."""
    for i, axis, size in axes:
        unknown = _variables(size) - known
        if len(unknown) == 1:
            (variable,) = unknown
            equation: Sequence[Any] = tvm.detect_linear_equation(size, [variable])
            if equation:
                return i, axis, variable, *equation
    return None


def _variables(size: Any) -> set[Any]:
    variables: set[Any] = set()
    tvm.structural_walk(size, (tvm.Var, variables.add))
    return variables
