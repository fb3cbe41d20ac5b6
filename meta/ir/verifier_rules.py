"""The rules of well-formed IR: small functions that yield what is wrong with a binding, a block or a function.

`verifier` has the tables of them and runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, cast

from meta import dim
from meta.dtype import canonical
from meta.errors import MetaError
from meta.ir.builder import Module, applied_type
from meta.ir.expr import (
    MUTATES,
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Expr,
    FunctionExpr,
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
from meta.ir.printer import attr_text, to_array
from meta.ir.type import TensorType, Type, leaf_types, tensor_type
from meta.records import mutable


@mutable
class RuleContext:
    """The place of a binding: its function, the variables in scope, and all variables bound so far."""

    module: Module | None
    name: str
    function: FunctionExpr
    visible: set[Var] = field(default_factory=set[Var])
    bound: set[Var] = field(default_factory=set[Var])


BindingRule = Callable[[Binding, RuleContext], Iterator[str]]
BlockRule = Callable[[Block, RuleContext], Iterator[str]]
FunctionRule = Callable[[RuleContext], Iterator[str]]


# Rules on one binding


def atoms_only(binding: Binding, _: RuleContext) -> Iterator[str]:
    value = binding.value
    if not isinstance(value, (Call, Tuple, TupleGetItem, If, FunctionExpr)):
        yield f"a {type(value).__name__} is bound; values are calls, tuples, fields, conditionals and functions"
        return
    for operand in operands(value):
        if not is_atom(operand):
            yield f"an operand is a {type(operand).__name__}"
    if isinstance(value, Call):
        atoms = value.args if value.callee is not None else [x for a in value.args if is_atom_list(a) for x in a]
        yield from (f"an argument is {x!r}" for x in atoms if not is_atom(x))


def defined_before_use(binding: Binding, context: RuleContext) -> Iterator[str]:
    yield from _undefined(operands(binding.value), context)


def bound_once(binding: Binding, context: RuleContext) -> Iterator[str]:
    params = binding.value.params if isinstance(binding.value, FunctionExpr) else ()
    for var in (binding.var, *params):
        if var in context.bound:
            yield f"%{var.name} is bound a second time"


def globals_exist(binding: Binding, context: RuleContext) -> Iterator[str]:
    if context.module is None:
        return
    for atom in operands(binding.value):
        if isinstance(atom, GlobalVar):
            yield from _global(atom, context.module)


def arity(binding: Binding, _: RuleContext) -> Iterator[str]:
    call = binding.value
    if isinstance(call, Call) and not isinstance(call.op, (Var, GlobalVar)) and not _has_arity(call):
        yield f"{len(call.args)} arguments for {call.op.schema!r}"


def arguments_normal(binding: Binding, _: RuleContext) -> Iterator[str]:
    call = binding.value
    if not isinstance(call, Call) or isinstance(call.op, (Var, GlobalVar)) or not _has_arity(call):
        return
    for arg, value in zip(call.op.schema.args, call.args, strict=True):
        try:
            normal = arg.normalize(call.op.name, value)
        except MetaError as error:
            yield error.summary
            continue
        if not is_atom(value) and not is_atom_list(value) and attr_text(normal) != attr_text(value):
            yield f"argument '{arg.name}' is {value!r}, its normal form is {normal!r}"


def type_agrees(binding: Binding, context: RuleContext) -> Iterator[str]:
    try:
        kind = _inferred(binding.value)
    except MetaError as error:
        yield f"it cannot be typed: {error.summary}"
        return
    for what, declared in (("value", binding.value.type), ("variable", binding.var.type)):
        if declared != kind and not _differs_in_new_sizes(declared, kind, binding, context):
            yield f"the {what} has type {declared!r}, inferred is {kind!r}"


def branches_agree(binding: Binding, _: RuleContext) -> Iterator[str]:
    value = binding.value
    if not isinstance(value, If):
        return
    if value.then.type != value.orelse.type:
        yield f"the branches return {value.then.type!r} and {value.orelse.type!r}"
    kind = value.cond.type
    if not isinstance(kind, TensorType) or kind is not tensor_type((), "bool", kind.device):
        yield f"the condition has type {kind!r}, not a 0-d bool tensor"


def constants_fit(binding: Binding, _: RuleContext) -> Iterator[str]:
    for atom in operands(binding.value):
        if isinstance(atom, Constant):
            yield from _constant(atom)


# Rules on one block, when all its bindings have been seen


def results_bound(block: Block, context: RuleContext) -> Iterator[str]:
    for atom in block.results:
        if not is_atom(atom):
            yield f"a result is a {type(atom).__name__}"
    yield from _undefined(block.results, context)


def results_exist(block: Block, context: RuleContext) -> Iterator[str]:
    for atom in block.results:
        if isinstance(atom, GlobalVar) and context.module is not None:
            yield from _global(atom, context.module)
        if isinstance(atom, Constant):
            yield from _constant(atom)


# Rules on a whole function of the module


def parameters_distinct(context: RuleContext) -> Iterator[str]:
    if len(set(context.function.params)) != len(context.function.params):
        yield "a variable is a parameter twice"


def mutations_fit(context: RuleContext) -> Iterator[str]:
    function = context.function
    attribute: Any = function.attrs.get(MUTATES, {})
    if not isinstance(attribute, Mapping):
        yield f"'{MUTATES}' is a {type(attribute).__name__}, not a mapping of results to parameters"
        return
    mutates = cast("Mapping[Any, Any]", attribute)
    results = [atom.type for atom in function.body.results]
    params = [param.type for param in function.params]
    for result, param in mutates.items():
        if not _is_index(result, len(results)) or not _is_index(param, len(params)):
            yield f"'{MUTATES}' maps result {result} to parameter {param}; there is no such pair"
        elif results[result] != params[param]:
            yield f"'{MUTATES}' maps a result {results[result]!r} to a parameter {params[param]!r}"
    if len(set(mutates.values())) != len(mutates):
        yield f"'{MUTATES}' names a parameter twice"


# Helpers of the rules


def _undefined(atoms: Iterable[Atom], context: RuleContext) -> Iterator[str]:
    for atom in atoms:
        if isinstance(atom, Var) and atom not in context.visible:
            yield f"%{atom.name or '?'} is read but not bound here"


def _global(atom: GlobalVar, module: Module) -> Iterator[str]:
    if atom.name not in module:
        yield f"@{atom.name} is not a function of the module"
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


def _differs_in_new_sizes(declared: Type, inferred: Type, binding: Binding, context: RuleContext) -> bool:
    """Whether two types differ only in the names of sizes that the binding introduces, which depend on values: each
    inference names them anew. No variable before may have a size of that name."""
    pairs = list(zip(leaf_types(declared), leaf_types(inferred), strict=False))
    same_form = len(leaf_types(declared)) == len(leaf_types(inferred)) == len(pairs)
    tensors = [(a, b) for a, b in pairs if isinstance(a, TensorType) and isinstance(b, TensorType)]
    if not same_form or len(tensors) != len(pairs) or any(a.ndim != b.ndim for a, b in tensors):
        return False
    before = _size_names(var.type for var in context.bound)
    renamed: dict[str, str] = {}
    for a, b in tensors:
        if a.with_shape(b.shape) is not b:
            return False
        for size, new in zip(a.shape, b.shape, strict=True):
            if size == new:
                continue
            names = [d.name for d in (size, new) if isinstance(d, dim.SymDim) and d.name and d.name not in before]
            if len(names) != 2 or renamed.setdefault(names[1], names[0]) != names[0]:
                return False
    return len(set(renamed.values())) == len(renamed)


def _size_names(types: Iterable[Type]) -> set[str]:
    """The names of the symbolic sizes in types."""
    tensors = (leaf for kind in types for leaf in leaf_types(kind) if isinstance(leaf, TensorType))
    return {name for t in tensors for size in t.shape for name in dim.names(size)}


def _is_index(value: Any, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size
