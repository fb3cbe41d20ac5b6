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
from typing import Any

import meta
from meta.eager.call import invoke, state
from meta.errors import RegistryError
from meta.ir.type import Type
from meta.op import registry
from meta.op.dispatch import dialect
from meta.op.grad import support
from meta.op.grad.entry import function_source, read_entry, rule_facts
from meta.op.grad.rule import GradRule, add_rules
from meta.op.registry import Op, TypeFunction
from meta.schema._dsl import Schema

Gradient = Mapping[str, Any] | str


def define(
    name: str,
    schema: Schema,
    *,
    gradient: Gradient = "non_differentiable",
    doc: str = "",
    tvm: Callable[..., Any] | None = None,
    torch: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    **facts: Any,
) -> Callable[[TypeFunction], Callable[..., Any]]:
    """Register the decorated type function as operator `name` and return its public function (also `meta.<name>`).

    gradient: an entry as in derivatives.yaml: a formula (text, or a Python function with the values that it reads as
        parameters) for each tensor argument, "non_differentiable", or "not_implemented: reason".
    tvm: TE compute on the arguments in schema order.  torch: the same on torch tensors, with `out=` to write into.
    reference: the same on NumPy arrays.  facts: further fields of meta.op.registry.Op (pattern, amp, outputs, ...).
    Raises RegistryError for an existing name or an invalid formula, and then registers nothing."""
    if name in dir(meta):
        raise RegistryError("define", f"meta.{name} exists already", "a new name")

    def register(declare: TypeFunction) -> Callable[..., Any]:
        text = doc or (declare.__doc__ or "").strip() or name
        op = registry.add(Op(name, "user", schema, _check_result(name, declare), text, **facts))
        try:
            rule = _compile_rule(op, gradient)
        except RegistryError:
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
        setattr(meta, name, public)
        return public

    return register


def _check_result(name: str, declare: TypeFunction) -> TypeFunction:
    """The type function with a check that it returns a type."""

    @functools.wraps(declare)
    def checked(*args: Any) -> Type:
        out = declare(*args)
        if isinstance(out, Type):  # pyright: ignore[reportUnnecessaryIsInstance]
            return out
        raise RegistryError(
            name,
            f"its type function returned {type(out).__name__}",
            "a TensorType, a TupleType or a Value",
            "return the type of the result, such as that of an argument",
        )

    return checked


def _compile_rule(op: Op, gradient: Gradient) -> GradRule | None:
    """The gradient rule of the operator, compiled from checked formulas; None without gradient."""
    entry = read_entry(op, dict(gradient) if isinstance(gradient, Mapping) else gradient)
    if not entry.positions:
        return None
    namespace: dict[str, Any] = {"meta": meta, "Any": Any, "grad_support": support}
    if isinstance(gradient, Mapping):
        namespace |= {value.__name__: value for value in gradient.values() if callable(value)}
    # The compiler of formulas has checked each operator call of the source.
    exec(compile(function_source(entry), f"<gradient of {op.name}>", "exec"), namespace)
    return GradRule(op.name, namespace[f"_{op.name}"], entry.positions, **rule_facts(entry))


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
