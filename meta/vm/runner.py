"""The Python part of a compiled call: collect raw tensors, run the machine, wrap the results, and leave gradients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Protocol

from meta import tracing
from meta.backend.memory.constants import hold
from meta.backend.python_errors import reraise
from meta.backend.tvm import adapter
from meta.backend.tvm.devices import tvm_device
from meta.device import CPU
from meta.dim import SymDim, evaluate
from meta.dtype import is_inexact
from meta.eager.gradient_graph import accumulate_lock
from meta.eager.ndarray import NDArray, copy_of
from meta.eager.seeds import add_up
from meta.ir.analysis import result_sources
from meta.ir.expr import MUTATES, Block, FunctionExpr, Tuple
from meta.ir.type import TensorType, tensor_type
from meta.modes import GradMode, modes
from meta.parts import Writes, shared_writes
from meta.random.generator import default_generator
from meta.tracing.program import check_inputs
from meta.tree import Tree, flatten
from meta.vm.arguments import overlap_check
from meta.vm.lower.calls import RELEASE, entered
from meta.vm.lower.choose import Source

Runner = Callable[[Sequence[NDArray]], Any]
"""Takes the input arrays in order, returns what the program returns."""
Finish = Callable[[Sequence[NDArray], Sequence[NDArray]], Any]
"""(inputs, all results of a program) -> what the call returns."""
Shared = Sequence[tuple[int, int | None, int]]
"""(result, parameter or None, earlier result) of the same memory."""


_PLAIN, _POOLED = 1, 2  # allocators; the pooled one keeps freed memory for the next call of the same sizes


class HasMain(Protocol):
    """A machine or a recorded graph: the compiled function "main" on raw tensors."""

    @property
    def main(self) -> Callable[..., Any]: ...


class Machine(threading.local):
    """The virtual machine of an executable: one for each thread, because a machine has one stack.

    The pool of the CPU would grow with every other size, so that programs of open sizes do without it."""

    def __init__(self, executable: Any, source: Source) -> None:
        self.module = executable["vm_load_executable"]()
        devices = dict.fromkeys([tvm_device(source.device), tvm_device(CPU)])  # it computes sizes on the CPU
        allocator = _POOLED if source.static or source.device is not CPU else _PLAIN
        config = [x for d in devices for x in (d.dlpack_device_type(), d.index, allocator)]
        self.module["vm_initialization"](*config)
        main: Callable[..., Any] = self.module["main"]
        if self.module.implements_function(RELEASE):
            main = _released(main, self.module[RELEASE])
        self.main = entered(self.module, main) if source.calls_python else main


def _released(main: Callable[..., Any], release: Callable[[], Any]) -> Callable[..., Any]:
    """`main`, whose results belong to the caller alone: where TVM runs bytecode, it refers to what its last call
    returned until the next call."""

    def run(*args: Any) -> Any:
        result = main(*args)
        release()
        return result

    return run


def _raw(inputs: Sequence[NDArray]) -> list[Any]:
    return [x._data for x in inputs]


def _collector(record: tracing.Record, constants: Sequence[NDArray]) -> Callable[..., list[Any]]:
    """inputs -> raw tensors in the order of the parameters of "main": inputs, state, random keys, constants."""
    state, fixed = [x for _, x in record.state], [c._data for c in constants]
    draws = [(d.generator or default_generator, d.count) for d in record.random]
    if not state and not draws and not fixed:
        return _raw

    def collect(inputs: Sequence[NDArray]) -> list[Any]:
        for function in record.before:
            function()
        keys = [generator.draw(count=n)._data for generator, n in draws] if draws else ()
        return [*[x._data for x in inputs], *[x._data for x in state], *keys, *fixed]

    if constants:
        hold([c._data for c in constants if c.device is CPU], collect)
    return collect


def _wrapper(types: Sequence[TensorType]) -> Callable[[Any], list[NDArray]]:
    """The machine's results -> arrays of these types (symbolic sizes are read off the result)."""
    unpack = unpacker(len(types))
    if all(t.is_static for t in types):
        if len(types) == 1:  # a third of the time of what follows
            only = types[0]
            return lambda result: [NDArray(result, only)]
        return lambda result: [NDArray(x, t) for x, t in zip(unpack(result), types, strict=True)]
    return lambda result: [NDArray(x, _actual(t, x)) for x, t in zip(unpack(result), types, strict=True)]


def unpacker(count: int) -> Callable[[Any], list[Any]]:
    """The value that a machine returns for `count` results -> a list of them."""
    if count < 2:
        return lambda result: [result][:count]
    item, positions = adapter.array_item, range(count)
    return lambda result: list(result) if type(result) in (list, tuple) else [item(result, i) for i in positions]


def _actual(kind: TensorType, data: Any) -> TensorType:
    return tensor_type(tuple(map(int, data.shape[: kind.ndim])), kind.dtype, kind.device)


def _builder(record: tracing.Record) -> Finish:
    """(inputs, leaves) -> the nest that the program returns, with numbers in place of symbolic sizes."""
    tree = record.result
    if tree.kind == "leaf":
        return lambda _, leaves: leaves[0]
    if tree.kind in ("tuple", "list") and all(child.kind == "leaf" for child in tree.children):
        kind: type[tuple[Any, ...]] | type[list[Any]] = tuple if tree.kind == "tuple" else list
        return lambda _, leaves: kind(leaves)
    if not any(isinstance(value, SymDim) for value in tree.statics()):
        return lambda _, leaves: tree.build(iter(leaves))
    types = [p.type for p in record.main.params[: len(record.inputs)]]

    def sized(inputs: Sequence[NDArray], leaves: Sequence[NDArray]) -> Any:
        sizes, nest = flatten(tree.build(iter(leaves)), SymDim)
        values = check_inputs("vm", record.inputs, types, inputs)
        return nest.build(evaluate(size, values) for _, size in sizes)

    return sized


def _count_write(x: NDArray) -> None:
    """Count a write in place, so that the tape refuses values of the array that it saved before."""
    version = x._version
    if version is None:
        x._version = Writes((1,))
    else:
        version[0] += 1


def program_runner(
    machine: HasMain, record: tracing.Record, constants: Sequence[NDArray], outputs: Sequence[TensorType],
    mutates: Mapping[int, int], *, whole: bool, shared: Shared = (),
) -> Runner:  # fmt: skip
    """The call of a program: collect, run, wrap, build.

    outputs: the types of what the machine returns.  mutates: flat index of a result -> parameter.
    whole: whether all state is among the inputs, as in an IR Module: a result that replaces an input is that input.
    shared: see `shared_results`. Results over the memory of another array count its writes."""
    state, first = [x for _, x in record.state], len(record.inputs)
    collect, wrap, build = _collector(record, constants), _wrapper(outputs), _builder(record)
    names = [*record.inputs, *(name for name, _ in record.state)]
    check = overlap_check(names, state, frozenset(mutates.values())) if mutates else None
    written = [state[i - first] for i in mutates.values() if i >= first]
    inputs_written = [i for i in mutates.values() if i < first]

    def call(inputs: Sequence[NDArray]) -> list[NDArray]:
        try:
            return wrap(machine.main(*collect(inputs)))
        except Exception as error:  # noqa: BLE001  # what Python functions of the program raise
            reraise(error)

    def run(inputs: Sequence[NDArray]) -> Any:
        if check is not None:
            check(inputs)
        results = call(inputs)
        for x in written:
            _count_write(x)
        for i in inputs_written:
            _count_write(inputs[i])
        for index, parameter, other in shared:
            if parameter is None:
                base = results[other]
            else:
                base = inputs[parameter] if parameter < first else state[parameter - first]
            results[index]._version = shared_writes(base)
        if whole and mutates:
            rest, count = iter(results), len(results) + len(mutates)
            results = [inputs[mutates[i]] if i in mutates else next(rest) for i in range(count)]
        return build(inputs, results)

    return run if mutates or shared else lambda inputs: build(inputs, call(inputs))


def shared_results(main: FunctionExpr) -> Shared:
    """The results of a program that are a parameter or an earlier result, or a view of one, so that a write to one is a
    write to the other. Results that replace parameters are left out, and not counted."""
    written = main.attrs.get(MUTATES, {})
    state = {i for i, p in enumerate(main.params) if not tracing.is_key(p)}
    pairs: list[tuple[int, int | None, int]] = []
    owners: dict[Any, int] = {}
    remaining_sources = [sources for i, sources in enumerate(result_sources(main)) if i not in written]
    for result, sources in enumerate(remaining_sources):
        parameter = next((i for i in sources if i in state), None)
        other = next((owners[source] for source in sources if source in owners), None)
        if parameter is not None or other is not None:
            pairs.append((result, parameter, other or 0))
        owners.update(dict.fromkeys(sources - owners.keys(), result))
    return pairs


# --- gradients -------------------------------------------------------------------------------------------------------


def is_floating(value: Any) -> bool:
    """Whether gradients may flow through a variable or an array."""
    return isinstance(value.type, TensorType) and is_inexact(value.type.dtype)


def recording_runner(plain: Runner, record: tracing.Record, recorder: Callable[[], Runner]) -> Runner:
    """The call of a program: `plain`, or the call that `recorder` makes where an array requires gradients."""
    state, results = [x for _, x in record.state], record.main.body.results[: record.result.count()]
    params = record.main.params[: len(record.inputs) + len(state)]
    ends = record.constant | record.main.attrs.get(MUTATES, {}).keys()
    flows = record.recorded or any(is_floating(y) and i not in ends for i, y in enumerate(results))
    if not flows or not any(map(is_floating, params)):
        return plain
    watched = [x for x in state if is_floating(x)]
    recorded = cache(recorder)

    def run(inputs: Sequence[NDArray]) -> Any:
        if modes.grad_enabled:
            for x in inputs:
                if x._node is not None:
                    return recorded()(inputs)
            for x in watched:
                if x._node is not None:
                    return recorded()(inputs)
        return plain(inputs)

    return run


def with_left_gradients(record: tracing.Record) -> tuple[tracing.Record, tuple[int | None, ...]]:
    """The record of a program that also returns the gradients it leaves, in a flat tuple, and the index of each there
    (None for no gradient)."""
    main = record.main
    count = record.result.count()
    outputs, written = main.body.results[:count], main.body.results[count:]
    values = tuple(dict.fromkeys(g.value for g in record.left if g.value is not None and g.value not in outputs))
    returned = (*outputs, *values)
    mutates = {len(values) + i: parameter for i, parameter in main.attrs.get(MUTATES, {}).items()}
    body = Block(main.body.bindings, Tuple((*returned, *written)))
    module = record.module.with_function("main", replace(main, body=body, attrs={MUTATES: mutates} if mutates else {}))
    indices = tuple(None if g.value is None else returned.index(g.value) for g in record.left)
    return replace(record, module=module, result=flat_tree(len(returned))), indices


def flat_tree(count: int) -> Tree:
    """A tuple of tensors."""
    return Tree("tuple", (Tree("leaf"),) * count)


def finisher(record: tracing.Record, indices: Sequence[int | None]) -> Finish:
    """(inputs, all results of a program) -> what the call returns, with the left gradients put in place.

    indices: positions of the left gradients of `record` among the results."""
    count = record.result.count()
    build = _builder(record)
    state = [x for _, x in record.state]
    targets = [(g.target, index, g.assigned) for g, index in zip(record.left, indices, strict=True)]
    cleared = [target for target, index, _ in targets if index is None]
    filled = [(target, index, assigned) for target, index, assigned in targets if index is not None]

    def finish(inputs: Sequence[NDArray], results: Sequence[NDArray]) -> Any:
        for target in cleared:
            x = inputs[target] if isinstance(target, int) else target
            x._grad = None
        if filled:
            # Each `.grad` has its own memory.
            pointers = {x._data.data_ptr() for x in (*inputs, *state)}
            for target, index, assigned in filled:
                x = inputs[target] if isinstance(target, int) else target
                if x._node is not None:
                    gradient = _own(results[index], pointers)
                    with accumulate_lock, GradMode(False):
                        x._grad = gradient if assigned else add_up(x._grad, gradient)
        return build(inputs, results[:count])

    return finish


def _own(gradient: NDArray, pointers: set[int]) -> NDArray:
    """A gradient, copied if its memory is among the addresses `pointers`; adds its own."""
    pointer = gradient._data.data_ptr()
    if pointer in pointers:
        return copy_of(gradient)
    pointers.add(pointer)
    return gradient
