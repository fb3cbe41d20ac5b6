"""Sizes that differ from call to call: which ones the programs of an executor leave open, and checks of those.

A declaration checks sizes that are numbers and passes symbolic ones: whether an axis has elements, whether a kernel
fits. A program therefore asks the declarations of its calls again, with the sizes of its inputs, once for each
combination of sizes. Most declarations accept every size: only calls that refuse one of a few sizes are asked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, cast

from meta.dim import SymDim, evaluate, names, sym
from meta.errors import MetaError, TypeInferenceError, user_frame
from meta.ir.analysis import size_names
from meta.ir.expr import Block, Call, FunctionExpr, If, Span, arg_types
from meta.ir.type import TensorType, TupleType, flat_types
from meta.op.registry import Op
from meta.records import mutable, record
from meta.tracing import Record
from meta.tracing.open_sizes import OpenSizes
from meta.tree import Tree, leaves_of

SPECIALISATIONS: Final = 8
"""Programs of one executor for inputs that differ only in sizes, from which on it warns."""
FREQUENT: Final = 64
"""Calls with the same sizes that make them worth a program of their own."""

Key = tuple[Tree, str, tuple[TensorType, ...]]
"""The plain values of a call, their text, and the types of its arrays."""
_Run = Callable[[Sequence[Any]], Any]


class SpecialisationWarning(UserWarning):
    """A program is compiled again and again for inputs of other sizes, which it cannot leave open."""


@mutable
class Specialisations:
    """Which sizes the programs of one executor leave open.

    stated: those that its user names. None lets calls choose: the first call of a kind has a program for its sizes, the
        second one, of other sizes, a program that leaves open what differs. Kernels of exact sizes are often faster, so
        that sizes which come back FREQUENT times get a program of their own.
    shapes: for calls that differ only in sizes, shapes of the inputs that show which ones differ.
    exact: calls with a program for their sizes.  refused: why the sizes of calls cannot be open."""

    name: str
    stated: OpenSizes | None
    shapes: dict[Hashable, list[tuple[Any, ...]]] = field(default_factory=dict[Hashable, list[tuple[Any, ...]]])
    exact: set[Hashable] = field(default_factory=set[Hashable])
    refused: dict[Hashable, str] = field(default_factory=dict[Hashable, str])
    warned: bool = False

    def opened_by(self, key: Key, inputs: Sequence[str], *, opens: bool) -> OpenSizes | None:
        """The sizes that the program of a call leaves open. opens: whether that may be others than in calls before.

        None where an open axis has no elements: functions and operators treat it apart, and so do programs."""
        sizes = self.stated
        if sizes is None and key not in self.exact:
            kind, shapes = _kind(key), tuple(t.shape for t in key[2])
            recorded = self.shapes.setdefault(kind, [])
            axes, grown = _axes(inputs, recorded), _axes(inputs, [*recorded, shapes])
            if kind not in self.refused and (axes == grown or opens) and grown:
                sizes = OpenSizes({x: {axis: sym(name) for axis, name in named.items()} for x, named in grown.items()})
            if not recorded or (kind in self.refused and shapes not in recorded) or (sizes and grown != axes):
                recorded.append(shapes)
        if sizes is not None and sizes.are_empty(key[2], tuple(map(sizes.type_of, inputs, key[2]))):
            sizes = None
        if sizes is None:
            self.exact.add(key)
        return sizes

    def refuse(self, key: Key, reason: object) -> None:
        """Let no call of this kind have open sizes."""
        self.refused[_kind(key)] = str(reason)
        self.exact.add(key)

    def counted(self, run: _Run, key: Key, forget: Callable[[], object]) -> _Run:
        """The call of a program whose sizes calls have opened. forget: for calls after the last that it counts."""
        calls = 0

        def call(inputs: Sequence[Any]) -> Any:
            nonlocal calls
            calls += 1
            if calls == FREQUENT:
                self.exact.add(key)
                forget()
            return run(inputs)

        return call

    def warn(self, key: Key, inputs: Sequence[str]) -> None:
        """Warn once, when there are SPECIALISATIONS programs that differ only in sizes."""
        kind = _kind(key)
        recorded_shapes = self.shapes.get(kind, [])
        if self.warned or len(recorded_shapes) < SPECIALISATIONS or kind not in self.refused:
            return
        self.warned = True
        varying = _varying(inputs, recorded_shapes)
        text = "; ".join(f"axis {axis} of '{name}' was {', '.join(map(str, sizes))}" for name, axis, sizes in varying)
        warnings.warn(
            f"[vm] {self.name} was compiled {len(recorded_shapes)} times, for other sizes each time: {text}; one "
            f"program cannot leave them open: {self.refused[kind]} (called at {user_frame()})",
            SpecialisationWarning,
            stacklevel=2,
        )


def _kind(key: Key) -> Hashable:
    """What calls that differ only in sizes share."""
    return (*key[:2], *((t.ndim, t.dtype, t.device) for t in key[2]))


def _varying(inputs: Sequence[str], recorded_shapes: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, int, Any]]:
    """The inputs and axes whose sizes differ: (name, axis, sizes)."""
    for i, name in enumerate(inputs if recorded_shapes else ()):
        for axis in range(len(recorded_shapes[0][i])):
            sizes = tuple(shapes[i][axis] for shapes in recorded_shapes)
            if len(set(sizes)) > 1:
                yield name, axis, sizes


def _axes(inputs: Sequence[str], recorded_shapes: Sequence[tuple[Any, ...]]) -> dict[str, dict[int, str]]:
    """`dynamic` for the sizes that differ; those that always were equal share a name."""
    letters: dict[tuple[int, ...], str] = {}
    axes: dict[str, dict[int, str]] = {}
    for name, axis, sizes in _varying(inputs, recorded_shapes):
        axes.setdefault(name, {})[axis] = letters.setdefault(sizes, f"n{len(letters) or ''}")
    return axes


# --- checks of open sizes --------------------------------------------------------------------------------------------


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
