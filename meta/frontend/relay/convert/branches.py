"""Conditionals of Relay programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.frontend.relay import ast
from meta.frontend.relay.convert.emission import Emission
from meta.frontend.relay.convert.type_mapping import value_type
from meta.frontend.relay.convert.values import (
    OpaqueError,
    Value,
    ValueChoice,
    describe,
    is_tensors,
    leaves,
    scalar_value,
)
from meta.frontend.relay.errors import RelayError, UnsupportedError, located
from meta.ir.expr import Block, If
from meta.tracing.symbol import Symbol
from meta.tree import leaves_of, with_leaves

Branch = Callable[[], Value]


class Branches:
    """Selects between two branches, which are functions without arguments that evaluate them.

    speculating: how many of the branches being evaluated have no conditional in the program that guards them.
    """

    def __init__(self, emission: Emission) -> None:
        self.emission = emission
        self.speculating = 0

    def select(self, condition: Value, then: Branch, otherwise: Branch, place: ast.Place) -> Value:
        """One of two values by a condition. A constant condition decides at once; tensors become a conditional of the
        program; other values become a ValueChoice."""
        if not isinstance(condition, Symbol) or condition.ndim != 0 or condition.dtype != "bool":
            raise RelayError("relay", located(place, f"the condition is {describe(condition)}"), "a bool tensor ()")
        constant = scalar_value(condition)
        if constant is not None:
            return then() if constant else otherwise()
        before = [ref.value for ref in self.emission.references]
        try:
            return self._emit_if(condition, then, otherwise, before, place)
        except OpaqueError:
            self._restore(before)
        return self._choice(condition, then, otherwise, before, place)

    def forced(self, value: Value, place: ast.Place) -> Value:
        """A value whose Choices between tensors are emitted as conditionals. Raises OpaqueError for other Choices."""

        def force(leaf: Value) -> Value:
            is_choice = isinstance(leaf, ValueChoice)
            return self.distribute(leaf, lambda each: self.forced(each, place), place) if is_choice else leaf

        return with_leaves(value, [force(x) for x in leaves_of(value)])

    def distribute(self, choice: ValueChoice, function: Callable[[Value], Value], place: ast.Place) -> Value:
        """`function` of the value that a choice selects."""
        return self.select(choice.condition, lambda: function(choice.then), lambda: function(choice.otherwise), place)

    def _emit_if(
        self, condition: Symbol, then: Branch, otherwise: Branch, before: list[Value], place: ast.Place
    ) -> Value:
        """Emit an If, whose branches also return what the references hold at their end."""
        references = self.emission.references[: len(before)]
        forms: list[Any] = []
        blocks: list[Block] = []
        span = self.emission.builder.span
        for branch in (then, otherwise):
            with self.emission.block() as scope:
                value = self.forced(branch(), place)
                contents = tuple(ref.value if is_tensors(ref.value) else () for ref in references)
                self._check_writes(before, place)
                form = (value, contents)
                atoms = [leaf.atom for leaf in leaves(form)]
                scope.ret(atoms[0] if len(atoms) == 1 else atoms)
            forms.append(form)
            blocks.append(scope.block)
            self._restore(before)
        if value_type(forms[0]) != value_type(forms[1]):
            types = f"{value_type(forms[0][0])!r} and {value_type(forms[1][0])!r}"
            raise RelayError("relay", located(place, f"the branches return {types}"), "values of one type")
        count = len(leaves(forms[0]))
        if not count:
            return forms[0][0]
        result = self.emission.builder.emit(If(condition.atom, blocks[0], blocks[1], span))
        tensors = [Symbol(result)] if count == 1 else self.emission.unpacked(result)
        value, contents = with_leaves(forms[0], tensors)
        for i, ref in enumerate(references):
            if forms[0][1][i] is not before[i] or forms[1][1][i] is not before[i]:
                ref.value = contents[i] if is_tensors(before[i]) else before[i]
        return value

    def _choice(
        self, condition: Symbol, then: Branch, otherwise: Branch, before: list[Value], place: ast.Place
    ) -> Value:
        self.speculating += 1
        try:
            values = [then(), otherwise()]
        finally:
            self.speculating -= 1
        if any(ref.value is not old for ref, old in zip(self.emission.references, before, strict=False)):
            problem = located(place, "a branch that returns no tensors writes to a reference")
            raise UnsupportedError("relay", problem, "branches that return tensors")
        return ValueChoice(condition, *values)

    def _restore(self, contents: list[Value]) -> None:
        for ref, value in zip(self.emission.references, contents, strict=False):
            ref.value = value

    def _check_writes(self, before: list[Value], place: ast.Place) -> None:
        for ref, old in zip(self.emission.references, before, strict=False):
            if ref.value is not old and not (is_tensors(old) and is_tensors(ref.value)):
                problem = f"a branch writes {describe(ref.value)} to a reference that holds {describe(old)}"
                raise UnsupportedError("relay", located(place, problem), "tensors in references that branches write")
