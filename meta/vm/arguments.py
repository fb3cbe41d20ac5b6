"""The arguments of calls: keys of specialisations and checks against parameters; IR Modules as records."""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from types import FunctionType, MethodType
from typing import Any, Protocol

from meta import tracing
from meta.device import Device
from meta.device import device as parse_device
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, DeviceError, IRError, NotSupportedError, value_text
from meta.ir.builder import Module
from meta.ir.expr import MUTATES
from meta.ir.type import TensorType, TupleType, Type, read_sizes
from meta.records import record
from meta.schema._dsl import TensorLike
from meta.tracing.open_sizes import OpenSizes, SizeChecks, size_checks
from meta.tracing.program import check_inputs, frozen
from meta.tree import Tree, flatten, named_leaves
from meta.vm.dynamic_sizes import Key


class Recordable(Protocol):
    """An object that can be compiled: a Model, a traced function, a training step."""

    def record(self, *args: Any, **kwargs: Any) -> tracing.Record: ...


@record
class RecordSource:
    """A record as something to compile."""

    program: tracing.Record

    def record(self, *_: Any, **__: Any) -> tracing.Record:
        return self.program


class Frozen:
    """Something to compile, with the arrays that it only reads as constants.

    source: its `record` method.  what: itself, whose name and open sizes it keeps."""

    def __init__(self, source: Callable[..., tracing.Record], what: Any) -> None:
        self.source = source
        self.__name__ = str(getattr(what, "__name__", type(what).__name__))
        self.open_sizes: Any = getattr(what, "open_sizes", None)

    def record(self, *args: object, **kwargs: object) -> tracing.Record:
        return frozen(self.source(*args, **kwargs))


def compiled_device(name: Device | str) -> Device:
    """The device that a program is compiled for; raises ArgumentError for an array, which belongs into a call."""
    if hasattr(name, "shape"):
        problem, remedy = "the device is an array", "pass inputs to the call: meta.vm.compile(model)(x)"
        raise ArgumentError("compile", problem, 'a name such as "cpu"', remedy)
    return parse_device(name)


def recorder_of(what: Recordable | Callable[..., Any]) -> Callable[..., tracing.Record]:
    """The `record` method of an object, or of a traced function; raises ArgumentError for anything else."""
    if isinstance(what, (FunctionType, MethodType)):
        return tracing.trace(what).record
    record: Callable[..., tracing.Record] | None = getattr(what, "record", None)
    if record is not None and not isinstance(what, type):
        return record
    is_class = isinstance(what, type)
    problem = f"the class {what.__name__}" if is_class else type(what).__name__
    hint = "compile an instance of it" if is_class else ""
    if not is_class and hasattr(what, "named_parameters"):
        hint = 'write torch.compile(module, backend="meta")'  # a module of torch
    if isinstance(what, TensorLike):
        hint = "compile the function, not its result: meta.vm.compile(model)(x)"
    allowed = "a Model, a function, a training step or an IR Module"
    raise ArgumentError("vm", f"{problem} cannot be compiled", allowed, hint)


def module_record(module: Module) -> Callable[..., tracing.Record]:
    """The `record` method of a Module: all parameters of "main" are inputs, by their names.

    Raises IRError for a module that is not well-formed: code compiled for false types would read foreign memory."""
    _verify(module)
    main = module.main
    names = tuple(p.name if p.name.isidentifier() else f"input{i}" for i, p in enumerate(main.params))
    for p in main.params:
        if not isinstance(p.type, TensorType):
            raise NotSupportedError(
                "vm",
                f"parameter '{p.name}' of main has type {p.type!r}",
                "tensors",
                "give main a parameter for each tensor",
            )
    if len(set(names)) != len(names):
        raise ArgumentError("vm", f"parameters of main share a name: {', '.join(names)}", "distinct names")
    parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
    signature = inspect.Signature(parameters)
    result = _tree(main.body.type)

    types = dict(zip(names, (p.type for p in main.params), strict=True))

    def record(*args: Any, **kwargs: Any) -> tracing.Record:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name in types and not isinstance(value, TensorLike):
                raise ArgumentError("vm", f"'{name}' is {type(value).__name__} {value_text(value)}", f"{types[name]!r}")
        return tracing.Record(module, names, signature, (), (), result, tracing.revision())

    return record


def _verify(module: Module) -> None:
    from meta.ir.verifier import verify_once  # programs that are traced do without it

    verify_once(module)


def _tree(kind: Type) -> Tree:
    if isinstance(kind, TupleType):
        return Tree("tuple", tuple(map(_tree, kind.fields)))
    return Tree("leaf")


def check_call(
    record: tracing.Record, inputs: Sequence[NDArray], sizes: OpenSizes | None = None, checks: SizeChecks | None = None
) -> SizeChecks | None:
    """Raise ArgumentError, naming the input, unless the arrays fit the first parameters of the program, and their sizes
    the bounds in `sizes`; raise the error of an operator of the program that refuses the sizes.

    checks: of the program's sizes, if they are known. Returns them, None for a program without open sizes."""
    types = [p.type for p in record.main.params[: len(record.inputs)]]
    if sizes is not None:
        opened = [sizes.type_of(name, x.type) for name, x in zip(record.inputs, inputs, strict=False)]
        sizes.check_bounds("vm", read_sizes("vm", record.inputs, opened, [x.type for x in inputs]))
    values = check_inputs("vm", record.inputs, types, inputs)
    if not values:
        return None
    checks = checks or size_checks(record)
    checks.check("vm", values)
    return checks


def check_devices(record: tracing.Record, device: Device) -> None:
    """Raise DeviceError for an input or an array of the state that is on another device."""
    for p in record.main.params:
        if isinstance(p.type, TensorType) and p.type.device is not device and not tracing.is_key(p):
            raise DeviceError(
                "vm",
                f"'{p.name}' is on {p.type.device}",
                f"{device}, for which the program is compiled",
                f'move it, or compile(..., device="{p.type.device}")',
            )


def check_rewritten(record: tracing.Record, module: Module) -> None:
    """Raise IRError for a module of the user's passes that is not well-formed or takes other parameters."""
    _verify(module)
    before, after = ([p.type for p in main.params] for main in (record.main, module.main))
    if before != after:
        raise IRError("vm", f"a pass changed the parameters of main from {before} to {after}",
                      "passes that keep the parameters")  # fmt: skip


def flatten_call(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Key, list[NDArray], list[str]]:
    """A key for a call (its plain values and the types of its arrays), and its arrays in order with their names.

    Raises ArgumentError when the arguments do not fit the signature or are not hashable."""
    refuse_symbols(args, kwargs)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError("vm", f"{error}", f"{signature}") from None
    bound.apply_defaults()
    leaves, tree = flatten(dict(bound.arguments), NDArray)
    inputs: list[NDArray] = [x for _, x in leaves]
    key = (*tree.exact(), tuple(x.type for x in inputs))
    try:
        hash(key)
    except TypeError:
        raise ArgumentError(
            "vm", "a plain argument is not hashable", "arrays, numbers, strings and nests of them"
        ) from None
    return key, inputs, [name for name, _ in leaves]


def refuse_writes(record: tracing.Record, inputs: Sequence[NDArray], converted: Sequence[NDArray]) -> None:
    """Raise ArgumentError for an input that the program overwrites and that may be a copy of another library's
    array."""
    for i in record.main.attrs.get(MUTATES, {}).values():
        if i < len(inputs) and any(inputs[i] is x for x in converted):
            raise ArgumentError(
                "vm",
                f"'{record.inputs[i]}' is an array of another library, which the program overwrites",
                "meta arrays for inputs that are overwritten",
                "wrap it: meta.array(...)",
            )


def refuse_symbols(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ArgumentError for a traced value."""
    arguments = {**{f"argument {i}": a for i, a in enumerate(args)}, **kwargs}
    for name, value in named_leaves(arguments):
        if isinstance(value, TensorLike) and not isinstance(value, NDArray):
            hint = "call what the program was compiled from; it becomes a part of the new program"
            raise ArgumentError("vm", f"a compiled program is traced: '{name}' is a traced value", "arrays", hint)


# --- memory that arguments share --------------------------------------------------------------------------------------
#
# A program computes with tensors that are values of their own, in an order of kernels that keeps few bytes alive. If
# memory that it overwrites belonged to another argument too, results would depend on that order.

Check = Callable[[Sequence[NDArray]], None]
"""Takes the inputs of a call; raises ArgumentError."""
Span = tuple[int, int, int]
"""The first address of an array, the one after its last, and the number of its parameter."""


def overlap_check(names: Sequence[str], state: Sequence[NDArray], written: Collection[int]) -> Check | None:
    """A check that nothing a call overwrites is part of another argument; None if the program overwrites nothing.

    names: of the parameters, first the inputs, then the state.  written: the parameters that the program overwrites.
    Raises ArgumentError, as the check does, for arrays of the state that share memory."""
    most_sizes = 1024  # Types of arrays whose bytes are kept.
    if not written:
        return None
    first = len(names) - len(state)
    spans = [(x._data.data_ptr(), x._data.data_ptr() + x.nbytes, i) for i, x in enumerate(state, first) if x.nbytes]
    _refuse_overlaps(spans, written, names)
    everywhere, changing = _Places(spans), _Places([span for span in spans if span[2] in written])
    places = [everywhere if i in written else changing for i in range(first)]
    compares_inputs = first > 1 and min(written) < first
    sizes: dict[TensorType, int] = {}

    def check(inputs: Sequence[NDArray]) -> None:
        spans: list[Span] = []
        for i, x in enumerate(inputs):
            start, size = x._data.data_ptr(), sizes.get(x._type)
            if size is None:
                if len(sizes) >= most_sizes:
                    sizes.clear()
                size = sizes[x._type] = x.nbytes
            place = places[i]
            slot = bisect_left(place.starts, start + size) - 1
            if slot >= 0 and start < place.ends[slot] and size:
                raise _shared(names, i, place.parameters[slot])
            if size:
                spans.append((start, start + size, i))
        if compares_inputs:
            _refuse_overlaps(spans, written, names)

    return check


class _Places:
    """Addresses that arrays cover, as sorted ranges without overlaps. parameters: one of those in each range."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.parameters: list[int] = []
        for start, end, parameter in sorted(spans):
            if self.ends and start < self.ends[-1]:
                self.ends[-1] = max(end, self.ends[-1])
            else:
                self.starts.append(start)
                self.ends.append(end)
                self.parameters.append(parameter)


def _refuse_overlaps(spans: list[Span], written: Collection[int], names: Sequence[str]) -> None:
    """Raise ArgumentError if one of the arrays is overwritten and overlaps with another."""
    end = written_end = 0  # of those before
    other = writer = -1
    spans.sort()
    for start, stop, parameter in spans:
        if parameter in written:
            if start < end:
                raise _shared(names, parameter, other)
            writer, written_end = parameter, stop
        elif start < written_end:
            raise _shared(names, writer, parameter)
        if stop > end:
            other, end = parameter, stop


def _shared(names: Sequence[str], one: int, other: int) -> ArgumentError:
    return ArgumentError(
        "vm",
        f"'{names[one]}' and '{names[other]}' share memory, and the program overwrites one of them",
        "arrays in separate memory",
        "make one of them a copy",
    )
