"""Operators that a program defines at run time: `@meta.define(...)` on the declaration.

    @meta.define("scale", Schema("scale", Arg("x", Tensor), Arg("by", Float, 2.0)),
                 gradient={"x": "scale(dy, by)"}, tvm=lambda x, by: topi.multiply(x, by), pattern="elemwise")
    def scale(x, by):
        return x                                   # types in, type out

    meta.scale(meta.array([1.0]), 3.0)

Such an operator is a full one: it runs eagerly with autograd, is traced, compiled and cast like those that come with
the package, and its formulas may use it and every other operator. Operators that belong to the package go into its
files instead (docs/add-an-operator.md), where the generated functions are typed and their calls faster.

The module is not called `define`: Python binds a submodule to its package under its name, so an import of
`meta.define` would replace the public function.
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

    gradient: an entry as in derivatives.yaml: a formula (text, or a Python function whose parameters name what it
        reads) for each tensor argument, "non_differentiable", or "not_implemented: reason".
    tvm: TE compute on the arguments in schema order.  torch: the same on torch tensors, with `out=` to write into.
    reference: the same on NumPy arrays.  facts: further fields of meta.op.registry.Op (pattern, amp, outputs, ...).
    Raises RegistryError for a taken name or unusable formula, before anything is registered."""
    if name in dir(meta):
        raise RegistryError("define", f"meta.{name} exists already", "a name of its own")

    def register(declare: TypeFunction) -> Callable[..., Any]:
        text = doc or (declare.__doc__ or "").strip() or name
        op = registry.add(Op(name, "user", schema, _checked(name, declare), text, **facts))
        try:
            rule = _rule(op, gradient)
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
        public = _public(op)
        setattr(meta, name, public)
        return public

    return register


def _checked(name: str, declare: TypeFunction) -> TypeFunction:
    """The type function, held to returning a type."""

    @functools.wraps(declare)
    def typed(*args: Any) -> Type:
        out = declare(*args)
        if isinstance(out, Type):  # pyright: ignore[reportUnnecessaryIsInstance]
            return out
        raise RegistryError(
            name,
            f"its type function returned {type(out).__name__}",
            "a TensorType, a TupleType or a Value",
            "return the type of the result, such as that of an argument",
        )

    return typed


def _rule(op: Op, gradient: Gradient) -> GradRule | None:
    """The operator's rule; its function is compiled from checked formulas."""
    entry = read_entry(op, dict(gradient) if isinstance(gradient, Mapping) else gradient)
    if not entry.positions:
        return None
    namespace: dict[str, Any] = {"meta": meta, "Any": Any, "grad_support": support}
    if isinstance(gradient, Mapping):
        namespace |= {value.__name__: value for value in gradient.values() if callable(value)}
    # The text consists of operator calls that the compiler of formulas has checked one by one.
    exec(compile(function_source(entry), f"<gradient of {op.name}>", "exec"), namespace)
    return GradRule(op.name, namespace[f"_{op.name}"], entry.positions, **rule_facts(entry))


def _public(op: Op) -> Callable[..., Any]:
    op_state = state(op)

    def public(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != len(op.schema.args):
            args = op.schema.bind(op.name, args, kwargs)
        return invoke(op_state, *args)

    public.__name__ = public.__qualname__ = op.name
    public.__doc__ = op.doc
    return public
