"""Compiled graphs, as AOTAutograd calls them: with one list of torch tensors and ints, which the call empties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch.fx import GraphModule, Interpreter

from meta.backend.cuda import streams
from meta.backend.memory.allocation import ALIGNMENT
from meta.backend.python_errors import reraise
from meta.device import Device
from meta.dtype import is_complex
from meta.errors import DispatchError, MetaError, NotSupportedError, PositionError
from meta.frontend.torch.dynamo.convert import Converted, convert
from meta.frontend.torch.dynamo.layouts import (
    channel_candidates,
    kept_results,
    last_channels,
    saved_results,
    with_parts,
)
from meta.frontend.torch.dynamo.memory import (
    Layout,
    Order,
    allocator,
    fill,
    symbol_reader,
    symbol_sources,
)
from meta.frontend.torch.dynamo.options import Options, compile_record
from meta.frontend.torch.dynamo.outputs import getter, receiver, returned
from meta.frontend.torch.dynamo.recorded import RecordedCalls
from meta.frontend.torch.dynamo.report import GraphReport
from meta.frontend.torch.dynamo.roles import Passed, roles_of
from meta.frontend.torch.dynamo.shapes import NeedsSizes, NeedsTorch, Sizes, inverse, plain_symbol, symbols_of
from meta.frontend.torch.dynamo.split import dependent_nodes, split_graph
from meta.frontend.torch.errors import IndexRangeError
from meta.ir.type import TensorType, leaf_types
from meta.modes import scoped
from meta.vm.cuda_graph import GraphRecorder
from meta.vm.lower.choose import private_memory
from meta.vm.program import Program

Run = Callable[[list[Any]], list[Any]]
"""A call with the values of the placeholders."""


def compile_graph(
    module: GraphModule, kind: str, options: Options, passed: Passed | None = None, *, is_part: bool = False
) -> tuple[Run, GraphReport]:
    """The call of a graph, and what became of it. kind: "inference", "forward" or "backward".

    is_part: whether the graph is a part of one whose sizes depend on values."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    values = [n.meta["val"] for n in placeholders]
    symbols = sorted(symbols_of(values))
    sources = symbol_sources(values)
    passed = Passed() if passed is None else passed
    builder = _Builder(module, kind, sources, options, passed)
    dependent = () if is_part else dependent_nodes(module)
    if dependent:
        run, report = split_graph(
            module, kind, dependent, lambda part: compile_graph(part, "inference", options, passed, is_part=True)
        )
        options.refuse(kind, report.fallbacks)
        return run, report
    try:
        if any(isinstance(v, torch.Generator) for v in values):
            raise NeedsTorch("it takes a generator of random numbers")
        missing = [s for s in symbols if s not in sources]
        if missing:
            raise NeedsTorch(f"no input has the size {missing[0]}")
        try:
            return builder.build(Sizes(), symbols)
        except NeedsSizes as error:
            if not symbols:
                raise NeedsTorch(str(error)) from error
            return _per_size(builder, symbols, str(error))
    except NeedsTorch as error:
        options.refuse_whole(kind, str(error))
        if kind == "forward":
            for each in (passed.rearranged, passed.kept, passed.parts):
                each.clear()
        count = sum(n.op == "call_function" for n in module.graph.nodes)
        return _by_torch(builder), GraphReport(kind, count, by_torch=str(error))


@dataclass(frozen=True, slots=True)
class _Builder:
    """What is known of a graph; see `compile_graph`."""

    module: GraphModule
    kind: str
    sources: Mapping[str, str]
    options: Options
    passed: Passed

    def build(self, sizes: Sizes, symbols: Sequence[str], per_size: str = "") -> tuple[Run, GraphReport]:
        """The call of a program for the sizes, and a report. Raises NeedsSizes and NeedsTorch as `convert` does."""
        try:
            converted = self._converted(sizes, symbols)
            self.options.refuse(self.kind, converted.fallbacks)
            checked = self.kind != "backward"  # the forward graph had the same indices
            run = _program(self, converted, checked=checked)
        except MetaError as error:
            if isinstance(error, NotSupportedError) and error.subject == "torch.compile":
                raise
            if isinstance(error, DispatchError) and error.__cause__ is not None:  # a dialect's check of a call raised
                raise
            raise NeedsSizes(f"{error.problem}") from error
        report = GraphReport(self.kind, converted.operators, converted.fallbacks, per_size=per_size)
        return run, report

    def _converted(self, sizes: Sizes, symbols: Sequence[str]) -> Converted:
        """The program of a graph, whose saved activations have the layout that it computes with."""
        module, kind = self.module, self.kind
        taken, saved = (
            self.passed.rearranged if kind == "backward" else {},
            saved_results(module) if kind == "forward" else [],
        )
        names = [node.name for node in saved]

        def converted_with(rearranged: Mapping[str, Order], takes_memory: bool) -> Converted:
            return convert(
                module, sizes, symbols, rearranged, names, self.passed.parts if kind == "backward" else {},
                known=self.sources.keys(), takes_memory=takes_memory,
            )  # fmt: skip

        candidates = channel_candidates(module, saved)
        channels: dict[str, Order] = {n.name: last_channels(n.meta["val"].ndim) for n in candidates}
        if channels:
            trial = converted_with(channels, False)
            kept = self.options.compiled(lambda: kept_results(trial.record.module))
            channels = {name: order for i, (name, order) in enumerate(trial.computed) if i in kept and name in channels}
        takes_memory = _takes_memory(module)
        converted = converted_with({**taken, **channels}, takes_memory)
        if kind == "forward" and not takes_memory and not symbols:
            converted, parts = self.options.compiled(lambda: with_parts(converted, names))
            self.passed.parts.update(parts)
        self.passed.rearranged.update(converted.rearranged)
        return converted


def _by_torch(builder: _Builder) -> Run:
    """A call that torch runs, on arguments in the memory that the graph was recorded with."""
    interpreter = Interpreter(builder.module)
    placeholders = [n for n in builder.module.graph.nodes if n.op == "placeholder"]
    moved = [
        (i, allocator(Layout.of(n.meta["val"]), None, n.meta["val"].device, builder.sources))
        for i, n in enumerate(placeholders)
        if builder.kind == "backward" and (n.name in builder.passed.rearranged or n.name in builder.passed.parts)
    ]

    def run(args: list[Any]) -> list[Any]:
        values = _drain(args)
        for i, allocate in moved:
            values[i] = fill(allocate(values), values[i])
        results = interpreter.run(*values)
        return list(results) if isinstance(results, (tuple, list)) else [results]

    return run


# --- sizes -----------------------------------------------------------------------------------------------------------


def _per_size(builder: _Builder, symbols: Sequence[str], reason: str) -> tuple[Run, GraphReport]:
    """A call that compiles the graph for each of its sizes; the first time for those that it was recorded with."""
    runs: dict[tuple[int, ...], Run] = {}
    key_of = symbol_reader(symbols, builder.sources)

    def build(key: tuple[int, ...]) -> tuple[Run, GraphReport]:
        return builder.build(Sizes(dict(zip(symbols, key, strict=True))), (), reason)

    def run(args: list[Any]) -> list[Any]:
        key = key_of(args)
        compiled = runs.get(key)
        if compiled is None:
            compiled = runs[key] = build(key)[0]
        return compiled(args)

    hints = [s.node.hint for s in _symbols(builder.module, symbols)]
    if None in hints:
        raise NeedsTorch(reason)
    first = tuple(map(int, hints))
    runs[first], report = build(first)
    return run, report


def _symbols(module: GraphModule, names: Sequence[str]) -> tuple[Any, ...]:
    """The symbolic ints of these names among the inputs of a graph."""
    found: dict[str, Any] = {}
    for node in module.graph.nodes:
        value: Any = node.meta.get("val") if node.op == "placeholder" else None
        numbers = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        found |= {str(plain_symbol(n)): n for n in numbers if plain_symbol(n) is not None}
    return tuple(found[name] for name in names)


# --- programs --------------------------------------------------------------------------------------------------------


def _program(builder: _Builder, converted: Converted, *, checked: bool) -> Run:
    """The call of a program.

    checked: whether indices out of range raise errors, as in torch; on CUDA, where torch ends the process, never."""
    sources, options = builder.sources, builder.options
    getters = [getter(each, sources) for each in converted.outputs]
    if not converted.record.main.body.results:  # nothing is computed or written
        return lambda args: returned(getters, _drain(args))
    device = _device(converted)
    roles = roles_of(builder.module, builder.kind, converted, builder.passed)
    graphs = options.graphs and not converted.random and has_graphs(device)
    copied = roles.copied_bytes(converted) if graphs else None
    with scoped(checks_positions=checked and device.kind == "cpu"):
        program = options.compiled(
            lambda: compile_record(converted, device, fuse=options.fuse, graphs=graphs, copied_bytes=copied)
        )
    prepare, write_back = _preparer(converted, sources, device), _writer(converted)
    if program.loaded.destinations is not None:
        builder.passed.kept.update(roles.kept)
        recorder = recorder_of(program)
        recorded = RecordedCalls(program, converted, roles, recorder, sources, prepare, write_back, device)
        return _recorded_call(recorded, [getter(each, sources) for each in roles.outputs])
    fixed = [*[x._data for _, x in converted.record.state], *[c._data for c in program.constants]]
    machine = program.machine
    allocators = [
        None if i in converted.returned else allocator(r.layout, r.elements, str(device), sources)
        for i, r in enumerate(converted.results)
    ]
    receive = receiver(converted, program.optimized, str(device), sources)
    scope = _stream_scope(device)

    def execute(values: list[Any]) -> Any:
        try:
            inputs, is_moved = prepare(values)
            raw = machine.main(*inputs, *fixed)
            if is_moved:
                write_back(values, inputs)
            return raw
        except Exception as error:  # noqa: BLE001  # what functions of torch in the program raise
            _raise(error)

    def run(args: list[Any]) -> list[Any]:
        values = _drain(args)
        first = len(values)
        values += [None if allocate is None else allocate(values) for allocate in allocators]
        if scope is None:
            raw = execute(values)
        else:
            with scope():
                raw = execute(values)
        for i, x in receive(values, raw):
            values[first + i] = x
        return returned(getters, values)

    return run


def has_graphs(device: Device) -> bool:
    """Whether a device records calls."""
    return device.kind == "cuda"


def recorder_of(program: Program) -> GraphRecorder:
    """What records the calls of a program."""
    return GraphRecorder(program.source.device, private_memory(program.source.choices))


def _recorded_call(recorded: RecordedCalls, getters: Sequence[Callable[[Any], Any]]) -> Run:
    empty = [None] * (2 * recorded.results)

    def run(args: list[Any]) -> list[Any]:
        values = _drain(args)
        first = len(values)
        try:
            results = recorded(values)
        except Exception as error:  # noqa: BLE001  # what functions of torch in the program raise
            _raise(error)
        values += empty
        for i, x in results.items():
            values[first + i] = x
        return returned(getters, values)

    return run


def _raise(error: Exception) -> NoReturn:
    """Raise what a function of the program raised."""
    try:
        reraise(error)
    except PositionError as e:
        raise IndexRangeError(e.subject, e.problem, e.expected, location=e.location) from None


def _drain(args: list[Any]) -> list[Any]:
    values = list(args)
    args.clear()
    return values


def _takes_memory(module: GraphModule) -> bool:
    """Whether the caller allocates the results of a graph. A CUDA graph always writes to the same memory."""
    values = [node.meta.get("val") for node in module.graph.nodes]
    return not any(isinstance(value, torch.Tensor) and value.is_cuda for value in values)


def _device(converted: Converted) -> Device:
    """The only device of a program. Raises NeedsTorch for several."""
    main = converted.record.main
    kinds = [t for x in (*main.params, *main.body.results) for t in leaf_types(x.type) if isinstance(t, TensorType)]
    devices = list(dict.fromkeys(t.device for t in kinds))
    if len(devices) > 1:
        raise NeedsTorch(f"it has tensors on {' and '.join(map(str, devices))}")
    return devices[0]


def _stream_scope(device: Device) -> Callable[[], Any] | None:
    """A scope in which programs run on torch's current stream of the device; None on the CPU, which has none."""
    if device.kind != "cuda":
        return None

    def scope() -> Any:
        return streams.use_stream(torch.cuda.current_stream(device.index).cuda_stream, device)

    return scope


def _preparer(
    converted: Converted, sources: Mapping[str, str], device: Device
) -> Callable[[list[Any]], tuple[list[Any], bool]]:
    """The arguments of a call -> the inputs of the program: compact tensors, those for sizes last; and whether any of
    them is another tensor than the argument."""
    # Kernels of GPUs read several elements at once.
    aligned = range(len(converted.inputs)) if device.kind == "cuda" else ()
    positions = [each.position for each in converted.inputs]
    wholes = [(i, each.whole) for i, each in enumerate(converted.inputs) if each.whole is not None]
    special: list[tuple[int, Callable[[torch.Tensor], torch.Tensor]]] = []
    for i, each in enumerate(converted.inputs):
        kind = converted.record.main.params[i].type
        steps = _steps(each.order, isinstance(kind, TensorType) and is_complex(kind.dtype))
        if steps is not None:
            special.append((i, steps))
    carried = symbol_reader(converted.carried, sources)

    def prepare(values: list[Any]) -> tuple[list[Any], bool]:
        inputs, is_moved = [values[i] for i in positions], bool(special)
        for i, whole in wholes:
            inputs[i] = whole.tensor(values)
        for i, change in special:
            inputs[i] = change(inputs[i])
        for i, x in enumerate(inputs):
            if not x.is_contiguous() or x.is_neg():
                inputs[i], is_moved = x.resolve_neg().contiguous(), True
        for i in aligned:
            if inputs[i].data_ptr() % ALIGNMENT:
                inputs[i], is_moved = inputs[i].clone(), True
        inputs += [torch.empty((size, 0), dtype=torch.uint8) for size in carried(values)]
        return inputs, is_moved

    return prepare


def _writer(converted: Converted) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """(arguments of a call, inputs of the program) -> the arguments that the program writes have their new values, also
    where it wrote to copies."""
    writes = [(i, converted.inputs[i]) for i in converted.written]

    def write_back(values: Sequence[Any], inputs: Sequence[Any]) -> None:
        for i, each in writes:
            target, source = values[each.position], inputs[i]
            if source.data_ptr() != target.data_ptr():
                source = torch.view_as_complex(source) if target.is_complex() else source
                with torch.no_grad():
                    fill(target, source if each.order is None else source.permute(inverse(each.order)))

    return write_back


def _steps(order: tuple[int, ...] | None, is_complex: bool) -> Callable[[torch.Tensor], torch.Tensor] | None:
    if is_complex:
        return lambda x: torch.view_as_real(
            (x if order is None else x.permute(order)).resolve_conj().resolve_neg().contiguous()
        )
    return None if order is None else lambda x: x.permute(order)
