"""Programs on their way to another system: traced, with the arrays of their state as constants or named parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from meta import tracing
from meta.device import CPU
from meta.eager.ndarray import NDArray, with_arrays
from meta.errors import ArgumentError, NotSupportedError
from meta.ir.builder import Module
from meta.ir.expr import MUTATES, Call, Constant, FunctionExpr, Tuple, Var
from meta.ir.type import Type
from meta.ir.visitor import substituted, walk
from meta.passes.cse import cse, dce
from meta.passes.inline_calls import inline_calls
from meta.passes.manager import Pipeline
from meta.passes.place import place
from meta.passes.simplify import drop_stop_gradient, simplify
from meta.tracing.loop_op import LoopOp
from meta.tracing.open_sizes import Dynamic, open_sizes
from meta.tree import Tree
from meta.vm.arguments import module_record, refuse_symbols

_PASSES: Final = (inline_calls, drop_stop_gradient, simplify, cse, simplify, dce)


@dataclass(frozen=True, slots=True, eq=False)
class Outgoing:
    """A program that another system is to run.

    module: on the CPU; "main" takes the inputs, an int64[2] random key for each of `keys`, the arrays that it writes,
        and last the parameters in `params`. It returns its results, then the new values of the arrays that it writes;
        a single tensor where there is nothing else.
    name: of the function or model.  inputs, keys: names of parameters of main, in order.
    params: the values of the last parameters, by name; other state is constants of the program.
    state: the values of the arrays that main writes, by name.
    result: the structure of the results.
    """

    module: Module
    name: str
    inputs: tuple[str, ...]
    keys: tuple[str, ...]
    state: Mapping[str, NDArray]
    params: Mapping[str, NDArray]
    result: Tree

    @property
    def main(self) -> FunctionExpr:
        return self.module.main

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters of main."""
        return (*self.inputs, *self.keys, *self.state, *self.params)

    @property
    def result_types(self) -> tuple[Type, ...]:
        """The types of what main returns."""
        return tuple(atom.type for atom in self.main.body.results)


def outgoing(
    subject: str, what: object, args: Sequence[Any], dynamic: Dynamic | None = None, *, params_as_inputs: bool = False
) -> Outgoing:
    """The program of a Module, or of a call of a Model or of a traced function with `args`.

    subject: the exporting function, as errors name it.  args: example arrays, or TensorTypes; none for a Module.
    dynamic: open sizes, as in `meta.vm.compile`.  params_as_inputs: arrays that the program only reads become
        parameters of main; otherwise constants.
    Raises ArgumentError for something other than a program, and for arguments that do not fit."""
    record = _recorded(subject, what, args, dynamic)
    main = record.main
    count = len(record.inputs)
    state = {var: array for var, (_, array) in zip(main.params[count:], record.state, strict=False)}
    mutates: Mapping[int, int] = main.attrs.get(MUTATES, {})
    written = {main.params[i] for i in mutates.values()}
    names = {v: v.name for v in main.params} | dict(zip(main.params, record.inputs, strict=False))
    written_state = [v for v in main.params if v in state and v in written]
    read = [v for v in main.params if v in state and v not in written]
    keys = [v for v in main.params[count:] if v not in state]
    constants = {} if params_as_inputs else {v: Constant(state[v], state[v].type, v.span) for v in read}
    single = record.result.kind == "leaf" and not mutates
    order = (*main.params[:count], *keys, *written_state, *(read if params_as_inputs else ()))
    module = Pipeline(_PASSES)(record.module.with_function("main", _reordered(main, order, constants, single=single)))
    names_in_order = _distinct([names[v] for v in order])
    renamed = dict(zip(order, names_in_order, strict=True))
    return Outgoing(
        place(CPU)(module),
        str(getattr(what, "__name__", type(what).__name__)),
        tuple(names_in_order[:count]),
        tuple(renamed[v] for v in keys),
        {renamed[v]: state[v] for v in written_state},
        {renamed[v]: state[v] for v in read} if params_as_inputs else {},
        record.result,
    )


def refuse_loops(subject: str, module: Module) -> None:
    """Raise NotSupportedError for the loops of a program (`meta.scan`, `meta.while_loop`)."""
    loops = [
        binding.value.op.name
        for function in module.functions.values()
        for binding in walk(function)
        if isinstance(binding.value, Call) and isinstance(binding.value.op, LoopOp)
    ]
    if loops:
        raise NotSupportedError(
            subject,
            f"the program has {len(loops)} loops ({', '.join(sorted(set(loops)))})",
            "programs without meta.scan and meta.while_loop",
            "write the loop in Python, which unrolls it, for a fixed number of steps",
        )


def _recorded(subject: str, what: object, args: Sequence[Any], dynamic: Dynamic | None) -> tracing.Record:
    if isinstance(what, Module):
        if args:
            raise ArgumentError(subject, f"{len(args)} example inputs are given for a Module", "none: it has types")
        open_sizes(dynamic, is_module=True)
        return module_record(what)()
    record: Callable[..., tracing.Record] | None = getattr(what, "record", None)
    if record is None or isinstance(what, type):
        problem = f"the class {what.__name__}" if isinstance(what, type) else f"a {type(what).__name__}"
        remedy = "trace it: meta.trace(function)" if callable(what) and not isinstance(what, type) else ""
        raise ArgumentError(
            subject, f"got {problem}", "a Model, a traced function or a Module", remedy or "pass an instance of a Model"
        )
    sizes = open_sizes(dynamic, is_module=False)
    arrays = with_arrays(tuple(args), CPU)
    refuse_symbols(arrays, {})
    with tracing.input_types(sizes and sizes.type_of):
        recorded = record(*arrays)
    if sizes:
        sizes.check_names(recorded.inputs)
    return recorded


def _reordered(
    main: FunctionExpr, order: Sequence[Var], constants: Mapping[Var, Constant], *, single: bool
) -> FunctionExpr:
    """`main` with its parameters in another order, and constants in place of some. single: it returns one tensor."""
    mutates = {result: order.index(main.params[i]) for result, i in main.attrs.get(MUTATES, {}).items()}
    body = substituted(replace(main, params=()), constants).body if constants else main.body
    if single and isinstance(body.result, Tuple):
        body = replace(body, result=body.result.fields[0])
    return replace(main, params=tuple(order), body=body, attrs={MUTATES: mutates} if mutates else {})


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number after those that an earlier parameter has."""
    distinct: dict[str, None] = {}
    for name in names:
        unique, number = name, 1
        while unique in distinct:
            number += 1
            unique = f"{name}_{number}"
        distinct[unique] = None
    return list(distinct)
