"""How a saved program is called: its arguments, state, random keys and results, as JSON and IR text."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from meta import errors, tracing
from meta.backend.tvm import adapter as tvm
from meta.device import Device
from meta.eager.gradient_graph import set_requires_grad
from meta.eager.ndarray import NDArray
from meta.errors import FileError, MetaError, NotSupportedError
from meta.ir.builder import Module
from meta.ir.expr import MUTATES, Call, FunctionExpr
from meta.ir.lexer import Cursor
from meta.ir.literal_parser import parse_value
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.ir.type import TensorType, TupleType
from meta.limits import MAX_DEPTH
from meta.op.user.namespaces import SEPARATOR
from meta.random.generator import Generator
from meta.tracing.emitter import Draws
from meta.tracing.open_sizes import SizeChecks
from meta.tracing.state import LeftGradient
from meta.tree import Tree, flatten
from meta.vm.build.executables import Loaded
from meta.vm.lower.calls import Calls, LoopCall, loops_of
from meta.vm.lower.calls import register as register_loops
from meta.vm.lower.choose import Source, output_types, register_kernels
from meta.vm.program import Program
from meta.vm.runner import Machine, Runner, finisher, flat_tree, program_runner
from meta.vm.saved.kernels import call_function, check_found_again, functions_of, parsed_functions, signature_function

_RESULTS: Final = "results"
_PLAIN: Final = (bool, int, float, str, type(None))
_KINDS: Final = ("leaf", "static", "tuple", "list", "dict")
"""The kinds of nests that JSON holds: it does not know classes."""
_ABSENT: Final = inspect.Parameter.empty


@dataclass(slots=True)
class Tables:
    """The state that the programs of a file share: arrays of the state by name, and generators."""

    names: dict[int, str] = field(default_factory=dict[int, str])
    state: dict[str, NDArray] = field(default_factory=dict[str, NDArray])
    generators: list[Generator] = field(default_factory=list[Generator])

    def name_of(self, name: str, array: NDArray) -> str:
        """The name of an array of the state. Arrays of different programs may have had the same one."""
        if id(array) not in self.names:
            unique = name
            while unique in self.state:
                unique += "'"
            self.names[id(array)] = unique
            self.state[unique] = array
        return self.names[id(array)]

    def index_of(self, generator: Generator | None) -> int | None:
        """The index of a generator, None for the default one."""
        if generator is None:
            return None
        positions = [i for i, each in enumerate(self.generators) if each is generator]
        if not positions:
            self.generators.append(generator)
        return positions[0] if positions else len(self.generators) - 1


def encode(arguments: Tree, program: Program, tables: Tables) -> dict[str, Any]:
    """The JSON of a program. Raises NotSupportedError for what cannot be saved."""
    source, traced = program.source, program.traced
    assert traced is not None
    outputs = cast("tuple[TensorType, ...]", output_types(source))
    functions, loops = functions_of(source), loops_of(source.module)
    check_found_again(source, functions)
    module = {
        "main": signature_function(tuple(p.type for p in source.main.params), "main"),
        _RESULTS: signature_function(outputs, _RESULTS),
        **{f"call{i}": function for i, function in enumerate(functions.values())},
        **{f"loop{i}": signature_function((*x.elements, *x.stacks), f"loop{i}") for i, x in enumerate(loops)},
    }
    return {
        "arguments": _encode_tree(arguments, "a call"),
        "signature": _encode_signature(traced.signature),
        "inputs": traced.inputs,
        "types": to_text(Module(module), spans=False),
        "functions": list(functions),
        "state": [tables.name_of(name, x) for name, x in traced.state],
        "random": [[tables.index_of(draws.generator), draws.count] for draws in traced.random],
        "result": _encode_tree(traced.result, "the result"),
        "flat": program.record.result.count() if traced.left else None,
        "mutates": sorted(source.mutates.items()),
        "left": [
            [t if isinstance(t := g.target, int) else tables.name_of("array", t), index, g.assigned]
            for g, index in zip(traced.left, program.left, strict=True)
        ],
        "tracked": program.tracked,
        **program.loaded.facts(),
        "loops": [{n: getattr(x, n) for n in _COUNTS} | {"scanned": len(x.elements)} for x in loops],
        "steps": sorted(source.calls.steps),
        "checked": sorted(source.calls.checked),
        "checks": _encode_checks(program.checks),
    }


def decode(
    facts: Mapping[str, Any], tables: Tables, device: Device, *, whole: bool
) -> tuple[Tree, Callable[[Any, tuple[NDArray, ...]], Program]]:
    """The nest of the arguments of a program, and a function from its library and constants to the program.

    whole: compiled from an IR Module. Raises FileError for other JSON, and where functions that it calls are not there.
    """
    names: list[str] = facts["functions"]
    module, choices = parsed_functions(facts["types"], set(names), device)
    types = [p.type for p in module.main.params]
    outputs = module[_RESULTS].body.type
    if not isinstance(outputs, TupleType) or not all(isinstance(t, TensorType) for t in (*types, *outputs.fields)):
        raise _malformed(facts["types"])
    inputs, state = tuple(facts["inputs"]), tuple((name, tables.state[name]) for name in facts["state"])
    targets = [(t if isinstance(t, int) else tables.state[t], bool(assigned)) for t, _, assigned in facts["left"]]
    left = tuple(LeftGradient(target, None, assigned) for target, assigned in targets)
    indices = tuple(index for _, index, _ in facts["left"])
    keys = module.main.params[len(inputs) + len(state) :]
    draws = tuple(
        Draws(None if i is None else tables.generators[i], var, count)
        for (i, count), var in zip(facts["random"], keys, strict=False)
    )
    result = _decode_tree(facts["result"])
    mutates = {int(i): int(p) for i, p in facts["mutates"]}
    module = module.with_function("main", replace(module.main, attrs={MUTATES: mutates} if mutates else {}))
    signature = _decode_signature(facts["signature"])
    record = tracing.Record(module, inputs, signature, state, draws, result, 0, left=left)
    flat = replace(record, result=result if facts["flat"] is None else flat_tree(facts["flat"]))
    calls = Calls(frozenset(facts["steps"]), frozenset(facts["checked"]))
    source = Source(module, (), choices, mutates, device, calls)
    loops = [_decode_loop(x, module[f"loop{i}"]) for i, x in enumerate(facts["loops"])]
    tracked: list[bool] | None = facts["tracked"]
    checks = _decode_checks(facts["checks"])

    plan = Loaded.from_facts(None, facts, "file")

    def program(library: Any, constants: tuple[NDArray, ...]) -> Program:
        if source.calls_python:
            tvm.load()  # its tensors have the methods that these functions call
        register_kernels(source)
        register_loops(loops)
        machine: Any = Machine(library, source)
        if plan.destinations is not None:
            from meta.vm.cuda_graph import graph_call

            machine = graph_call(machine, record, source, plan.destinations)
        types = cast("tuple[TensorType, ...]", outputs.fields)
        plain = program_runner(machine, flat, constants, types, source.mutates, whole=whole)
        finish = finisher(record, indices)
        run: Runner = (lambda inputs: finish(inputs, plain(inputs))) if left else plain
        if tracked is not None:
            for (_, x), required in zip(state, tracked[len(inputs) :], strict=True):
                set_requires_grad(x, required)
        loaded = replace(plan, module=library)
        return Program(flat, module, source, loaded, constants, machine, run, tracked, record, checks=checks)

    return _decode_tree(facts["arguments"]), program


_COUNTS = ("step", "carried", "captured", "length", "reverse")


def _decode_loop(facts: Mapping[str, Any], types: FunctionExpr) -> LoopCall:
    kinds = tuple(p.type for p in types.params if isinstance(p.type, TensorType))
    form, scanned = {name: facts[name] for name in _COUNTS}, facts["scanned"]
    if not 0 <= scanned <= len(kinds) == len(types.params):
        raise _malformed(facts)
    return LoopCall(**form, elements=kinds[:scanned], stacks=kinds[scanned:])


# --- checks of open sizes ---------------------------------------------------------------------------------------------


def _encode_checks(checks: SizeChecks | None) -> dict[str, Any]:
    """The JSON of checks: the text of a module that has a function of the operands of each call, and the sizes that are
    0 or more, each with the class and the parts of the error of others. Operators of other packages are left out."""
    if checks is None:
        return {"calls": "", "conditions": []}
    calls = [call for call in checks.calls if SEPARATOR not in call.op.name]
    conditions = [
        [str(size), type(error).__name__, error.subject, error.problem, error.expected, error.remedy]
        for size, error in checks.conditions
    ]
    functions = {f"check{i}": call_function(call, None, f"check{i}") for i, call in enumerate(calls)}
    module = Module({"main": signature_function((), "main"), **functions})
    return {"calls": to_text(module, spans=False), "conditions": conditions}


def _decode_checks(facts: Mapping[str, Any]) -> SizeChecks | None:
    """The checks of their JSON. Raises FileError or IRError for other JSON."""
    if not facts["calls"]:
        return None
    calls = [b.value for f in parse(facts["calls"]).functions.values() for b in f.body.bindings]
    conditions = tuple(_condition(*each) for each in facts["conditions"])
    return SizeChecks(tuple(call for call in calls if isinstance(call, Call)), conditions)


def _condition(size: str, kind: str, *parts: str) -> tuple[Any, MetaError]:
    error = getattr(errors, kind, None)
    if not (isinstance(error, type) and issubclass(error, MetaError)):
        raise FileError("load", f"a condition has an error of class {kind[:80]!r}", "a class of meta.errors")
    return parse_value(Cursor(size, "")), error(*parts)


# --- signatures and nests ---------------------------------------------------------------------------------------------


def _encode_tree(tree: Tree, what: str, depth: int = 0) -> list[Any]:
    """JSON of a tree. Raises NotSupportedError, naming `what`, for values and containers that JSON cannot hold."""
    if depth > MAX_DEPTH:
        raise _unsaved(f"{what} nests deeper than {MAX_DEPTH}", "small nests")
    if tree.kind not in _KINDS:
        raise _unsaved(f"{what} has a {tree.value.__name__}", "tuples, lists and dicts")
    keys = [_encode_plain(key, what) for key in tree.keys]
    children = [_encode_tree(child, what, depth + 1) for child in tree.children]
    return [tree.kind, children, keys, _encode_plain(tree.value, what)]


def _decode_tree(facts: Any, depth: int = 0) -> Tree:
    """The tree of its JSON. Raises FileError, TypeError or ValueError for other JSON."""
    kind, children, keys, value = cast("list[Any]", facts)
    if kind not in _KINDS or depth > MAX_DEPTH or len(keys) != (len(children) if kind == "dict" else 0):
        raise _malformed(facts)
    nests = tuple([_decode_tree(child, depth + 1) for child in children])
    return Tree(kind, nests, tuple(map(_decode_plain, keys)), _decode_plain(value))


def _encode_plain(value: Any, what: str) -> Any:
    """JSON of a plain value. Raises NotSupportedError, naming `what`, for others."""
    if not isinstance(value, _PLAIN):
        raise _unsaved(f"{what} has a {type(value).__name__}", "arrays, numbers, strings and None")
    return {"float": str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _decode_plain(value: Any) -> Any:
    number: object = cast("dict[str, object]", value).get("float") if isinstance(value, dict) else None
    if number in ("nan", "inf", "-inf"):
        return float(str(number))
    if not isinstance(value, _PLAIN):
        raise _malformed(value)
    return value


def _encode_signature(signature: inspect.Signature) -> list[Any]:
    """JSON of the parameters. A default that JSON cannot hold is left out: calls have to pass the argument."""
    out: list[Any] = []
    for p in signature.parameters.values():
        default: list[Any] = []
        if p.default is not _ABSENT:
            with contextlib.suppress(NotSupportedError):
                default = [_encode_tree(flatten(p.default, ())[1], p.name)]
        out.append([p.name, int(p.kind), default])
    return out


def _decode_signature(value: Any) -> inspect.Signature:
    """The signature of its JSON. Raises FileError for other JSON."""
    try:
        parameters = [
            inspect.Parameter(
                name, inspect._ParameterKind(kind), default=_decode_tree(d[0]).build(iter(())) if d else _ABSENT
            )
            for name, kind, d in value
        ]
        return inspect.Signature(parameters)
    except (TypeError, ValueError, IndexError, KeyError, StopIteration) as error:
        raise _malformed(value) from error


def _malformed(value: Any) -> FileError:
    """The error for a description that `Executor.save` does not write."""
    return FileError("load", f"the program is described by {value!r:.80}", "a file that Executor.save wrote")


def _unsaved(problem: str, expected: str) -> NotSupportedError:
    return NotSupportedError("save", problem, expected, "trace a function that takes and returns these")
