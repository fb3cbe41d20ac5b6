"""Removal of users' operators: everything that the process keeps of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

from meta.backend.tvm.compute import TEImplementation
from meta.definition.functions import withdraw
from meta.eager import tape
from meta.eager.call import renew, state
from meta.errors import RegistryError
from meta.op import registry
from meta.op.grad.rule import remove_rule
from meta.op.implementation import remove_implementations
from meta.op.registry import USER, Op


def unregister(name: str) -> None:
    """Remove an operator of `meta.define`, with its function, method, gradient, implementations and cached kernels.

    Programs that were compiled before keep what they were compiled with. Functions of the operator that are still
    held, and programs that were recorded and not compiled, raise RegistryError when they are used.
    Raises RegistryError for an unknown name, and for an operator of this package."""
    op = user_op(name, "unregister")
    op_state = state(op)
    remove(op)
    registry.remove(op.name)
    renew(op_state, replace(op, declare=_unregistered(op.name)))


def user_op(name: str, where: str) -> Op:
    """The operator called `name`; raises RegistryError for an unknown one and for one of this package."""
    op = registry.get(name)
    if op.family != USER:
        raise RegistryError(where, f"'{name}' is an operator of meta", "operators of meta.define", "use a new name")
    if op.name != name:
        raise RegistryError(
            where, f"'{name}' is an alias of '{op.name}'", "the name of an operator", f"use '{op.name}'"
        )
    return op


def remove(op: Op) -> None:
    """Drop what is kept by the operator's names: function, methods, gradient, implementations, kernels in memory."""
    withdraw(op)
    remove_rule(op.name)
    tape.forget(op.name)
    for implementation in remove_implementations(op.name):
        if isinstance(implementation.payload, TEImplementation):
            from meta.backend.tvm.kernel import forget

            forget(implementation.payload.compute)


def _unregistered(name: str) -> Any:
    """The type function of an unregistered operator, which raises RegistryError."""

    def declare(*_: Any) -> NoReturn:
        raise RegistryError(name, "the operator was unregistered", "a registered operator", "define it again")

    return declare
