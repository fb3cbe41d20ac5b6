"""The gradient rule of a user's operator, with checks of what its functions return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import meta
from meta.dtype import is_float
from meta.errors import GradientError, MetaError, line_of_function, raised
from meta.ir.type import TensorType
from meta.modes import modes, scoped, scopes
from meta.op.grad import support
from meta.op.grad.entry import GradientEntry, forward_source, function_source, read_entry, rule_facts
from meta.op.grad.formula import Formula
from meta.op.grad.rule import GradientFunction, GradRule, as_tuple, check_gradient
from meta.op.registry import Op, as_type
from meta.parts import Writes
from meta.schema._dsl import TensorLike

Gradient = Mapping[str, Any] | str
UNDEFINED = "not_implemented: meta.define got none"
"""The gradient entry of an operator that was defined without one."""
_REMEDY = 'pass gradient={"x": ...} to meta.define, or gradient="non_differentiable" if gradients shall stop there'


def compile_rule(op: Op, gradient: Gradient | None, location: str) -> GradRule | None:
    """The gradient rule of the operator, compiled from checked formulas; None if no argument has a gradient.

    location: `file:line` of the definition."""
    undefined = gradient is None
    entry = read_entry(op, UNDEFINED if undefined else dict(gradient) if isinstance(gradient, Mapping) else gradient)
    if not entry.positions:
        return None
    namespace: dict[str, Any] = {"meta": meta, "Any": Any, "grad_support": support}
    for targets, formula in entry.formulas.items():
        for binding, function in formula.functions.items():
            namespace[binding] = function if len(targets) == 1 else _several(op, targets, function)
    # The compiler of formulas has checked each operator call of the source.
    exec(compile(function_source(entry), f"<gradient of {op.name}>", "exec"), namespace)
    function = _checked(_Checks(entry, location), namespace[f"_{op.basename}"])
    forward: Any = entry.forward
    if isinstance(forward, Formula):
        namespace.update(forward.functions)
        exec(compile(forward_source(entry), f"<tangents of {op.name}>", "exec"), namespace)
        forward = namespace[f"_{op.basename}_forward"]
    rule = GradRule(op.name, function, entry.positions, forward=forward, **rule_facts(entry))
    return replace(rule, remedy=_REMEDY) if undefined else rule


def _several(op: Op, targets: tuple[str, ...], function: Callable[..., Any]) -> Callable[..., Any]:
    """A gradient function of several arguments with a check that it returns one gradient for each."""

    def run(*args: object, **kwargs: object) -> Any:
        what = f"the result of the gradient function of {', '.join(targets)}"
        return _fields(op.name, what, function(*args, **kwargs), len(targets), line_of_function(function))

    return run


def _fields(name: str, what: str, value: Any, count: int, location: str) -> tuple[Any, ...]:
    """The gradients in a tuple or list of `count`. Raises GradientError for anything else."""
    several = isinstance(value, (tuple, list))
    fields = as_tuple(value)
    if several and len(fields) == count:
        return fields
    problem = f"has {len(fields)} gradients" if several else f"is of class {type(value).__name__}"
    raise GradientError(name, f"{what} {problem}", f"a tuple or list of {count} gradients", location=location or None)


def _checked(checks: _Checks, function: GradientFunction) -> GradientFunction:
    """The gradient function of a rule, with checks of what it returns and with its errors in the operator's name.

    Outside of scopes, an array of exactly the type of its argument needs no further check."""
    positions = checks.entry.positions
    has_functions = checks.has_functions

    def run(needs: tuple[bool, ...], *values: object) -> tuple[Any, ...]:
        if scopes.active:
            return checks.outside_of_autocast(function, needs, values)
        try:
            gradients = function(needs, *values)
        except MetaError as error:
            checks.annotate(error)
            raise
        except Exception as error:
            raise raised(GradientError, checks.name, "its gradient", error) from error
        for position, need, gradient in zip(positions, needs, gradients, strict=True):
            if not need:
                continue
            value = values[position]
            expected_type = value if value.__class__ is TensorType else getattr(value, "_type", None)
            if gradient.__class__ is not meta.NDArray or gradient._type is not expected_type:
                return checks.of_all(needs, values, gradients)
            if has_functions and gradient._version is None:
                gradient._version = Writes((0,))  # the user may hold it too
        return gradients

    return run


class _Checks:
    """The checks of the gradients of one operator."""

    def __init__(self, entry: GradientEntry, location: str) -> None:
        self.entry = entry
        self.name = entry.op.name
        self.has_functions = any(formula.functions for formula in entry.formulas.values())
        self.lines: dict[str, str] = {}
        """`file:line` by argument: of the gradient function, or else of the definition."""
        for targets, formula in entry.formulas.items():
            line = "".join(map(line_of_function, formula.functions.values())) or location
            self.lines |= dict.fromkeys(targets, line)

    def outside_of_autocast(
        self, function: GradientFunction, needs: tuple[bool, ...], values: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """The checked gradients. A gradient has the dtype of its argument, which autocast has cast already."""
        try:
            with scoped(autocast=None) if modes.autocast is not None else nullcontext():
                gradients = function(needs, *values)
        except MetaError as error:
            self.annotate(error)
            raise
        except Exception as error:
            raise raised(GradientError, self.name, "its gradient", error) from error
        return self.of_all(needs, values, gradients)

    def annotate(self, error: MetaError) -> None:
        """Add the name of the operator to an error of another one that its gradient calls."""
        before = error.within
        error.left(f"the gradient of {self.name}")
        if error.subject != self.name and error.within == before:
            error.details = "\n".join(filter(None, (error.details, f"in the gradient of {self.name}")))

    def of_all(self, needs: tuple[bool, ...], values: tuple[Any, ...], gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients, each checked against its argument among `values`."""
        names = self.entry.op.schema.names
        pairs = zip(self.entry.positions, needs, gradients, strict=True)
        return tuple([self.of(names[i], as_type(values[i]), g) if need else g for i, need, g in pairs])

    def of(self, argument: str, expected: TensorType | tuple[TensorType, ...], gradient: object) -> Any:
        """The gradient of an argument of type `expected`: a tuple of types for a list of tensors."""
        line, what = self.lines[argument], f"argument '{argument}'"
        if not isinstance(expected, tuple):
            return self.of_tensor(what, expected, gradient, line)
        fields = _fields(self.name, f"the gradient of {what}", gradient, len(expected), line)
        return tuple(
            g if g is None and not is_float(t.dtype) else self.of_tensor(f"'{argument}[{i}]'", t, g, line)
            for i, (t, g) in enumerate(zip(expected, fields, strict=True))
        )

    def of_tensor(self, what: str, expected: TensorType, gradient: object, line: str) -> Any:
        check_gradient(self.name, what, gradient, expected, meta.NDArray if modes.emit is None else TensorLike, line)
        if not isinstance(gradient, meta.NDArray):
            return gradient
        if modes.emit is not None:
            return meta.cast(gradient, expected.dtype)  # an array from outside becomes part of the program
        if self.has_functions and gradient._version is None:
            gradient._version = Writes((0,))  # the user may hold it too
        return gradient
