"""The Python part of a compiled call: collect raw tensors, run the machine, wrap the results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from meta import tracing
from meta.backend.memory.constants import hold
from meta.backend.tvm import adapter
from meta.backend.tvm.devices import tvm_device
from meta.device import CPU, Device
from meta.dim import SymDim, evaluate
from meta.eager.ndarray import NDArray
from meta.ir.analysis import result_sources
from meta.ir.expr import MUTATES, FunctionExpr
from meta.ir.type import TensorType, tensor_type
from meta.parts import Writes, shared_writes
from meta.random.generator import default_generator
from meta.tracing.program import check_inputs
from meta.tree import Tree, flatten
from meta.vm.lower.calls import entered
from meta.vm.lower.python_errors import reraise
from meta.vm.overlaps import Check, overlap_check

Runner = Callable[[Sequence[NDArray]], Any]
"""Takes the input arrays in order, returns what the program returns."""
Link = Callable[[Sequence[NDArray], Sequence[NDArray]], None]
"""Takes the inputs and the results of a call."""
Shared = Sequence[tuple[int, int | None, int]]
"""(result, parameter or None, earlier result) of the same memory."""


_PLAIN, _POOLED = 1, 2  # allocators; the pooled one keeps freed memory for the next call of the same sizes


class HasMain(Protocol):
    """A machine or a recorded graph: the compiled function "main" on raw tensors."""

    @property
    def main(self) -> Callable[..., Any]: ...


class Machine(threading.local):
    """The virtual machine of an executable: one for each thread, because a machine has one stack.

    static: all its sizes are known. The pool of the CPU would grow with every other size.
    calls_python: whether the program calls functions in Python (see `calls`)."""

    def __init__(self, executable: Any, device: Device, *, static: bool, calls_python: bool = False) -> None:
        self.module = executable["vm_load_executable"]()
        devices = dict.fromkeys([tvm_device(device), tvm_device(CPU)])  # it computes sizes on the CPU
        allocator = _POOLED if static or device is not CPU else _PLAIN
        config = [x for d in devices for x in (d.dlpack_device_type(), d.index, allocator)]
        self.module["vm_initialization"](*config)
        main: Callable[..., Any] = self.module["main"]
        self.main = entered(self.module, main) if calls_python else main


def collector(
    state: Sequence[NDArray], constants: Sequence[Any], keys: Callable[[], list[Any]] | None
) -> Callable[..., list[Any]]:
    """inputs -> raw tensors in the order of the parameters of "main": inputs, state, random keys, constants.

    keys: draws the raw tensors of the random keys, None if there are none."""
    fixed = list(constants)
    state_arrays = list(state)
    if keys is None and not state_arrays and not fixed:
        return lambda inputs: [x._data for x in inputs]
    if keys is None:
        return lambda inputs: [*[x._data for x in inputs], *[x._data for x in state_arrays], *fixed]
    return lambda inputs: [*[x._data for x in inputs], *[x._data for x in state_arrays], *keys(), *fixed]


def wrapper(types: Sequence[TensorType]) -> Callable[[Any], list[NDArray]]:
    """The machine's results -> arrays of these types (symbolic sizes are read off the result)."""
    if not types:
        return lambda result: []
    if len(types) == 1:
        only = types[0]
        if only.is_static:
            return lambda result: [NDArray(result, only)]
        return lambda result: [NDArray(result, _actual(only, result))]
    unpack = unpacker(len(types))
    if all(t.is_static for t in types):
        return lambda result: [NDArray(x, t) for x, t in zip(unpack(result), types, strict=True)]
    return lambda result: [NDArray(x, _actual(t, x)) for x, t in zip(unpack(result), types, strict=True)]


def unpacker(count: int) -> Callable[[Any], list[Any]]:
    """The value that a machine returns for `count` results, more than one -> a list of them."""
    item, positions = adapter.array_item, range(count)
    return lambda result: list(result) if type(result) in (list, tuple) else [item(result, i) for i in positions]


def _actual(kind: TensorType, data: Any) -> TensorType:
    return tensor_type(tuple(map(int, data.shape[: kind.ndim])), kind.dtype, kind.device)


def builder(tree: Tree) -> Callable[[list[Any]], Any]:
    """Leaves -> the nest that the program returns."""
    if tree.kind == "leaf":
        return lambda leaves: leaves[0]
    if tree.kind in ("tuple", "list") and all(child.kind == "leaf" for child in tree.children):
        return tuple if tree.kind == "tuple" else list
    return lambda leaves: tree.build(iter(leaves))


def count_write(x: NDArray) -> None:
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
    """The call of a program.

    outputs: the types of what the machine returns.  mutates: flat index of a result -> parameter.
    whole: whether all state is among the inputs, as in an IR Module.  shared: see `shared_results`."""
    state = [x for _, x in record.state]
    draws = [(d.generator or default_generator, d.count) for d in record.random]
    keys = (lambda: [generator.draw(count=n)._data for generator, n in draws]) if draws else None
    arrays = [c._data for c in constants if c.device is CPU]
    collect = collector(state, [c._data for c in constants], keys)
    hold(arrays, collect)
    wrap, build = wrapper(outputs), builder(record.result)
    check = overlap_check([*record.inputs, *[name for name, _ in record.state]], state, frozenset(mutates.values()))
    link = linker(shared, state, len(record.inputs))
    if whole and mutates:
        return module_runner(machine, collect, wrap, build, mutates, check)
    first = len(record.inputs)
    written = [state[i - first] for i in mutates.values() if i >= first]
    inputs_written = [i for i in mutates.values() if i < first]
    run = runner(machine, collect, wrap, build, written, inputs_written, check, link)
    sized = with_numbers(record)
    return run if sized is None else (lambda inputs: sized(inputs, run(inputs)))


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


def with_numbers(record: tracing.Record) -> Callable[[Sequence[NDArray], Any], Any] | None:
    """(inputs, what a call returns) -> the same with numbers in place of symbolic sizes; None if it has none."""
    if not any(isinstance(value, SymDim) for value in record.result.statics()):
        return None
    types = [p.type for p in record.main.params[: len(record.inputs)]]

    def sized(inputs: Sequence[NDArray], result: Any) -> Any:
        sizes, tree = flatten(result, SymDim)
        values = check_inputs("vm", record.inputs, types, inputs)
        return tree.build(evaluate(size, values) for _, size in sizes)

    return sized


def runner(
    machine: HasMain,
    collect: Callable[[Sequence[NDArray]], list[Any]],
    wrap: Callable[[Any], list[NDArray]],
    build: Callable[[list[Any]], Any],
    written: Sequence[NDArray] = (),
    inputs_written: Sequence[int] = (),
    check: Check | None = None,
    link: Link | None = None,
) -> Runner:
    """The function that runs a program: collect, run, wrap, build.

    written, inputs_written: the arrays of the state, and the positions of inputs, that the program overwrites.
    check: of the inputs, if it overwrites anything.  link: see `linker`."""

    def plain(inputs: Sequence[NDArray]) -> Any:
        try:
            result = machine.main(*collect(inputs))
        except Exception as error:  # noqa: BLE001  # what Python functions of the program raise
            reraise(error)
        return build(wrap(result))

    def checked(inputs: Sequence[NDArray]) -> Any:
        if check is not None:
            check(inputs)
        try:
            result = machine.main(*collect(inputs))
        except Exception as error:  # noqa: BLE001
            reraise(error)
        for x in written:
            count_write(x)
        for i in inputs_written:
            count_write(inputs[i])
        leaves = wrap(result)
        if link is not None:
            link(inputs, leaves)
        return build(leaves)

    return plain if check is None and link is None else checked


def linker(shared: Shared, state: Sequence[NDArray], first: int) -> Link | None:
    """(inputs, results) -> nothing, after results over the memory of another array count its writes; None if there are
    none. first: the position of the state among the parameters."""
    if not shared:
        return None

    def link(inputs: Sequence[NDArray], results: Sequence[NDArray]) -> None:
        for result, parameter, other in shared:
            if parameter is None:
                base = results[other]
            else:
                base = inputs[parameter] if parameter < first else state[parameter - first]
            results[result]._version = shared_writes(base)

    return link


def module_runner(
    machine: HasMain,
    collect: Callable[[Sequence[NDArray]], list[Any]],
    wrap: Callable[[Any], list[NDArray]],
    build: Callable[[list[Any]], Any],
    mutates: Mapping[int, int],
    check: Check | None,
) -> Runner:
    """For programs that overwrite arrays, all of which are inputs: a result that replaces an input is that input."""
    assert check is not None

    def run(inputs: Sequence[NDArray]) -> Any:
        check(inputs)
        try:
            outputs = wrap(machine.main(*collect(inputs)))
        except Exception as error:  # noqa: BLE001
            reraise(error)
        for i in mutates.values():
            count_write(inputs[i])
        rest = iter(outputs)
        total = len(outputs) + len(mutates)
        return build([inputs[mutates[i]] if i in mutates else next(rest) for i in range(total)])

    return run
