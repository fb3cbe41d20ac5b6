"""Checks of the sizes that a program leaves open.

A declaration checks sizes that are numbers and passes symbolic ones: whether an axis has elements, whether a kernel
fits. A program therefore asks the declarations of its calls again, with the sizes of its inputs, once for each
combination of sizes. Most declarations accept every size: only calls that refuse one of a few sizes are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from meta.dim import SymDim, evaluate, names
from meta.errors import MetaError, TypeInferenceError
from meta.ir.analysis import size_names
from meta.ir.expr import Block, Call, FunctionExpr, If, Span, arg_types
from meta.ir.type import TensorType, TupleType, flat_types
from meta.op.registry import Op
from meta.records import record
from meta.tracing import Record
from meta.tree import leaves_of

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
