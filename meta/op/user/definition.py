"""`meta.define`: check the parts of an operator and register them, all or none. `meta.unregister`: remove them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import meta
from meta.backend.tvm.compute import TEImplementation
from meta.errors import MetaError, RegistryError, TypeInferenceError, raised, user_frame
from meta.ir.type import Type
from meta.op import registry
from meta.op.dispatch import dialect
from meta.op.grad.rule import GradRule, add_rules, remove_rule
from meta.op.implementation import remove_implementations
from meta.op.registry import Op, TypeFunction, split
from meta.op.user import namespaces
from meta.op.user.functions import add_method, check_names, public_function, publish, withdraw
from meta.op.user.gradients import UNDEFINED, Gradient, compile_rule
from meta.schema._dsl import Schema

_GIVEN = ("name", "family", "schema", "declare", "doc", "operator", "gradient", "revision", "part")
FACTS = tuple(f.name for f in fields(Op) if f.name not in _GIVEN)
"""The fields of meta.op.registry.Op that `define` takes as facts."""


def define(
    name: str,
    schema: Schema,
    *,
    gradient: Gradient | None = None,
    doc: str = "",
    tvm: Callable[..., Any] | None = None,
    torch: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    override: bool = False,
    **facts: Any,
) -> Callable[[TypeFunction], Callable[..., Any]]:
    """Register the decorated type function as operator `name` and return its public function, which is also
    `meta.<name>`, or `meta.ops.<package>.<name>` for a name such as "package::name". Packages name their operators in
    this way, so that operators of two packages do not clash.

    gradient: an entry as in derivatives.yaml: a formula (text, or a Python function with the values that it reads as
        parameters) for each tensor argument, "non_differentiable", or "not_implemented: reason". Without an entry,
        backward through the operator raises GradientError. Gradients must have the types of their arguments.
    tvm: TE compute on the arguments in schema order.  torch: the same on torch tensors, with `out=` to write into.
    reference: the same on NumPy arrays.
    override: replace an operator that was defined with this name before, as a notebook does when a cell runs again. Its
        runners and kernels are dropped, and references to its old function call the new one. Programs that were
        compiled before keep what they were compiled with; those recorded before and not compiled raise RegistryError.
    facts: further fields of meta.op.registry.Op: pattern, amp, amp_args, inplace, method, aliases, view, no_compute,
        positions, outputs, resolve, complex, recorded_as. With method=True arrays and symbols have it as a method.
    Raises RegistryError for an existing name (with override, for one of this package), an unknown fact, an invalid
    formula or a part that is not callable, and then registers nothing. Exceptions in these functions become the cause
    of a TypeInferenceError, KernelError or GradientError that names the operator and the line that raised them."""
    before = _replaced(name, facts.get("aliases", ()), override)
    if callable(schema):  # a function, whose place is below the decorator
        problem, remedy = f"the schema is {type(schema).__name__}", f'write Schema("{name}", Arg("x", Tensor), ...)'
        raise RegistryError(name, problem, "a meta.schema.Schema", f"{remedy}, and decorate the type function")
    implementations = {"tvm": tvm, "torch": torch, "reference": reference}
    for backend, implementation in implementations.items():
        if implementation is not None and not callable(implementation):
            raise RegistryError(name, f"{backend} is {type(implementation).__name__}", "a function")
    registry.check_facts(name, facts, (*FACTS, "gradient", "doc", *implementations, "override"))
    if facts.get("recorded_as"):
        registry.get(facts["recorded_as"])
    location = user_frame()

    def register(declare: TypeFunction) -> Callable[..., Any]:
        if not callable(declare):
            raise RegistryError(name, f"its type function is {type(declare).__name__}", "a function")
        text = doc or (declare.__doc__ or "").strip() or name
        entry = UNDEFINED if gradient is None else gradient
        checked = _check_result(name, declare)
        make = functools.partial(Op, name, registry.USER, schema, checked, text, gradient=entry, **facts)
        op, rule = _add(name, make, gradient, location, before)
        if before is not None:
            _remove(before)
        if rule is not None:
            add_rules([rule])
        _implement(name, implementations)
        module = getattr(declare, "__module__", "meta")
        public = public_function(op, module, rule.differentiable if rule is not None else ())
        if op.method:
            add_method(op, public, module)
        publish(op, public)
        return public

    return register


def _add(
    name: str, make: Callable[[], Op], gradient: Gradient | None, location: str, before: Op | None
) -> tuple[Op, GradRule | None]:
    """Add an operator to the registry, in the place of `before`, and compile its gradient. If either fails, the
    registry is as it was."""
    if before is not None:
        registry.remove(name)
    try:
        op = registry.add(make())
        check_names(op, before)
        return op, compile_rule(op, gradient, location)
    except BaseException:
        registry.remove(name)
        if before is not None:
            registry.restore(before)
        raise


def _implement(name: str, implementations: Mapping[str, Callable[..., Any] | None]) -> None:
    """Register the implementations of an operator in their dialects."""
    for backend in ("torch", "reference"):
        implementation = implementations[backend]
        if implementation is not None:
            dialect(backend).implement(name, implementation)
    if implementations["tvm"] is not None:
        from meta.op.dialect.tvm import compute

        compute(name)(implementations["tvm"])


def _replaced(name: str, aliases: Sequence[str], override: bool) -> Op | None:
    """The operator that a definition replaces, None for a new name. Raises RegistryError for a name that is taken."""
    if not isinstance(name, str):
        raise RegistryError("define", f"the name is of class {type(name).__name__}", 'a name, such as "swish"')
    for each in (name, *aliases):
        registry.check_name(each)
    before = _user_op(name, "define") if override and registry.owner(name) is not None else None
    for each in (name, *aliases):
        if before is None or each not in before.names:
            _check_free(each)
    return before


def _check_free(name: str) -> None:
    """Raise RegistryError for a name that another operator or function has, or that operators cannot have."""
    namespace, basename = split(name)
    owner = registry.owner(name)
    if owner is not None or (not namespace and (name in dir(meta) or name in vars(meta))):
        where = f"meta.ops.{namespace}.{basename}" if namespace else f"meta.{name}"
        is_users = owner is not None and owner.family == registry.USER
        remedy = "pass override=True to replace it" if is_users else f'name your package: "mypkg::{basename}"'
        raise RegistryError("define", f"{where} exists already", "a new name", remedy)
    if basename.startswith("_") or namespace.startswith("_"):
        raise RegistryError("define", f"the name '{name}' begins with an underscore", "another name")
    if namespace in registry.names():
        raise RegistryError("define", f"the namespace '{namespace}' is the name of an operator", "another namespace")
    if not namespace and namespaces.find(name) is not None:
        raise RegistryError("define", f"'{name}' is a namespace of operators", "another name")


def _check_result(name: str, declare: TypeFunction) -> TypeFunction:
    """The type function with a check that it returns a type."""

    @functools.wraps(declare)
    def checked(*args: object) -> Type:
        try:
            out = declare(*args)
        except MetaError as error:
            error.left(name)
            raise
        except Exception as error:
            raise raised(TypeInferenceError, name, "its type function", error) from error
        if isinstance(out, Type):
            return out
        raise RegistryError(
            name,
            f"its type function returned {type(out).__name__}",
            "a TensorType, a TupleType or a Value",
            "return the type of the result, such as an argument's type",
        )

    return checked


def unregister(name: str) -> None:
    """Remove an operator of `meta.define`, with its function, method, gradient, implementations and cached kernels.

    Programs that were compiled before keep what they were compiled with. Functions of the operator that are still
    held, and programs that were recorded and not compiled, raise RegistryError when they are used.
    Raises RegistryError for an unknown name, and for an operator of this package."""
    op = _user_op(name, "unregister")
    _remove(op)
    registry.remove(op.name)


def _user_op(name: str, where: str) -> Op:
    """The operator called `name`; raises RegistryError for an unknown one and for one of this package."""
    op = registry.get(name)
    if op.family != registry.USER:
        raise RegistryError(where, f"'{name}' is an operator of meta", "operators of meta.define", "use a new name")
    if op.name != name:
        raise RegistryError(
            where, f"'{name}' is an alias of '{op.name}'", "the name of an operator", f"use '{op.name}'"
        )
    return op


def _remove(op: Op) -> None:
    """Drop what is kept by the operator's names: function, methods, gradient, implementations, kernels in memory."""
    withdraw(op)
    remove_rule(op.name)
    for implementation in remove_implementations(op.name):
        if isinstance(implementation.payload, TEImplementation):
            from meta.backend.tvm.kernel import forget

            forget(implementation.payload.compute)
