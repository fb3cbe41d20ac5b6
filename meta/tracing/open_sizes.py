"""Sizes that a record leaves open: `dynamic` of `meta.vm.compile` and of exporters; and checks of those sizes.

A declaration checks sizes that are numbers and passes symbolic ones: whether an axis has elements, whether a kernel
fits. A program therefore asks the declarations of its calls again, with the sizes of its inputs, once for each
combination of sizes. Most declarations accept every size: only calls that refuse one of a few sizes are asked.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Final, cast

from meta.dim import SymDim, evaluate, names, sym
from meta.dim_ties import recording_unequal
from meta.errors import ArgumentError, MetaError, TypeInferenceError, did_you_mean
from meta.ir.analysis import size_names
from meta.ir.expr import Block, Call, FunctionExpr, If, Span, arg_types
from meta.ir.type import TensorType, TupleType, flat_types
from meta.op.registry import Op
from meta.records import record
from meta.tracing.program import Record, input_types
from meta.tree import leaves_of

Dynamic = Mapping[str, Mapping[int, str | SymDim]]
"""Input -> axis -> the name of its size."""


@record
class OpenSizes:
    """The sizes that a program leaves open. axes: input -> axis -> its size.  bounds: the name of a size -> its least
    and its greatest value, None for none; other sizes may have any value."""

    axes: Mapping[str, Mapping[int, SymDim]]
    bounds: Mapping[str, tuple[int, int | None]] = field(default_factory=dict[str, tuple[int, "int | None"]])

    def type_of(self, name: str, kind: TensorType) -> TensorType:
        """The type that an input is recorded with. Raises ArgumentError for an axis that it does not have."""
        axes = self.axes.get(name)
        if not axes:
            return kind
        shape = list(kind.shape)
        for axis, size in axes.items():
            if not -kind.ndim <= axis < kind.ndim:
                problem = f"dynamic names axis {axis} of '{name}', which is {kind!r}"
                raise ArgumentError("vm", problem, f"axes from {-kind.ndim} to {kind.ndim - 1}" if shape else "no axis")
            shape[axis] = size
        return kind.with_shape(tuple(shape))

    def are_empty(self, types: Sequence[TensorType], opened: Sequence[TensorType]) -> bool:
        """Whether an open axis has no elements. Functions and operators treat it apart, and so do programs: none of
        the sizes of such a call is open. opened: the types with open axes."""
        pairs = (pair for t, o in zip(types, opened, strict=True) for pair in zip(t.shape, o.shape, strict=True))
        return any(size == 0 and opened_size != 0 for size, opened_size in pairs)

    def check_bounds(self, where: str, sizes: Mapping[str, int]) -> None:
        """Raise ArgumentError for a size outside of its bounds. sizes: by name."""
        for name, (least, greatest) in self.bounds.items():
            size = sizes.get(name)
            if size is None or (least <= size and (greatest is None or size <= greatest)):
                continue
            inputs = [
                f"axis {axis} of '{x}'{'' if d.name == name else f' is {d}'}"
                for x, axes in self.axes.items() for axis, d in axes.items() if name in names(d)
            ]  # fmt: skip
            expected = f"at least {least}" if greatest is None else f"{least} to {greatest}"
            raise ArgumentError(where, f"the size {name} ({', '.join(inputs)}) is {size}", expected)

    def check_names(self, inputs: Sequence[str]) -> None:
        """Raise ArgumentError for a name that no input has."""
        for name in self.axes:
            if name not in inputs:
                problem = f"dynamic names '{name}', which is no input that is an array"
                hint = did_you_mean(name, inputs) or f'write dynamic={{"{inputs[0]}": ...}}' if inputs else ""
                raise ArgumentError("vm", problem, ", ".join(inputs), hint)


def open_sizes(dynamic: Dynamic | None, is_module: bool) -> OpenSizes | None:
    """The argument of `compile`, checked; None without one. Raises ArgumentError."""
    if dynamic is None:
        return None
    if is_module:
        raise ArgumentError("vm", "dynamic is given for a Module", "functions and models",
                            "give its parameters types with symbolic sizes")  # fmt: skip
    example = 'a dict such as {"x": {0: "n"}}'
    axes: dict[str, dict[int, SymDim]] = {}
    mapping: Any = dynamic
    if not isinstance(mapping, Mapping):
        raise ArgumentError("vm", f"dynamic is {type(mapping).__name__}", example)
    for name, named_axes in dynamic.items():
        each: Any = named_axes
        if not isinstance(name, str) or not isinstance(each, Mapping):
            raise ArgumentError("vm", f"dynamic has {name!r}: {each!r}", example, "name each axis")
        axes[name] = {}
        for axis, size in named_axes.items():
            key: Any = axis
            if isinstance(key, bool) or not isinstance(key, int) or not isinstance(size, (str, SymDim)):
                raise ArgumentError("vm", f"dynamic has {axis!r}: {size!r} for '{name}'", example)
            axes[name][axis] = sym(size) if isinstance(size, str) else size
    return OpenSizes(axes)


def example(kind: TensorType) -> TensorType:
    """A type without open sizes that fits."""
    sizes = {name: 2 for dim in kind.shape for name in names(dim)}
    return kind.with_shape(tuple(evaluate(dim, sizes) if isinstance(dim, SymDim) else dim for dim in kind.shape))


@contextmanager
def recording(sizes: OpenSizes | None, conditions: list[tuple[SymDim, MetaError]]) -> Generator[None, None, None]:
    """Inside the block, functions are recorded with these open sizes. conditions: receives, at its end, sizes that are
    0 or more where all comparisons of sizes with `==` are as in the trace, and the errors of others."""
    with input_types(sizes.type_of if sizes else None), recording_unequal() as pairs:
        yield
    for a, b in pairs:
        distance: Any = a - b
        if isinstance(distance, SymDim):
            problem = f"the size {a} equals {b}, and the program was recorded for sizes that differ"
            conditions.append((distance * distance - 1, ArgumentError("vm", problem, "other sizes")))


_SAMPLES: Final = (0, 1, 2, 3, 5, 7, 1 << 20)
"""Sizes that are tried: those at which declarations differ, and one larger than constants in programs."""


@record(eq=False)
class SizeChecks:
    """Where a program may not run. calls: those whose declarations refuse some of its open sizes.  conditions: sizes
    that are 0 or more, and the errors of others."""

    calls: tuple[Call, ...]
    conditions: tuple[tuple[SymDim, MetaError], ...] = ()

    def check(self, where: str, sizes: Mapping[str, int]) -> None:
        """Raise the error of the declaration that refuses these sizes, of the names that inputs have."""
        for size, error in self.conditions:
            if evaluate(size, sizes) < 0:
                raise _with_sizes(error, where, names(size), sizes)
        for call in self.calls:
            try:
                _infer(call, sizes)
            except MetaError as error:
                raise _with_sizes(error, where, _names(call), sizes, call.span) from None


def _with_sizes(
    error: MetaError, where: str, unknown: Iterable[str], sizes: Mapping[str, int], span: Span | None = None
) -> MetaError:
    """An error of sizes with their values, and the line of the call."""
    shown = ", ".join(f"{name} = {sizes[name]}" for name in sorted(unknown))
    place = f" in the call at {span}" if span is not None else ""
    return type(error)(error.subject or where, f"with {shown}, {error.problem}{place}", error.expected, error.remedy)


def size_checks(record: Record) -> SizeChecks:
    """The checks of a program with open sizes."""
    known = frozenset(name for t in flat_types([p.type for p in record.main.params]) for name in size_names(t))
    calls = tuple(call for call in _calls(record.main.body) if _names(call) <= known and _refuses(call))
    return SizeChecks(calls, tuple(each for each in record.conditions if names(each[0]) <= known))


def _calls(block: Block) -> Iterator[Call]:
    """The calls of operators with symbolic sizes that every run makes. Calls in branches are left out."""
    for binding in block.bindings:
        value = binding.value
        if isinstance(value, FunctionExpr):
            yield from _calls(value.body)
        elif not isinstance(value, If) and isinstance(value, Call) and type(value.op) is Op and _names(value):
            yield value


def _refuses(call: Call) -> bool:
    """Whether the declaration refuses some sizes."""
    unknown = sorted(_names(call))
    samples: list[Iterable[int]] = [[size] * len(unknown) for size in _SAMPLES]
    samples += [range(2, 2 + len(unknown)), range(1 + len(unknown), 1, -1)]
    try:
        for sample in samples:
            _infer(call, dict(zip(unknown, sample, strict=True)))
    except MetaError:
        return True
    return False


def _infer(call: Call, sizes: Mapping[str, int]) -> None:
    """Type a call with sizes that are numbers. Raises a MetaError where the declaration refuses them, or where it gives
    a type other than the program's."""
    assert isinstance(call.op, Op)
    result = call.op.infer(_with_numbers(arg_types(call.args), sizes))
    expected = _with_numbers(call.type, sizes)
    if result != expected:
        raise TypeInferenceError(
            call.op.name, f"the result is {result!r}, where the program has {expected!r}", "sizes as in the trace",
            "leave these sizes out of `dynamic`",
        )  # fmt: skip


def _with_numbers(value: Any, sizes: Mapping[str, int]) -> Any:
    """Arguments of a call, or its type, with numbers in place of symbolic sizes."""
    if isinstance(value, SymDim):
        try:
            return evaluate(value, sizes)
        except ZeroDivisionError:
            raise TypeInferenceError("", f"the size {value} divides by 0", "sizes that it can divide by") from None
    if isinstance(value, TensorType):
        return value if value.is_static else value.with_shape(tuple(_with_numbers(d, sizes) for d in value.shape))
    if isinstance(value, TupleType):
        return TupleType(tuple(_with_numbers(each, sizes) for each in value.fields))
    if not isinstance(value, tuple):
        return value
    items = cast("tuple[Any, ...]", value)
    return tuple([_with_numbers(each, sizes) for each in items])


def _names(call: Call) -> frozenset[str]:
    """The names of the sizes in the arguments and the type of a call."""
    args = arg_types(call.args)
    sizes = [names(x) for x in leaves_of(args) if isinstance(x, SymDim)]
    return frozenset[str]().union(*sizes, *map(size_names, flat_types((*args, call.type))))
