"""The rules of well-formed IR, one table a level, and `verify`, which runs them.

base: what tracing and the reader make and most passes keep.  dialect: base, and every operator has its dialect.
planned: dialect, and calls may overwrite arguments (INPLACE) where nobody reads the old contents any more.

A rule is a function of a binding (or of a function of the module) and its context that yields what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from meta.dtype import canonical
from meta.errors import IRError, MetaError, did_you_mean, message, reason
from meta.ir.analysis import Live, Storage, visit_live
from meta.ir.builder import applied_type
from meta.ir.expr import (
    INPLACE,
    MAX_DEPTH,
    MUTATES,
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Tuple,
    TupleGetItem,
    Var,
    arg_types,
    is_atom,
    is_atom_list,
    operands,
)
from meta.ir.literal import attr_text, to_array
from meta.ir.module import Module
from meta.ir.printer import one_line
from meta.ir.span import Span
from meta.ir.type import TensorType, tensor_type
from meta.ir.visitor import nested_blocks

Level = Literal["base", "dialect", "planned"]


@dataclass(slots=True)
class Context:
    """What is known at a binding: the variables in scope, all that were ever bound, and where it stands."""

    module: Module | None
    name: str
    function: Function
    visible: set[Var] = field(default_factory=set[Var])
    bound: set[Var] = field(default_factory=set[Var])


BindingRule = Callable[[Binding, Context], Iterator[str]]
FunctionRule = Callable[[Context], Iterator[tuple[str, Binding | None]]]


# Rules on one binding


def atoms_only(binding: Binding, _: Context) -> Iterator[str]:
    value = binding.value
    if not isinstance(value, (Call, Tuple, TupleGetItem, If, Function)):  # pyright: ignore[reportUnnecessaryIsInstance]
        yield f"a {type(value).__name__} is bound; values are calls, tuples, fields, conditionals and functions"
        return
    for operand in operands(value):
        if not is_atom(operand):
            yield f"an operand is a {type(operand).__name__}"
    if isinstance(value, Call):
        given = value.args if value.callee is not None else [x for a in value.args if is_atom_list(a) for x in a]
        yield from (f"an argument is {x!r}" for x in given if not is_atom(x))


def defined_before_use(binding: Binding, context: Context) -> Iterator[str]:
    yield from _undefined(operands(binding.value), context)


def bound_once(binding: Binding, context: Context) -> Iterator[str]:
    params = binding.value.params if isinstance(binding.value, Function) else ()
    for var in (binding.var, *params):
        if var in context.bound:
            yield f"%{var.name} is bound a second time"


def globals_exist(binding: Binding, context: Context) -> Iterator[str]:
    if context.module is None:
        return
    for atom in operands(binding.value):
        if isinstance(atom, GlobalVar):
            yield from _global(atom, context.module)


def arity(binding: Binding, _: Context) -> Iterator[str]:
    call = binding.value
    if isinstance(call, Call) and not isinstance(call.op, (Var, GlobalVar)) and not _has_arity(call):
        yield f"{len(call.args)} arguments for {call.op.schema!r}"


def arguments_normal(binding: Binding, _: Context) -> Iterator[str]:
    call = binding.value
    if not isinstance(call, Call) or isinstance(call.op, (Var, GlobalVar)) or not _has_arity(call):
        return
    for arg, value in zip(call.op.schema.args, call.args, strict=True):
        try:
            normal = arg.normalize(call.op.name, value)
        except MetaError as error:
            yield reason(error)
            continue
        if not is_atom(value) and not is_atom_list(value) and attr_text(normal) != attr_text(value):
            yield f"argument '{arg.name}' is {value!r}, its normal form is {normal!r}"


def type_agrees(binding: Binding, _: Context) -> Iterator[str]:
    try:
        kind = _inferred(binding.value)
    except MetaError as error:
        yield f"it cannot be typed: {reason(error)}"
        return
    for what, found in (("value", binding.value.type), ("variable", binding.var.type)):
        if found != kind:
            yield f"the {what} has type {found!r}, inferred is {kind!r}"


def branches_agree(binding: Binding, _: Context) -> Iterator[str]:
    value = binding.value
    if not isinstance(value, If):
        return
    if value.then.type != value.orelse.type:
        yield f"the branches return {value.then.type!r} and {value.orelse.type!r}"
    kind = value.cond.type
    if not isinstance(kind, TensorType) or kind is not tensor_type((), "bool", kind.device):
        yield f"the condition has type {kind!r}, not a 0-d bool tensor"


def constants_fit(binding: Binding, _: Context) -> Iterator[str]:
    for atom in operands(binding.value):
        if isinstance(atom, Constant):
            yield from _constant(atom)


def dialect_chosen(binding: Binding, _: Context) -> Iterator[str]:
    call = binding.value
    if isinstance(call, Call) and call.callee is None and not call.dialect:
        yield f"{call.op_name} has no dialect"


def functional(binding: Binding, _: Context) -> Iterator[str]:
    if isinstance(binding.value, Call) and INPLACE in binding.value.attrs:
        yield f"the call overwrites arguments ('{INPLACE}' among its attributes)"


# Rules on a whole function of the module


def closed(context: Context) -> Iterator[tuple[str, Binding | None]]:
    """What blocks return is bound there; a rule of its own, since results stand in no binding."""
    for block, visible in _blocks_in_scope(context.function):
        for atom in block.results:
            if not is_atom(atom):
                yield f"a result is a {type(atom).__name__}", None
            elif isinstance(atom, Var) and atom not in visible:
                yield f"%{atom.name} is returned but not bound there", None
            elif isinstance(atom, GlobalVar) and context.module is not None:
                yield from ((wrong, None) for wrong in _global(atom, context.module))
            elif isinstance(atom, Constant):
                yield from ((wrong, None) for wrong in _constant(atom))


def parameters_distinct(context: Context) -> Iterator[tuple[str, Binding | None]]:
    if len(set(context.function.params)) != len(context.function.params):
        yield "a variable is a parameter twice", None


def mutations_fit(context: Context) -> Iterator[tuple[str, Binding | None]]:
    function = context.function
    mutates: Any = function.attrs.get(MUTATES, {})
    results = function.body.results
    if not isinstance(mutates, dict):
        yield f"'{MUTATES}' is {mutates!r}, not a dictionary", None
        return
    pairs: list[tuple[Any, Any]] = list(mutates.items())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    for result, param in pairs:
        if not _is_index(result, len(results)) or not _is_index(param, len(function.params)):
            yield f"'{MUTATES}' maps result {result} to parameter {param}; there is no such pair", None
        elif results[result].type != function.params[param].type:
            types = f"{results[result].type!r} and {function.params[param].type!r}"
            yield f"'{MUTATES}' maps result {result} to parameter {param} of types {types}", None
    if len({param for _, param in pairs}) != len(pairs):
        yield f"'{MUTATES}' names a parameter twice", None


def overwrites_dead(context: Context) -> Iterator[tuple[str, Binding | None]]:
    """An argument that is overwritten is no constant, is not read later under any name, and belongs to the caller
    only when the function says that it mutates that parameter."""
    storage = Storage(context.function)
    mutated = set(context.function.attrs.get(MUTATES, {}).values())
    found: list[tuple[str, Binding | None]] = []

    def visit(binding: Binding, live: Live) -> None:
        call = binding.value
        if not isinstance(call, Call):
            return
        for output, position in call.attrs.get(INPLACE, {}).items():
            for wrong in _overwrite(call, output, position, storage, live, mutated):
                found.append((wrong, binding))

    visit_live(context.function, visit)
    yield from reversed(found)


def _overwrite(
    call: Call, output: int, position: int, storage: Storage, live: Live, mutated: set[int]
) -> Iterator[str]:
    outputs = storage.output_types(call)
    if not _is_index(output, len(outputs)) or not _is_index(position, len(call.args)):
        yield f"output {output} is to overwrite argument {position}; there is no such pair"
        return
    arg = call.args[position]
    if not is_atom(arg) or arg.type != outputs[output]:
        yield f"output {output} of type {outputs[output]!r} is to overwrite argument {position}, which is no such tensor"
        return
    overwritten = storage.buffers(arg)
    readers = sorted(f"%{v.name}" for v in live if storage.buffers(v) & overwritten)
    if readers:
        yield f"argument {position} is overwritten, but {', '.join(readers)} is read later"
    for buffer in overwritten:
        if buffer.kind == "constant":
            yield f"argument {position} is a constant and overwritten"
        if buffer.kind == "parameter" and buffer.index not in mutated:
            yield f"argument {position} is a parameter and overwritten, but the function does not mutate it"


# The tables


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a level, each with the phrase that says what it demands."""

    binding: dict[BindingRule, str]
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
    closed: "what a block returns is bound in it or around it",
    mutations_fit: "a mutated parameter gets one result of its own type",
}
_DIALECT: dict[BindingRule, str] = {**_BASE, dialect_chosen: "every operator has a dialect"}
_FUNCTIONAL: dict[BindingRule, str] = {functional: "before memory is planned, calls overwrite nothing"}
_PLANNED: dict[FunctionRule, str] = {**_FUNCTION, overwrites_dead: "only storage that is not read later is overwritten"}

LEVELS: dict[Level, Rules] = {
    "base": Rules({**_BASE, **_FUNCTIONAL}, _FUNCTION),
    "dialect": Rules({**_DIALECT, **_FUNCTIONAL}, _FUNCTION),
    "planned": Rules(_DIALECT, _PLANNED),
}


def verify(node: Module | Function, level: Level = "base") -> None:
    """Check a module, or a function on its own, against the rules of `level`.

    Raises IRError for the first rule that is broken, with its name, the binding and the user's line it came from."""
    if level not in LEVELS:
        hint = did_you_mean(level, LEVELS)
        raise IRError(message("verify", f"there is no level '{level}'", f"allowed: {', '.join(LEVELS)}", hint))
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
    context.visible.difference_update(here)


def _broken(rule: str, wrong: str, demand: str, context: Context, binding: Binding | None) -> IRError:
    span: Span | None = binding.span if binding else context.function.span
    where = f" in '{one_line(binding)}'" if binding else ""
    at = f" (at {span})" if span else ""
    return IRError(f"[verify] {rule}: {wrong}; {demand}; look{where} of @{context.name}{at}")


# Helpers of the rules


def _undefined(atoms: Iterator[Atom], context: Context) -> Iterator[str]:
    for atom in atoms:
        if isinstance(atom, Var) and atom not in context.visible:
            yield f"%{atom.name or '?'} is read but not bound here"


def _global(atom: GlobalVar, module: Module) -> Iterator[str]:
    if atom.name not in module:
        yield f"@{atom.name} is no function of the module"
    elif module[atom.name].type != atom.type:
        yield f"@{atom.name} is named with type {atom.type!r}, it has {module[atom.name].type!r}"


def _constant(constant: Constant) -> Iterator[str]:
    value = constant.value if hasattr(constant.value, "dtype") else to_array(constant.value)
    shape, dtype = tuple(value.shape), canonical(value.dtype)
    if shape != constant.type.shape or dtype != constant.type.dtype:
        yield f"a constant holds {dtype} of shape {shape}, its type is {constant.type!r}"


def _has_arity(call: Call) -> bool:
    return isinstance(call.op, (Var, GlobalVar)) or len(call.args) == len(call.op.schema.args)


def _inferred(value: Expr) -> Any:
    if not isinstance(value, Call):
        return value.type
    if isinstance(value.op, (Var, GlobalVar)):
        return applied_type(value.op, value.args)
    return value.op.infer(arg_types(value.args))


def _is_index(value: Any, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size


def _blocks_in_scope(function: Function) -> Iterator[tuple[Block, set[Var]]]:
    """Every block with the variables that its result may name."""

    def visit(block: Block, visible: set[Var]) -> Iterator[tuple[Block, set[Var]]]:
        seen = set(visible)
        for binding in block.bindings:
            params = binding.value.params if isinstance(binding.value, Function) else ()
            own = {binding.var, *params} if isinstance(binding.value, Function) else set[Var]()
            for inner in nested_blocks(binding.value):
                yield from visit(inner, seen | own)
            seen.add(binding.var)
        yield block, seen

    yield from visit(function.body, set(function.params))
