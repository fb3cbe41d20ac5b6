"""`verify`: the rules of well-formed IR, one table a level.

base: what tracing and the reader make and most passes keep.  dialect: base, and every operator has its dialect.
planned: dialect, and calls may overwrite arguments (INPLACE) where nobody reads the old contents any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from meta.errors import IRError, did_you_mean
from meta.ir.expr import MAX_DEPTH, Binding, Block, Function, Var
from meta.ir.module import Module
from meta.ir.printer import one_line
from meta.ir.verifier_rules import (
    BindingRule,
    BlockRule,
    Context,
    FunctionRule,
    arguments_normal,
    arity,
    atoms_only,
    bound_once,
    branches_agree,
    constants_fit,
    defined_before_use,
    dialect_chosen,
    functional,
    globals_exist,
    mutations_fit,
    overwrites_dead,
    overwrites_fit,
    parameters_distinct,
    results_bound,
    results_exist,
    type_agrees,
)
from meta.ir.visitor import nested_blocks

Level = Literal["base", "dialect", "planned"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a level, each with the phrase that says what it demands."""

    binding: dict[BindingRule, str]
    block: dict[BlockRule, str]
    function: dict[FunctionRule, str]


_BASE: dict[BindingRule, str] = {
    atoms_only: "operands are variables, constants or functions of the module",
    bound_once: "every variable is bound once",
    defined_before_use: "every operand is bound before it is read",
    globals_exist: "functions that are named exist, with that type",
    arity: "one argument for each of the schema",
    arguments_normal: "arguments are as the schema normalises them",
    type_agrees: "types are those that the operators infer",
    branches_agree: "both branches have one type and the condition is a 0-d bool tensor",
    constants_fit: "constants have the shape and dtype of their type",
}
_FUNCTION: dict[FunctionRule, str] = {
    parameters_distinct: "parameters are distinct variables",
    mutations_fit: "a mutated parameter gets one result of its own type",
}
_BLOCK: dict[BlockRule, str] = {
    results_bound: "what a block returns is bound in it or around it",
    results_exist: "functions that are named exist, constants have the shape and dtype of their type",
}
_DIALECT: dict[BindingRule, str] = {**_BASE, dialect_chosen: "every operator has a dialect"}
_FUNCTIONAL: dict[BindingRule, str] = {functional: "before memory is planned, calls overwrite nothing"}
_OVERWRITING: dict[BindingRule, str] = {overwrites_fit: "an argument is overwritten by an output of its own type"}
_PLANNED: dict[FunctionRule, str] = {**_FUNCTION, overwrites_dead: "only storage nobody reads later is overwritten"}

LEVELS: dict[Level, Rules] = {
    "base": Rules({**_BASE, **_FUNCTIONAL}, _BLOCK, _FUNCTION),
    "dialect": Rules({**_DIALECT, **_FUNCTIONAL}, _BLOCK, _FUNCTION),
    "planned": Rules({**_DIALECT, **_OVERWRITING}, _BLOCK, _PLANNED),
}


def verify(node: Module | Function, level: Level = "base") -> None:
    """Check a module, or a function on its own, against the rules of `level`.

    Raises IRError for the first rule that is broken, with its name, the binding and the user's line it came from."""
    if level not in LEVELS:
        hint = did_you_mean(level, LEVELS)
        raise IRError("verify", f"there is no level '{level}'", f"{', '.join(LEVELS)}", hint)
    module = node if isinstance(node, Module) else None
    functions = node.functions.items() if isinstance(node, Module) else [(node.name or "main", node)]
    for name, function in functions:
        context = Context(module, name, function)
        context.visible.update(function.params)
        context.bound.update(function.params)
        _verify_block(function.body, LEVELS[level], context, 1)
        for rule, demand in LEVELS[level].function.items():
            for wrong, binding in rule(context):
                raise _broken(rule.__name__, wrong, demand, context, binding)


def _verify_block(block: Block, rules: Rules, context: Context, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _broken("depth", f"blocks nest deeper than {MAX_DEPTH}", "move code into functions", context, None)
    here: list[Var] = []
    for binding in block.bindings:
        for rule, demand in rules.binding.items():
            for wrong in rule(binding, context):
                raise _broken(rule.__name__, wrong, demand, context, binding)
        params = binding.value.params if isinstance(binding.value, Function) else ()
        # A closure sees its own variable, and nobody else its parameters.
        inside = {binding.var, *params} if isinstance(binding.value, Function) else set[Var]()
        context.bound |= {binding.var, *params}
        context.visible |= inside
        for inner in nested_blocks(binding.value):
            _verify_block(inner, rules, context, depth + 1)
        context.visible -= inside
        context.visible.add(binding.var)
        here.append(binding.var)
    for rule, demand in rules.block.items():
        for wrong in rule(block, context):
            raise _broken(rule.__name__, wrong, demand, context, None)
    context.visible.difference_update(here)


def _broken(rule: str, wrong: str, demand: str, context: Context, binding: Binding | None) -> IRError:
    span = binding.span if binding else context.function.span
    where = f" in '{one_line(binding)}'" if binding else ""
    return IRError(
        "verify", f"{rule}: {wrong}; {demand}", remedy=f"look{where} of @{context.name}", location=str(span or "")
    )
