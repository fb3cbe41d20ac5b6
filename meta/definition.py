"""Definition of operators at run time: `@meta.define(...)` on the declaration.

    @meta.define("scale", Schema("scale", Arg("x", Tensor), Arg("by", Float, 2.0)),
                 gradient={"x": "scale(dy, by)"}, tvm=lambda x, by: topi.multiply(x, by), pattern="elemwise")
    def scale(x, by):
        return x                                   # types in, type out

    meta.scale(meta.array([1.0]), 3.0)

Such an operator runs eagerly with autograd and is traced, compiled and cast like the operators of the package. Its
formulas may call it and every other operator. Operators of the package go into its files instead
(docs/add-an-operator.md), where the generated functions are typed and their calls faster.

The module cannot be named `define`: Python binds an imported submodule to its name in the package, which would replace
the public function `meta.define`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import meta
from meta.dtype import is_float
from meta.eager.call import invoke, state
from meta.eager.ndarray import NDArray
from meta.eager.seeds import check_gradient
from meta.errors import (
    GradientError,
    MetaError,
    RegistryError,
    TypeInferenceError,
    line_of_function,
    raised,
    user_frame,
)
from meta.ir.type import TensorType, Type
from meta.modes import modes, scoped
from meta.op import registry
from meta.op.dispatch import dialect
from meta.op.grad import support
from meta.op.grad.entry import Entry, function_source, read_entry, rule_facts
from meta.op.grad.rule import GradientFunction, GradRule, add_rules, as_tuple
from meta.op.registry import Op, TypeFunction, as_type
from meta.parts import Writes
from meta.schema._dsl import Schema
from meta.schema._types import TensorLike

Gradient = Mapping[str, Any] | str
UNDEFINED = "not_implemented: meta.define got none"
"""The gradient entry of an operator that was defined without one."""
_REMEDY = 'pass gradient={"x": ...} to meta.define, or gradient="non_differentiable" if gradients shall stop there'


def define(
    name: str,
    schema: Schema,
    *,
    gradient: Gradient | None = None,
    doc: str = "",
    tvm: Callable[..., Any] | None = None,
    torch: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    **facts: Any,
) -> Callable[[TypeFunction], Callable[..., Any]]:
    """Register the decorated type function as operator `name` and return its public function (also `meta.<name>`).

    gradient: an entry as in derivatives.yaml: a formula (text, or a Python function with the values that it reads as
        parameters) for each tensor argument, "non_differentiable", or "not_implemented: reason". Without an entry,
        backward through the operator raises GradientError. Gradients must have the types of their arguments.
    tvm: TE compute on the arguments in schema order.  torch: the same on torch tensors, with `out=` to write into.
    reference: the same on NumPy arrays.  facts: further fields of meta.op.registry.Op (pattern, amp, outputs, ...).
    Raises RegistryError for an existing name, an invalid formula or a part that is not callable, and then registers
    nothing. Exceptions in these functions become the cause of a TypeInferenceError, KernelError or GradientError that
    names the operator and the line that raised them."""
    names = (name, *facts.get("aliases", ()))
    for public_name in names:
        if public_name in dir(meta) or public_name in vars(meta):
            raise RegistryError("define", f"meta.{public_name} exists already", "a new name")
    for backend, implementation in (("tvm", tvm), ("torch", torch), ("reference", reference)):
        if implementation is not None and not callable(implementation):
            raise RegistryError(name, f"{backend} is {type(implementation).__name__}", "a function")
    registry.check_facts(name, facts)
    location = user_frame()

    def register(declare: TypeFunction) -> Callable[..., Any]:
        if not callable(declare):  # pyright: ignore[reportUnnecessaryComparison]
            raise RegistryError(name, f"its type function is {type(declare).__name__}", "a function")
        text = doc or (declare.__doc__ or "").strip() or name
        entry = UNDEFINED if gradient is None else gradient
        op = registry.add(Op(name, "user", schema, _check_result(name, declare), text, gradient=entry, **facts))
        try:
            rule = _compile_rule(op, gradient, location)
        except BaseException:
            registry.remove(name)
            raise
        if rule is not None:
            add_rules([rule])
        for backend, implementation in (("torch", torch), ("reference", reference)):
            if implementation is not None:
                dialect(backend).implement(name, implementation)
        if tvm is not None:
            from meta.op.dialect.tvm import compute

            compute(name)(tvm)
        public = _public_function(op)
        for public_name in names:
            setattr(meta, public_name, public)
        return public

    return register


def _check_result(name: str, declare: TypeFunction) -> TypeFunction:
    """The type function with a check that it returns a type."""

    @functools.wraps(declare)
    def checked(*args: Any) -> Type:
        try:
            out = declare(*args)
        except MetaError as error:
            error.left(name)
            raise
        except Exception as error:
            raise raised(TypeInferenceError, name, "its type function", error) from error
        if isinstance(out, Type):  # pyright: ignore[reportUnnecessaryIsInstance]
            return out
        raise RegistryError(
            name,
            f"its type function returned {type(out).__name__}",
            "a TensorType, a TupleType or a Value",
            "return the type of the result, such as that of an argument",
        )

    return checked


def _compile_rule(op: Op, gradient: Gradient | None, location: str) -> GradRule | None:
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
    function = _checked_gradients(entry, namespace[f"_{op.name}"], location)
    rule = GradRule(op.name, function, entry.positions, **rule_facts(entry))
    return replace(rule, remedy=_REMEDY) if undefined else rule


def _several(op: Op, targets: tuple[str, ...], function: Callable[..., Any]) -> Callable[..., Any]:
    """A gradient function of several arguments with a check that it returns one gradient for each."""

    def run(*args: Any, **kwargs: Any) -> Any:
        what = f"the result of the gradient function of {', '.join(targets)}"
        return _fields(op.name, what, function(*args, **kwargs), len(targets), line_of_function(function))

    return run


def _fields(name: str, what: str, value: Any, count: int, location: str) -> tuple[Any, ...]:
    """The gradients in a tuple or list of `count`. Raises GradientError for anything else."""
    several = isinstance(value, (tuple, list))
    fields = as_tuple(value)
    if several and len(fields) == count:
        return fields
    shown = f"has {len(fields)} gradients" if several else f"is of class {type(value).__name__}"
    raise GradientError(name, f"{what} {shown}", f"a tuple or list of {count} gradients", location=location or None)


def _checked_gradients(entry: Entry, function: GradientFunction, location: str) -> GradientFunction:
    """The gradient function of a rule, with checks of what it returns and with its errors in the operator's name.

    It runs outside of autocast: a gradient has the dtype of its argument, which autocast has cast already."""
    name, names = entry.op.name, entry.op.schema.names
    lines: dict[str, str] = {}
    for targets, formula in entry.formulas.items():
        line = "".join(map(line_of_function, formula.functions.values())) or location
        lines |= dict.fromkeys(targets, line)
    has_functions = any(formula.functions for formula in entry.formulas.values())

    def run(needs: tuple[bool, ...], *values: Any) -> tuple[Any, ...]:
        try:
            with scoped("autocast", None) if modes.autocast is not None else nullcontext():
                gradients = function(needs, *values)
        except MetaError as error:
            before = error.within
            error.left(f"the gradient of {name}")
            if error.subject != name and error.within == before:
                error.details = "\n".join(filter(None, (error.details, f"in the gradient of {name}")))
            raise
        except Exception as error:
            raise raised(GradientError, name, "its gradient", error) from error
        pairs = zip(entry.positions, needs, gradients, strict=True)
        return tuple([check(names[i], as_type(values[i]), g) if need else g for i, need, g in pairs])

    def check(argument: str, wanted: Any, gradient: Any) -> Any:
        line, what = lines[argument], f"argument '{argument}'"
        if not isinstance(wanted, tuple):
            return check_tensor(what, wanted, gradient, line)
        types = as_tuple(wanted)
        fields = _fields(name, f"the gradient of {what}", gradient, len(types), line)
        return tuple(
            g if g is None and not is_float(t.dtype) else check_tensor(f"'{argument}[{i}]'", t, g, line)
            for i, (t, g) in enumerate(zip(types, fields, strict=True))
        )

    def check_tensor(what: str, wanted: TensorType, gradient: Any, line: str) -> Any:
        check_gradient(name, what, gradient, wanted, NDArray if modes.emit is None else TensorLike, line)
        if not isinstance(gradient, NDArray):
            return gradient
        if modes.emit is not None:
            return meta.cast(gradient, wanted.dtype)  # an array from outside becomes part of the program
        if has_functions and gradient._version is None:
            gradient._version = Writes((0,))  # the user may hold it too
        return gradient

    return run


def _public_function(op: Op) -> Callable[..., Any]:
    """The function that binds the arguments and calls the operator."""
    op_state = state(op)

    def public(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != len(op.schema.args):
            args = op.schema.bind(op.name, args, kwargs)
        return invoke(op_state, *args)

    public.__name__ = public.__qualname__ = op.name
    public.__doc__ = op.doc
    return public
