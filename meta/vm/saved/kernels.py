"""The functions that a program calls beside its own kernels: functions of libraries (torch, cuDNN, dialects of users)
and open calls. A file has the calls as IR text with the dialects chosen, from which the functions are found again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from meta.device import Device
from meta.errors import FileError, MetaError, NotSupportedError
from meta.ir.builder import Module
from meta.ir.expr import Binding, Block, Call, Constant, FunctionExpr, Tuple, Var
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.ir.type import Type
from meta.ir.visitor import walk
from meta.op.dispatch import with_dialect
from meta.passes.fold_views import StridedOp, fold_views
from meta.tree import leaves_of, with_leaves
from meta.vm.lower.calls import function_name
from meta.vm.lower.choose import Choices, Source, choose_all, packed_name


def functions_of(source: Source) -> dict[str, FunctionExpr]:
    """One function with one call for each function that the program calls, by the names that it calls them by."""
    choices = source.choices
    functions = {function_name(call): call_function(call, call.dialect) for call in choices.open}
    for call, choice in choices.by_call.items():
        if not choice.compiled and (name := packed_name(choice)) not in functions:
            functions[name] = call_function(call, choice.implementation.dialect.name)
    return functions


def check_found_again(source: Source, functions: Mapping[str, FunctionExpr]) -> None:
    """Raise NotSupportedError, with the operator, for a function that another process would not find."""
    for name, choice in source.choices.packed().items():
        if choice.implementation.generation and not choice.implementation.identity:
            raise _unsaved(choice.implementation.name, "replaced another implementation in this process")
        if name not in functions:
            raise _unsaved(choice.implementation.name, "is called in a way that has no text")
    for name, function in functions.items():
        operator = cast("Call", function.body.bindings[-1].value).op_name
        try:
            parsed = parse(to_text(Module({"main": function}), spans=False))
            names = names_of(_choices(parsed, source.device))
        except MetaError as error:
            raise _unsaved(operator, f"is not found by its name: {error.problem}"[:200]) from error
        if names != {name}:
            raise _unsaved(operator, "is called in a way that has no text")


def names_of(choices: Choices) -> set[str]:
    """The names of the functions that the calls of a module call."""
    return {*map(function_name, choices.open), *choices.packed()}


def parsed_functions(text: str, expected: set[str], device: Device) -> tuple[Module, Choices]:
    """The module of a file's calls, with the dialects that run them here.

    Raises:
        FileError: an operator or a dialect is not there, or is another one than when the program was saved.
    """
    try:
        module = parse(text)
        choices = _choices(module, device)
    except MetaError as error:
        raise FileError(
            "load", f"the program calls functions that are not there: {error.problem}"[:400],
            "the operators and dialects that it was saved with", "import the package that registers them",
        ) from error  # fmt: skip
    missing = sorted(expected - names_of(choices))
    if missing:
        raise FileError(
            "load", f"the program calls {', '.join(missing[:3])}, which is another function here",
            "the operators and dialects that it was saved with",
        )  # fmt: skip
    return module, choices


def _choices(module: Module, device: Device) -> Choices:
    """The choices of calls that name their dialects, which run there even where others would cost less."""
    calls = (b.value for function in module.functions.values() for b in walk(function))
    dialects = {call.dialect for call in calls if isinstance(call, Call) and call.dialect}
    with with_dialect(sorted(dialects)):
        return choose_all(fold_views(module), device)


def call_function(call: Call, dialect: str | None, name: str = "main") -> FunctionExpr:
    """A function of the call's tensors that makes the call."""
    if isinstance(call.op, StridedOp):
        return call.op.by_dialect(dialect, name)
    params: list[Var] = []

    def parameter(leaf: Any) -> Any:
        if not isinstance(leaf, (Var, Constant)):
            return leaf
        params.append(Var(f"x{len(params)}", leaf.type))
        return params[-1]

    args = with_leaves(call.args, [parameter(x) for x in leaves_of(call.args)])
    result = Var("y", call.type)
    body = Block((Binding(result, replace(call, args=args, dialect=dialect, attrs={}, span=None)),), result)
    return FunctionExpr(tuple(params), body, {}, name, None)


def signature_function(params: tuple[Type, ...], name: str) -> FunctionExpr:
    """A function that takes values of these types and returns them."""
    variables = tuple(Var(f"x{i}", kind) for i, kind in enumerate(params))
    return FunctionExpr(variables, Block((), Tuple(variables)), {}, name, None)


def _unsaved(operator: str, problem: str) -> NotSupportedError:
    return NotSupportedError(
        "save", f"{operator} {problem}", "operators and dialects that a package registers when it is imported",
        "or choose another dialect: with meta.with_dialect(...) around compile",
    )  # fmt: skip
