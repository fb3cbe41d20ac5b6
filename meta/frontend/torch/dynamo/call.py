"""Compiled graphs, as AOTAutograd calls them: with one list of torch tensors and ints, which the call empties."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from meta.backend.cuda import streams
from meta.backend.memory.allocation import ALIGNMENT
from meta.device import Device
from meta.dim import SymDim, evaluate
from meta.dtype import is_complex
from meta.frontend.torch.dynamo.convert import Converted, Output, convert
from meta.frontend.torch.dynamo.layouts import kept_results, saved_activations
from meta.frontend.torch.dynamo.options import Options
from meta.frontend.torch.dynamo.report import GraphReport
from meta.frontend.torch.dynamo.shapes import NeedsSizes, NeedsTorch, Sizes, inverse, plain_symbol, symbols_of
from meta.ir.analysis import result_sources
from meta.ir.expr import MUTATES
from meta.ir.module import Module
from meta.ir.type import TensorType, leaf_types
from meta.vm.executor import compile_record
from meta.vm.lower.python_errors import reraise
from meta.vm.runner import unpacker

Run = Callable[[list[Any]], list[Any]]
"""A call with the values of the placeholders."""

_as_torch: Callable[[Any], torch.Tensor] = getattr(torch._C, "_from_dlpack", torch.from_dlpack)


def compile_graph(
    module: GraphModule, kind: str, options: Options, stable: Collection[str] = (), layouts: set[str] | None = None
) -> tuple[Run, GraphReport]:
    """The call of a graph, and what became of it. kind: "inference", "forward" or "backward".

    stable: the placeholders that mostly have the same memory, such as parameters.
    layouts: receives the names of the activations that a forward graph returns with their channels last in memory; a
        backward graph takes them so."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    values = [n.meta["val"] for n in placeholders]
    symbols = sorted(symbols_of(values))
    sources = _symbol_sources(values)
    stable_positions = frozenset(i for i, node in enumerate(placeholders) if node.name in stable)
    try:
        if any(isinstance(v, torch.Generator) for v in values):
            raise NeedsTorch("it takes a generator of random numbers")
        missing = [s for s in symbols if s not in sources]
        if missing:
            raise NeedsTorch(f"no input has the size {missing[0]}")
        try:
            converted = _converted(module, kind, symbols, options, layouts if layouts is not None else set())
            options.refuse(kind, converted.fallbacks)
            return _program(converted, sources, options, stable_positions), _report(kind, converted)
        except NeedsSizes as error:
            if not symbols:
                raise NeedsTorch(str(error)) from error
            return _per_size(module, kind, sources, options, stable_positions, str(error))
    except NeedsTorch as error:
        options.refuse_whole(kind, str(error))
        count = sum(n.op == "call_function" for n in module.graph.nodes)
        return _by_torch(module), GraphReport(kind, count, by_torch=str(error))


def _converted(
    module: GraphModule, kind: str, symbols: Sequence[str], options: Options, layouts: set[str]
) -> Converted:
    """The program of a graph for any of its sizes, whose saved activations have the layout that it computes with."""
    if kind != "forward":
        return convert(module, Sizes(), symbols, layouts if kind == "backward" else ())
    saved = saved_activations(module)
    converted = convert(module, Sizes(), symbols, saved)
    if saved:
        kept = options.compiled(lambda: kept_results(converted.record.module))
        names = [getattr(r, "name", "") for r in module.graph.output_node().args[0]]  # type: ignore[union-attr]
        layouts.update(
            name for name, o in zip(names, converted.outputs, strict=True) if name in saved and o.result in kept
        )
    return converted if len(layouts) == len(saved) else convert(module, Sizes(), symbols, layouts)


def _report(kind: str, converted: Converted, per_size: str = "") -> GraphReport:
    return GraphReport(kind, converted.operators, converted.fallbacks, per_size=per_size)


def _by_torch(module: GraphModule) -> Run:
    interpreter = Interpreter(module)

    def run(args: list[Any]) -> list[Any]:
        values = list(args)
        args.clear()
        return list(interpreter.run(*values))

    return run


# --- sizes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SizeSource:
    """Where the value of a symbol is among the arguments of a call. axis: None for an int."""

    position: int
    axis: int | None

    def read(self, args: Sequence[Any]) -> int:
        x = args[self.position]
        return int(x if self.axis is None else x.shape[self.axis])


def _symbol_sources(values: Sequence[Any]) -> dict[str, _SizeSource]:
    sources: dict[str, _SizeSource] = {}
    for i, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                name = plain_symbol(size)
                if name is not None:
                    sources.setdefault(name, _SizeSource(i, axis))
        elif (name := plain_symbol(value)) is not None:
            sources[name] = _SizeSource(i, None)
    return sources


def _per_size(
    module: GraphModule,
    kind: str,
    sources: dict[str, _SizeSource],
    options: Options,
    stable_positions: frozenset[int],
    reason: str,
) -> tuple[Run, GraphReport]:
    """A call that compiles the graph for each of its sizes; the first time for those that it was recorded with."""
    runs: dict[tuple[int, ...], Run] = {}
    names = list(sources)

    def build(key: tuple[int, ...]) -> tuple[Run, GraphReport]:
        converted = convert(module, Sizes(dict(zip(names, key, strict=True))), ())
        options.refuse(kind, converted.fallbacks)
        return _program(converted, sources, options, stable_positions), _report(kind, converted, reason)

    def run(args: list[Any]) -> list[Any]:
        key = tuple([source.read(args) for source in sources.values()])
        compiled = runs.get(key)
        if compiled is None:
            compiled = runs[key] = build(key)[0]
        return compiled(args)

    first = _recorded_sizes(module, names)
    runs[first], report = build(first)
    return run, report


def _recorded_sizes(module: GraphModule, names: Sequence[str]) -> tuple[int, ...]:
    """The values that the symbols had when the graph was recorded."""
    hints: dict[str, int] = {}
    for node in module.graph.nodes:
        value: Any = node.meta.get("val") if node.op == "placeholder" else None
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            name = plain_symbol(size)
            if name is not None:
                symbolic: Any = size
                hints[name] = int(symbolic.node.hint)
    return tuple(hints[name] for name in names)


# --- programs --------------------------------------------------------------------------------------------------------


def _program(
    converted: Converted, sources: dict[str, _SizeSource], options: Options, stable_positions: frozenset[int]
) -> Run:
    """The call of a program. stable_positions: of arguments that mostly have the same memory."""
    outputs = _outputs(converted.outputs, sources)
    if not converted.record.main.body.results:  # nothing is computed or written
        return lambda args: _returned(outputs, _drain(args), ())
    device = _device(converted)
    graphs = options.graphs and not converted.random
    stable = [
        i for i, each in enumerate(converted.inputs) if each.position in stable_positions or i in converted.written
    ]
    program = options.compiled(
        lambda: compile_record(converted.record, device, fuse=options.fuse, graphs=graphs, stable=stable)
    )
    copied = _shared_results(program.optimized, converted.outputs)
    fixed = [*[x._data for _, x in converted.record.state], *[c._data for c in program.constants]]
    direct: Sequence[int] = ()  # inputs that kernels of a GPU read or write in place, several elements at once
    if device.kind == "cuda":
        is_graph = program.loaded.destinations is not None
        direct = converted.written if is_graph else range(len(converted.inputs))
    machine, prepare = program.machine, _preparer(converted, sources, direct)
    types = [t for t in leaf_types(converted.record.main.body.type) if isinstance(t, TensorType)]
    types = types[: len(types) - len(converted.written)]
    complexes = [i for i, t in enumerate(types) if is_complex(t.dtype)]
    unpack = unpacker(len(types))
    write_back = _writer(converted)
    scope = _stream_scope(device)

    def execute(values: list[Any]) -> Any:
        try:
            inputs, is_moved = prepare(values)
            raw = machine.main(*inputs, *fixed)
            if is_moved:
                write_back(values, inputs)
            return raw
        except Exception as error:  # noqa: BLE001  # what functions of torch in the program raise
            reraise(error)

    def run(args: list[Any]) -> list[Any]:
        values = _drain(args)
        if scope is None:
            raw = execute(values)
        else:
            with scope():
                raw = execute(values)
        results = unpack(raw)
        for i, x in enumerate(results):
            if not isinstance(x, torch.Tensor):
                results[i] = _as_torch(x.__dlpack__())
        for i in complexes:
            results[i] = torch.view_as_complex(results[i])
        for i in copied:
            results[i] = results[i].clone()
        return _returned(outputs, values, results)

    return run


def _drain(args: list[Any]) -> list[Any]:
    values = list(args)
    args.clear()
    return values


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
    converted: Converted, sources: dict[str, _SizeSource], aligned: Sequence[int]
) -> Callable[[list[Any]], tuple[list[Any], bool]]:
    """The arguments of a call -> the inputs of the program: compact tensors, those for sizes last; and whether any of
    them is another tensor than the argument.

    aligned: the inputs that are copied if their memory is not aligned."""
    positions = [each.position for each in converted.inputs]
    special: list[tuple[int, Callable[[torch.Tensor], torch.Tensor]]] = []
    for i, each in enumerate(converted.inputs):
        kind = converted.record.main.params[i].type
        steps = _steps(each.order, isinstance(kind, TensorType) and is_complex(kind.dtype))
        if steps is not None:
            special.append((i, steps))
    carried = [sources[name] for name in converted.carried]

    def prepare(values: list[Any]) -> tuple[list[Any], bool]:
        inputs, is_moved = [values[i] for i in positions], bool(special)
        for i, change in special:
            inputs[i] = change(inputs[i])
        for i, x in enumerate(inputs):
            if not x.is_contiguous() or x.is_neg():
                inputs[i], is_moved = x.resolve_neg().contiguous(), True
        for i in aligned:
            if inputs[i].data_ptr() % ALIGNMENT:
                inputs[i], is_moved = inputs[i].clone(), True
        if carried:
            inputs += [torch.empty((source.read(values), 0), dtype=torch.uint8) for source in carried]
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
                    target.copy_(source if each.order is None else source.permute(inverse(each.order)))

    return write_back


def _steps(order: tuple[int, ...] | None, is_complex: bool) -> Callable[[torch.Tensor], torch.Tensor] | None:
    if is_complex:
        return lambda x: torch.view_as_real(
            (x if order is None else x.permute(order)).resolve_conj().resolve_neg().contiguous()
        )
    return None if order is None else lambda x: x.permute(order)


# --- results ---------------------------------------------------------------------------------------------------------

_Getter = Callable[[Sequence[Any], Sequence[Any]], Any]
"""(the arguments of the call, the results of the program) -> what the graph returns at one place."""


def _outputs(outputs: Sequence[Output], sources: dict[str, _SizeSource]) -> list[_Getter]:
    return [_getter(each, sources) for each in outputs]


def _returned(getters: Sequence[_Getter], values: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    return [get(values, results) for get in getters]


def _getter(output: Output, sources: dict[str, _SizeSource]) -> _Getter:
    if output.placeholder is not None:
        position = output.placeholder
        return lambda values, _: values[position]
    if output.result is not None:
        index, order = output.result, output.order
        if order is None:
            return lambda _, results: results[index]
        return lambda _, results: results[index].permute(order)
    number = output.number
    if not isinstance(number, SymDim):
        return lambda *_: number
    return lambda values, _: evaluate(number, {name: source.read(values) for name, source in sources.items()})


def _shared_results(module: Module, outputs: Sequence[Output]) -> list[int]:
    """The results whose memory a program shares with its parameters or with an earlier result, where torch's do not:
    they are copied, so that writes to one leave the other alone. The program's writes to parameters come last."""
    sources = result_sources(module.main)
    count = len(sources) - len(module.main.attrs.get(MUTATES, {}))
    views = {o.result for o in outputs if o.is_view}
    memories = set(range(len(module.main.params))).union(*sources[count:])
    copied: list[int] = []
    for i, source in enumerate(sources[:count]):
        if source & memories and i not in views:
            copied.append(i)
        memories |= source
    return copied
