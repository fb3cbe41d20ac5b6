"""`verify`: the rules of well-formed IR, which tracing, the readers and every pass keep."""

from __future__ import annotations

from meta.errors import IRError
from meta.ir.builder import Module
from meta.ir.expr import Binding, Block, FunctionExpr, Var
from meta.ir.printer import one_line
from meta.ir.verifier_rules import (
    BindingRule,
    BlockRule,
    FunctionRule,
    RuleContext,
    arguments_normal,
    arity,
    atoms_only,
    bound_once,
    branches_agree,
    constants_fit,
    defined_before_use,
    globals_exist,
    mutations_fit,
    parameters_distinct,
    results_bound,
    results_exist,
    type_agrees,
)
from meta.ir.visitor import nested_blocks
from meta.limits import MAX_DEPTH

BINDING_RULES: dict[BindingRule, str] = {
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
FUNCTION_RULES: dict[FunctionRule, str] = {
    parameters_distinct: "parameters are distinct variables",
    mutations_fit: "a mutated parameter gets one result of its own type",
}
BLOCK_RULES: dict[BlockRule, str] = {
    results_bound: "what a block returns is bound in it or around it",
    results_exist: "functions that are named exist, constants have the shape and dtype of their type",
}


def verify(node: Module | FunctionExpr) -> None:
    """Check a module, or a single function, against the rules.

    Raises IRError for the first rule that is broken, with its name, the binding and the user's line it came from.
    Modules from outside (text, importers, passes of users) are verified before they run."""
    module = node if isinstance(node, Module) else None
    functions = node.functions.items() if isinstance(node, Module) else [(node.name or "main", node)]
    for name, function in functions:
        context = RuleContext(module, name, function)
        context.visible.update(function.params)
        context.bound.update(function.params)
        _verify_block(function.body, context, 1)
        for rule, demand in FUNCTION_RULES.items():
            for wrong in rule(context):
                raise _broken(rule.__name__, wrong, demand, context, None)
    if module is not None:
        object.__setattr__(module, "verified", True)


def verify_once(module: Module) -> None:
    """`verify` a module that has not been verified yet."""
    if not module.verified:
        verify(module)


def _verify_block(block: Block, context: RuleContext, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _broken("depth", f"blocks nest deeper than {MAX_DEPTH}", "move code into functions", context, None)
    defined: list[Var] = []
    for binding in block.bindings:
        for rule, demand in BINDING_RULES.items():
            for wrong in rule(binding, context):
                raise _broken(rule.__name__, wrong, demand, context, binding)
        params = binding.value.params if isinstance(binding.value, FunctionExpr) else ()
        # Inside a closure its variable and its parameters are visible.
        inside = {binding.var, *params} if isinstance(binding.value, FunctionExpr) else set[Var]()
        context.bound |= {binding.var, *params}
        context.visible |= inside
        for inner in nested_blocks(binding.value):
            _verify_block(inner, context, depth + 1)
        context.visible -= inside
        context.visible.add(binding.var)
        defined.append(binding.var)
    for rule, demand in BLOCK_RULES.items():
        for wrong in rule(block, context):
            raise _broken(rule.__name__, wrong, demand, context, None)
    context.visible.difference_update(defined)


def _broken(rule: str, wrong: str, demand: str, context: RuleContext, binding: Binding | None) -> IRError:
    span = binding.span if binding else context.function.span
    where = f" in '{one_line(binding)}'" if binding else ""
    return IRError(
        "verify", f"{rule}: {wrong}; {demand}", remedy=f"look{where} of @{context.name}", location=str(span or "")
    )
